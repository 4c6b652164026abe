"""Output of rows for people and programs: table, JSON, JSON lines, CSV. Rows are written as they arrive."""

from __future__ import annotations

import base64
import csv
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import chain, islice
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any, TextIO

import pyarrow as pa

from commitlake.connectors.printable import escape_csv_formula, escape_json, escape_line
from commitlake.jobs.arguments.times import TIME_TEXT, to_local_times
from commitlake.jobs.cli.terminal import EscapingStream, print_line, unguarded_stream
from commitlake.jobs.report.output_formats import SCHEMA, current_display
from commitlake.jobs.report.text_table import TextTable, wrap_text
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.report_columns import Column

if TYPE_CHECKING:
    from commitlake.schemas.report import Table

Row = dict[str, Any]

PIPE_WIDTH = 120
"""Width of a table in a pipe or a file, unless $COLUMNS is set."""

_TIME_FORM = "%Y-%m-%dT%H:%M:%SZ"  # for milliseconds, %S includes the fraction
_to_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def rows_of_batches(batches: Iterable[pa.RecordBatch], limit: int) -> Iterator[Row]:
    """Yield at most `limit` rows (0 for all): times as ISO 8601 in UTC, maps as dicts, bytes in base64."""
    rows = (row for batch in batches for row in _batch_to_rows(batch))
    return islice(rows, limit) if limit else rows


def _batch_to_rows(batch: pa.RecordBatch) -> Iterator[Row]:
    names = batch.schema.names
    for values in zip(*(_to_plain_values(column) for column in batch.columns), strict=True):
        yield dict(zip(names, values, strict=True))


def _to_plain_values(column: pa.Array) -> list[Any]:
    """Convert an Arrow column to plain Python values, without pandas; faster than converting each value."""
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
    write_text = unguarded_stream(out).write
    for row in rows:
        write_text(escape_json(_to_json(row)) + "\n")
        count += 1
    return count


def write_csv(rows: Iterable[Row], columns: Sequence[str], out: TextIO) -> int:
    """Write a header and one CSV line per row, with lists and maps as JSON, and return the number of rows.

    Standard output shows control characters as escapes, as `jobs.cli.terminal` says, and texts are changed as
    `escape_csv_formula` says; with --raw texts are exact.
    """
    writer = csv.writer(out, lineterminator="\n")
    is_guarded = isinstance(out, EscapingStream)
    remaining = iter(rows)
    first = list(islice(remaining, 1))  # before the header, so that a refused query prints nothing
    writer.writerow(map(escape_csv_formula, columns) if is_guarded else columns)
    count = 0
    for row in chain(first, remaining):
        writer.writerow(
            [_csv_field(row.get(getattr(name, "key", name)), escapes_formulas=is_guarded) for name in columns]
        )
        count += 1
    return count


def _csv_field(value: object, *, escapes_formulas: bool) -> object:
    if isinstance(value, dict | list):
        value = _to_json(value)
    return escape_csv_formula(value) if escapes_formulas and isinstance(value, str) else value


def write_table(rows: Iterable[Row], columns: Sequence[str], out: TextIO, *, is_full: bool = False) -> int:
    """Write a table that is no wider than the terminal, and return the number of rows.

    Args:
        columns: names of columns; a `Column` says what can be left out.
        out: the output. In a pipe or file the table is `PIPE_WIDTH` or $COLUMNS wide, or, with `--full`, as wide as its
            content.
        is_full: true for a table as with `--full`.
    """
    shown = current_display()
    notes: dict[str, int] = {}
    named = [column if isinstance(column, Column) else Column(column) for column in columns]
    cells, numeric = [], [True] * len(named)
    for row in rows:
        values = [row[name.key] for name in named]
        for number, value in enumerate(values):
            numeric[number] = numeric[number] and (value is None or _is_number(value))
        cells.append(
            [
                _note_numbers_text(value, notes)
                if column.is_notes
                else _table_cell_text(column, value, is_local_time=shown.is_local)
                for column, value in zip(named, values, strict=True)
            ]
        )
    if not cells:
        return 0
    titles = [
        Column(escape_line(name), name.spare, is_number=name.is_number or is_numeric, is_whole=name.is_whole)
        for name, is_numeric in zip(named, numeric, strict=True)
        if notes or not name.is_notes
    ]
    if not notes:
        cells = [[cell for cell, name in zip(row, named, strict=True) if not name.is_notes] for row in cells]
    _write_text_cells(titles, cells, notes, out, is_full=is_full)
    return len(cells)


def write_table_block(table: Table, out: TextIO, *, is_full: bool = False) -> None:
    """Write a table of a report as text, without the columns in which all cells are empty.

    Args:
        table: the table; one without rows writes nothing.
        out: the output, as for `write_table`.
        is_full: true for a table as with `--full`.
    """
    notes: dict[str, int] = {}
    titles, columns = [], []
    for column, cells in zip(table.columns, zip(*table.rows, strict=True), strict=False):
        texts = [_note_numbers_text(cell.notes, notes) if column.is_notes else escape_line(str(cell)) for cell in cells]
        if any(texts):
            titles.append(
                Column(escape_line(column), column.spare, is_number=column.is_number, is_whole=column.is_whole)
            )
            columns.append(texts)
    if columns:
        _write_text_cells(titles, list(zip(*columns, strict=True)), notes, out, is_full=is_full)


