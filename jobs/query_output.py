"""Rows for people and for programs: a table, JSON lines, CSV. Batches come in and are written as they come."""

from __future__ import annotations

import base64
import csv
import datetime
import json
import sys
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Any, TextIO

import pyarrow as pa

Row = dict[str, Any]

_EPOCH = datetime.datetime.fromtimestamp(0, datetime.UTC)


def plain_rows(batches: Iterable[pa.RecordBatch], limit: int) -> Iterator[Row]:
    """Rows of plain values, at most `limit` (0: all): times in ISO 8601, UTC; maps as dictionaries; bytes in base64."""
    left = limit or None
    for batch in batches:
        maps = {field.name for field in batch.schema if pa.types.is_map(field.type)}
        times = {field.name for field in batch.schema if pa.types.is_timestamp(field.type)}
        for row in _times_as_numbers(batch, times).to_pylist():
            if left is not None:
                if left == 0:
                    return
                left -= 1
            for name in maps:
                row[name] = None if row[name] is None else dict(row[name])
            for name in times:
                row[name] = None if row[name] is None else _time_text(row[name])
            yield {name: _plain(value) for name, value in row.items()}


def _times_as_numbers(batch: pa.RecordBatch, times: set[str]) -> pa.RecordBatch:
    """Timestamps as microseconds: to make datetimes of them, pyarrow would import pandas, half a second long."""
    for name in times:
        number = batch.schema.get_field_index(name)
        zone = batch.schema.field(number).type.tz
        micros = batch.column(number).cast(pa.timestamp("us", zone), safe=False).cast(pa.int64())
        batch = batch.set_column(number, name, micros)
    return batch


def _time_text(micros: int) -> str:
    moment = _EPOCH + datetime.timedelta(microseconds=micros)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _plain(value: object) -> object:
    match value:
        case datetime.date():
            return value.isoformat()
        case bytes():
            return base64.b64encode(value).decode()
    return value


def write_jsonl(rows: Iterable[Row], out: TextIO) -> int:
    """One object a line; how many."""
    count = 0
    for row in rows:
        out.write(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n")
        count += 1
    return count


def write_csv(rows: Iterable[Row], columns: list[str], out: TextIO) -> int:
    """A header and one line a row; lists and maps as JSON; how many."""
    writer = csv.writer(out, lineterminator="\n")
    remaining = iter(rows)
    first = list(islice(remaining, 1))  # before the header: a question that is refused gives no output
    writer.writerow(columns)
    count = 0
    for row in chain(first, remaining):
        writer.writerow([_cell(row[name]) for name in columns])
        count += 1
    return count


def _cell(value: object) -> object:
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return value


def write_table(rows: Iterable[Row], columns: list[str], out: TextIO) -> int:
    """A table as wide as the terminal, or as wide as it needs to be where there is none; how many rows."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in columns:
        table.add_column(name, overflow="fold", no_wrap=not out.isatty())
    count = 0
    for row in rows:
        table.add_row(*(Text(_table_cell(row[name])) for name in columns))
        count += 1
    if count:
        Console(file=out, width=None if out.isatty() else _NO_TERMINAL_WIDTH, markup=False, highlight=False).print(
            table
        )
    return count


_NO_TERMINAL_WIDTH = 100_000


def _table_cell(value: object) -> str:
    match value:
        case None:
            text = ""
        case list():
            text = " ".join(str(item) for item in value)
        case dict():
            text = " ".join(f"{key}={item}" for key, item in value.items())
        case _:
            text = str(value)
    # A terminal obeys control characters: what a producer wrote must not move its cursor.
    return "".join(character if character.isprintable() else "\ufffd" for character in text)


def write(form: str, rows: Iterable[Row], columns: list[str]) -> int:
    """Rows to standard output in a form: table, jsonl or csv."""
    match form:
        case "jsonl":
            return write_jsonl(rows, sys.stdout)
        case "csv":
            return write_csv(rows, columns, sys.stdout)
        case _:
            return write_table(rows, columns, sys.stdout)
