r"""Dead letters as a file for other programs: CSV, JSON lines or Parquet.

The file appears complete or not at all, and only its owner and group may read it. Rows are in the order of the log and
are written while they are read.

Texts in CSV that a spreadsheet would run as a formula are prefixed with a quote.
Files may also be printed to a terminal. Control characters, and characters that reorder or hide text, are therefore
escaped: with JSON's own escapes in JSON lines, which stay exact, and as `\x1b` or similar in CSV. If raw texts are
requested, CSV is exact, too. Parquet always is.
"""

from __future__ import annotations

import base64
import csv
import io
import json
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable

from commitlake.connectors.atomic_files import open_atomic
from commitlake.connectors.lake.packs.pack_stores import PackStore
from commitlake.connectors.printable import escape_csv_formula, escape_json, escape_unprintable
from commitlake.pipelines.dead_letters.causes import cause_digest, cause_texts
from commitlake.pipelines.dead_letters.dead_letter_rows import (
    LetterBatch,
    failure_reason_sql,
    is_replayed_sql,
    read_letters,
)
from commitlake.pipelines.replay.origin_properties import original_topic_sql
from commitlake.schemas.errors import UsageError
from commitlake.schemas.layouts.rocketmq.topics import DLQ_PREFIX

_ROW_GROUP_BYTES = 32 << 20
_ROW_BYTES = 1000
"""Estimated size of a row without its body."""
_TIME_FORM = "%Y-%m-%dT%H:%M:%SZ"  # for milliseconds, %S includes the fraction
_TIME = pa.timestamp("ms", "UTC")
_TEXTS = pa.map_(pa.string(), pa.string())
_COLUMNS: tuple[tuple[str, pa.DataType], ...] = (
    ("group", pa.string()), ("origin_topic", pa.string()), ("tag", pa.string()), ("keys", pa.list_(pa.string())),
    ("attempts", pa.int32()), ("reason", pa.string()), ("is_replayed", pa.bool_()), ("cause", pa.string()),
    ("broker", pa.string()), ("physical_offset", pa.int64()), ("topic", pa.string()), ("queue_id", pa.int32()),
    ("queue_offset", pa.int64()), ("msg_id", pa.string()), ("unique_key", pa.string()),
    ("born_timestamp", _TIME), ("store_timestamp", _TIME), ("body_size", pa.int32()), ("properties", _TEXTS),
)  # fmt: skip
_STORED = (
    "topic", "tags", "keys", "reconsume_times", "broker", "physical_offset", "queue_id", "queue_offset", "msg_id",
    "unique_key", "born_timestamp", "store_timestamp", "properties",
)  # fmt: skip


Row = dict[str, Any]


class ExportFormat(StrEnum):
    """File format of an export of dead letters: CSV, JSON lines or Parquet."""

    CSV = "csv"
    JSONL = "jsonl"
    PARQUET = "parquet"


def export_letters(
    table: DeltaTable,
    where: str,
    packs: PackStore | None,
    path: Path,
    export_format: ExportFormat,
    *,
    with_bodies: bool,
    is_raw: bool = False,
) -> int:
    """Write dead letters to a file, and return their number.

    Args:
        where: the condition, from `dead_letter_rows.dead_letter_condition` or narrower.
        packs: the lake's bodies; None if neither shapes nor bodies are needed.
        path: the file; an existing one is replaced.
        with_bodies: true to include bodies: as text or base64, in Parquet as bytes.
        is_raw: true to write texts of a CSV file as they are.

    Raises:
        UsageError: if the file cannot be written.
    """
    columns = [
        *_STORED,
        f"{original_topic_sql(table)} AS origin",
        f"{failure_reason_sql()} AS reason",
        f"{is_replayed_sql()} AS replayed",
    ]
    count = 0
    try:
        with open_atomic(path) as file:
            writer = _WRITERS[export_format](file, with_bodies=with_bodies, is_raw=is_raw)
            for letters in read_letters(table, where, columns, packs, is_ordered=True):
                writer.write(_export_rows(letters, writer, with_bodies=with_bodies))
                count += letters.rows.num_rows
            writer.close()
    except OSError as error:
        if error.filename is None and error.errno is None:
            raise
        raise UsageError(f"{path} cannot be written: {error.strerror or error}") from None
    return count


def _export_rows(letters: LetterBatch, writer: _ExportWriter, *, with_bodies: bool) -> Iterator[Row]:
    """Yield one row of the export for each dead letter."""
    causes = [cause_digest(text) for text in cause_texts(letters).to_pylist()]
    rows = letters.rows
    for name in ("born_timestamp", "store_timestamp"):
        times = rows.column(name).cast(_TIME, safe=False)
        shown = pc.strftime(times, format=_TIME_FORM) if writer.has_times_as_text else times.cast(pa.int64())
        rows = rows.set_column(rows.schema.get_field_index(name), name, shown)
    for number, row in enumerate(rows.to_pylist()):
        body = letters.body(number)
        found = {name: row[name] for name in _STORED if name not in ("tags", "reconsume_times")}
        found |= {
            "group": row["topic"].removeprefix(DLQ_PREFIX),
            "origin_topic": row["origin"],
            "tag": row["tags"],
            "attempts": row["reconsume_times"],
            "reason": row["reason"],
            "is_replayed": bool(row["replayed"]),
            "cause": causes[number],
            "body_size": None if body.value is None else len(body.value),
        }
        if with_bodies:
            found |= {"body": body.value, "body_error": body.error}
        yield found


