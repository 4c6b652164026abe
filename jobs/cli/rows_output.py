"""Output of rows for people and programs: table, JSON, JSON lines, CSV. Rows are written as they arrive."""

from __future__ import annotations

import base64
import csv
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from shutil import get_terminal_size
from typing import Any, TextIO

import pyarrow as pa

from commitlake.connectors.printable import printable_json, printable_line
from commitlake.jobs.cli.output_forms import SCHEMA
from commitlake.jobs.cli.terminal import trusted
from commitlake.jobs.cli.text_table import TextTable

Row = dict[str, Any]

_TIME_FORM = "%Y-%m-%dT%H:%M:%SZ"  # for milliseconds, %S includes the fraction
_to_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def plain_rows(batches: Iterable[pa.RecordBatch], limit: int) -> Iterator[Row]:
    """Yield at most `limit` rows (0 for all): times as ISO 8601 in UTC, maps as dicts, bytes in base64."""
    rows = (row for batch in batches for row in _rows_of(batch))
    return islice(rows, limit) if limit else rows


def _rows_of(batch: pa.RecordBatch) -> Iterator[Row]:
    names = batch.schema.names
    for values in zip(*(_plain_values(column) for column in batch.columns), strict=True):
        yield dict(zip(names, values, strict=True))


def _plain_values(column: pa.Array) -> list[Any]:
    """Convert a column at once: value by value takes three times as long, and pyarrow would import pandas for times."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        import pyarrow.compute as pc

        times = column.cast(
            pa.timestamp("ms", "UTC" if kind.tz else None), safe=False
        )  # because the time zone of sessions may differ
        return list(pc.strftime(times, format=_TIME_FORM).to_pylist())
    if pa.types.is_date(kind):
        return list(column.cast(pa.string()).to_pylist())
    if pa.types.is_map(kind):
        return [None if pairs is None else dict(pairs) for pairs in column.to_pylist()]
    if pa.types.is_binary(kind) or pa.types.is_binary_view(kind):
        return [None if value is None else base64.b64encode(value).decode() for value in column.to_pylist()]
    return list(column.to_pylist())


def write_jsonl(rows: Iterable[Row], out: TextIO) -> int:
    """Write one JSON object per line, and return the number of rows."""
    count = 0
    write_text = trusted(out).write
    for row in rows:
        write_text(printable_json(_to_json(row)) + "\n")
        count += 1
    return count


def write_csv(rows: Iterable[Row], columns: list[str], out: TextIO) -> int:
    """Write a header and one CSV line per row, with lists and maps as JSON, and return the number of rows.

    Standard output shows control characters as escapes, as `jobs.cli.terminal` says; with --raw texts are exact.
    """
    writer = csv.writer(out, lineterminator="\n")
    remaining = iter(rows)
    first = list(islice(remaining, 1))  # before the header, so that a refused query prints nothing
    writer.writerow(columns)
    count = 0
    for row in chain(first, remaining):
        cells = map(row.get, columns)
        writer.writerow([_to_json(cell) if isinstance(cell, dict | list) else cell for cell in cells])
        count += 1
    return count


def write_table(rows: Iterable[Row], columns: list[str], out: TextIO) -> int:
    """Write a table as wide as the terminal, or as wide as its content without one, and return the number of rows."""
    cells = [[_table_cell(row[name]) for name in columns] for row in rows]
    if not cells:
        return 0
    titles = [_table_cell(name) for name in columns]  # --sql names columns freely
    table = TextTable(titles, cells)
    if out.isatty() and table.width > get_terminal_size().columns:
        _write_folded(cells, titles, out)
    else:
        first, *others = table.lines()
        is_styled = out.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")
        lines = [f"{_BOLD}{first}{_PLAIN}" if is_styled else first, *others]
        trusted(out).write("".join(f"{line}\n" for line in lines))
    return len(cells)


def _write_folded(rows: list[list[str]], columns: list[str], out: TextIO) -> None:
    """Write a table whose cells are folded to the width of the terminal."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in columns:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    Console(file=trusted(out), markup=False, highlight=False).print(table)


_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"


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
    return printable_line(text)


def write_json(rows: Iterable[Row], out: TextIO, missing: Sequence[str] = ()) -> int:
    """Write one JSON document, one row per line, and return the number of rows; see `jobs.cli.output_forms`."""
    remaining = iter(rows)
    first = list(islice(remaining, 1))  # before the first output, so that a refused query prints nothing
    write_text = trusted(out).write
    write_text(f'{{"schema": "{SCHEMA}", "rows": [')
    count = 0
    for row in chain(first, remaining):
        write_text((",\n" if count else "\n") + printable_json(_to_json(row)))
        count += 1
    write_text(f'\n], "missing": {printable_json(_to_json(list(missing)))}}}\n' if missing else "\n]}\n")
    return count


def write_objects(form: str, rows: Sequence[Row]) -> int:
    """Write rows with varying keys to standard output as json, jsonl or csv, and return their number."""
    return write(form, rows, list(dict.fromkeys(key for row in rows for key in row)))


def write(form: str, rows: Iterable[Row], columns: list[str], missing: Sequence[str] = ()) -> int:
    """Write rows to standard output in a form of `jobs.cli.output_forms`, and return their number.

    The output is flushed, so that it comes before later lines of standard error if both go to one pipe or file.

    Args:
        form: the form.
        rows: the rows.
        columns: columns of a table and of CSV.
        missing: sentences on what the answer lacks, for the JSON document; the job also prints them as warnings.
    """
    match form:
        case "json":
            count = write_json(rows, sys.stdout, missing)
        case "jsonl":
            count = write_jsonl(rows, sys.stdout)
        case "csv":
            count = write_csv(rows, columns, sys.stdout)
        case _:
            count = write_table(rows, columns, sys.stdout)
    sys.stdout.flush()
    return count