def _write_text_cells(
    titles: Sequence[Column],
    cells: Sequence[Sequence[str]],
    numbers_by_note: Mapping[str, int],
    out: TextIO,
    *,
    is_full: bool,
) -> None:
    """Write a table of texts, its numbered notes, and a remark on hidden columns and shortened texts."""
    shown = current_display()
    is_full = is_full or shown.is_full
    width = _table_width(out, is_full=is_full)
    table = TextTable(titles, cells, width, is_full=is_full)
    lines = list(table.body_lines())
    is_styled = out.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")
    head = [f"{_BOLD}{line}{_PLAIN}" if is_styled else line for line in table.titles[:-1]] + table.titles[-1:]
    lines += [""] if numbers_by_note else []
    for note, number in numbers_by_note.items():
        mark = f"{number:>{len(str(len(numbers_by_note)))}}  "
        lines += wrap_text(note, width or PIPE_WIDTH, mark, " " * len(mark))
    unguarded_stream(out).write("".join(f"{line}\n" for line in head + lines))
    if (remark := _left_out_rows_text(table)) and not shown.is_quiet:
        out.flush()
        print_line(remark + ("; --full shows all" if shown.is_command else ""))


def _table_width(out: TextIO, *, is_full: bool) -> int | None:
    if out.isatty():
        return get_terminal_size().columns
    given = os.environ.get("COLUMNS", "")
    return None if is_full else int(given) if given.isdecimal() and int(given) else PIPE_WIDTH


def _left_out_rows_text(table: TextTable) -> str:
    """Return a remark that names the hidden columns and counts the shortened texts."""
    parts = []
    if table.left_out:
        parts.append(f"not shown: {', '.join(table.left_out)}")
    if table.shortened:
        parts.append(f"{format_count(table.shortened, 'text is', 'texts are')} shortened")
    return "; ".join(parts)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _note_numbers_text(sentences: Iterable[str], numbers_by_note: dict[str, int]) -> str:
    """Return the numbers of notes as text; sentences without a number are added to `numbers_by_note`."""
    numbers = [numbers_by_note.setdefault(escape_line(sentence), len(numbers_by_note) + 1) for sentence in sentences]
    return ", ".join(str(number) for number in sorted(set(numbers)))


_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"


def _table_cell_text(column: Column, value: object, *, is_local_time: bool) -> str:
    if column.text is not None and value is not None:
        value = column.text(value)
    match value:
        case None:
            text = ""
        case str():
            text = to_local_times(value) if is_local_time and TIME_TEXT.fullmatch(value) else value
        case list():
            text = " ".join(str(item) for item in value)
        case dict():
            text = " ".join(f"{key}={item}" for key, item in value.items())
        case _:
            text = str(value)
    return escape_line(text)


def write_json(rows: Iterable[Row], out: TextIO, missing_data_sentences: Sequence[str] = ()) -> int:
    """Write rows as one JSON document to a stream, one row per line, and return the number of rows."""
    remaining = iter(rows)
    first = list(islice(remaining, 1))  # before the first output, so that a refused query prints nothing
    write_text = unguarded_stream(out).write
    write_text(f'{{"schema": "{SCHEMA}", "rows": [')
    count = 0
    for row in chain(first, remaining):
        write_text((",\n" if count else "\n") + escape_json(_to_json(row)))
        count += 1
    write_text(
        f'\n], "missing": {escape_json(_to_json(list(missing_data_sentences)))}}}\n'
        if missing_data_sentences
        else "\n]}\n"
    )
    return count


def write_json_document(document: Mapping[str, object]) -> None:
    """Write one JSON document with the given top-level fields to standard output."""
    text = json.dumps({"schema": SCHEMA, **document}, ensure_ascii=False, indent=1)
    print(escape_json(text), file=unguarded_stream(sys.stdout))


def write_varying_rows(output_format: str, rows: Sequence[Row]) -> int:
    """Write rows with varying keys to standard output as json, jsonl or csv, and return their number."""
    return write_rows(output_format, rows, list(dict.fromkeys(key for row in rows for key in row)))


def write_rows(
    output_format: str, rows: Iterable[Row], columns: Sequence[str], missing_data_sentences: Sequence[str] = ()
) -> int:
    """Write rows to standard output in a form of `jobs.report.output_formats`, and return their number.

    The output is flushed, so that it comes before later lines of standard error if both go to one pipe or file.

    Args:
        columns: columns of a table and of CSV.
        missing_data_sentences: sentences on what the answer lacks, for the JSON document; the job also prints them as
            warnings.
    """
    match output_format:
        case "json":
            count = write_json(rows, sys.stdout, missing_data_sentences)
        case "jsonl":
            count = write_jsonl(rows, sys.stdout)
        case "csv":
            count = write_csv(rows, columns, sys.stdout)
        case _:
            count = write_table(rows, columns, sys.stdout)
    sys.stdout.flush()
    return count