class _ExportWriter(Protocol):
    """Interface of a writer of exported rows to an open file."""

    has_times_as_text: bool

    def __init__(self, file: BinaryIO, *, with_bodies: bool, is_raw: bool) -> None: ...

    def write(self, rows: Iterable[Row]) -> None:
        """Write the given rows."""

    def close(self) -> None:
        """Write the remaining rows; the file stays open."""


class _JsonExportWriter:
    """Writes JSON lines."""

    has_times_as_text = True

    def __init__(self, file: BinaryIO, *, with_bodies: bool, is_raw: bool) -> None:  # noqa: ARG002
        self._file, self._names = file, _column_names(with_bodies=with_bodies)

    def write(self, rows: Iterable[Row]) -> None:
        """Write the given rows."""
        for row in rows:
            texts = _encode_body_as_text(row) | {"properties": dict(row["properties"] or ())}
            line = escape_json(json.dumps({name: texts[name] for name in self._names}, ensure_ascii=False))
            self._file.write(line.encode() + b"\n")

    def close(self) -> None:
        """Do nothing: each line was written at once."""


class _CsvExportWriter:
    """Writes CSV with a header; lists and maps become JSON."""

    has_times_as_text = True

    def __init__(self, file: BinaryIO, *, with_bodies: bool, is_raw: bool) -> None:
        self._is_raw = is_raw
        self._text = io.TextIOWrapper(file, "utf-8", errors="backslashreplace", newline="")
        self._names = _column_names(with_bodies=with_bodies)
        self._writer = csv.writer(self._text, lineterminator="\n")
        self._writer.writerow(self._names)

    def write(self, rows: Iterable[Row]) -> None:
        """Write the given rows."""
        for row in rows:
            texts = _encode_body_as_text(row) | {
                "keys": escape_json(json.dumps(row["keys"] or [], ensure_ascii=False)),
                "properties": escape_json(json.dumps(dict(row["properties"] or ()), ensure_ascii=False)),
            }
            self._writer.writerow([_escape_csv_field(texts[name], is_raw=self._is_raw) for name in self._names])

    def close(self) -> None:
        """Write the remaining rows."""
        # Otherwise the wrapper would close the file when it is collected; `open_atomic` still has to sync it.
        self._text.flush()
        self._text.detach()


class _ParquetExportWriter:
    """Writes Parquet, in row groups of bounded size."""

    has_times_as_text = False

    def __init__(self, file: BinaryIO, *, with_bodies: bool, is_raw: bool) -> None:  # noqa: ARG002
        more = (("body", pa.large_binary()), ("body_error", pa.string())) if with_bodies else ()
        self._schema = pa.schema([*_COLUMNS, *more])
        self._writer = pq.ParquetWriter(file, self._schema, compression="zstd")
        self._rows: list[Row] = []
        self._bytes = 0

    def write(self, rows: Iterable[Row]) -> None:
        """Write the given rows, or keep them for the next row group."""
        for row in rows:
            self._rows.append(row)
            self._bytes += _ROW_BYTES + len(row.get("body") or b"")
            if self._bytes > _ROW_GROUP_BYTES:
                self._flush()

    def close(self) -> None:
        """Write the remaining rows."""
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._rows:
            self._writer.write_table(pa.Table.from_pylist(self._rows, self._schema))
        self._rows, self._bytes = [], 0


_WRITERS: dict[ExportFormat, type[_ExportWriter]] = {
    ExportFormat.CSV: _CsvExportWriter,
    ExportFormat.JSONL: _JsonExportWriter,
    ExportFormat.PARQUET: _ParquetExportWriter,
}


def _column_names(*, with_bodies: bool) -> list[str]:
    """Return the column names of an export in a text format."""
    return [name for name, _ in _COLUMNS] + (["body", "body_base64", "body_error"] if with_bodies else [])


def _encode_body_as_text(row: Row) -> Row:
    """Return a row with its body as text if it is UTF-8, or else in base64."""
    body: bytes | None = row.get("body")
    if body is None:
        return row | {"body_base64": None}
    try:
        return row | {"body": body.decode(), "body_base64": None}
    except UnicodeDecodeError:
        return row | {"body": None, "body_base64": base64.b64encode(body).decode()}


def _escape_csv_field(value: object, *, is_raw: bool = False) -> object:
    """Return a CSV field that spreadsheets do not treat as a formula, and terminals not as a command."""
    if is_raw or not isinstance(value, str):
        return value
    return "\r\n".join(escape_unprintable(line) for line in escape_csv_formula(value).split("\r\n"))
