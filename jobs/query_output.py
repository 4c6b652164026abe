"""Rows for people and for programs: a table, JSON lines, CSV. Batches come in and are written as they come."""

from __future__ import annotations

import base64
import csv
import datetime
import json
import sys
from collections.abc import Iterable, Iterator
from typing import TextIO

import pyarrow as pa

Row = dict[str, object]


def plain_rows(batches: Iterable[pa.RecordBatch], limit: int) -> Iterator[Row]:
    """Rows of plain values, at most `limit` (0: all): times in ISO 8601, UTC; maps as dictionaries; bytes in base64."""
    left = limit or None
    for batch in batches:
        maps = {field.name for field in batch.schema if pa.types.is_map(field.type)}
        for row in batch.to_pylist():
            if left is not None:
                if left == 0:
                    return
                left -= 1
            yield {
                name: dict(value) if name in maps and value is not None else _plain(value)
                for name, value in row.items()
            }


def _plain(value: object) -> object:
    match value:
        case datetime.datetime():
            return value.astimezone(datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
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
    writer.writerow(columns)
    count = 0
    for row in rows:
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

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in columns:
        table.add_column(name, overflow="fold", no_wrap=not out.isatty())
    count = 0
    for row in rows:
        table.add_row(*(_table_cell(row[name]) for name in columns))
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
            return ""
        case list():
            return " ".join(str(item) for item in value)
        case dict():
            return " ".join(f"{key}={item}" for key, item in value.items())
    # A terminal obeys control characters: what a producer wrote must not move its cursor.
    return "".join(character if character.isprintable() else "\ufffd" for character in str(value))


def write(form: str, rows: Iterable[Row], columns: list[str]) -> int:
    """Rows to standard output in a form: table, jsonl or csv."""
    match form:
        case "jsonl":
            return write_jsonl(rows, sys.stdout)
        case "csv":
            return write_csv(rows, columns, sys.stdout)
        case _:
            return write_table(rows, columns, sys.stdout)
