"""Ranges that an archive run could not read: rows of the tables `quarantine` and `gaps`, and their numbers for reports.

A damaged log may have as many such ranges as it has records. So tasks write the rows to files, and a report counts them
by reason and reads only the first rows of each reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.lake.lake import Lake, NoTableError
from commitlake.connectors.lake.manifest import ManifestRow, RefusalCounts
from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.lake.rows.small_table_files import write_plain_file
from commitlake.connectors.lake.sql import text_literal
from commitlake.connectors.reading.damage import CORRUPT_RECORD
from commitlake.schemas.layouts.rocketmq.scan import Fault
from commitlake.schemas.tables.archive_runs import GAPS, QUARANTINE
from commitlake.schemas.tables.columns import Columns

PART_ROWS = 1 << 15  # some 20 MiB, with 256 bytes of each range
_BYTES = ("first_bytes", "found")
TABLES = {"quarantine": QUARANTINE, "gaps": GAPS}
SAMPLE_ROWS = 3
"""Number of rows of a group that are read."""
_QUARANTINE = "quarantine"
_GAPS = "gaps"
_MAX_REASONS = 64  # there are thirteen, but a damaged table may have any


@dataclass
class RefusalWriter:
    """Writer of one task's `quarantine` and `gaps` rows, which describe log ranges that could not be read.

    Attributes:
        lake: the lake with the two tables.
        name: prefix of the names of the task's files.
        run_id: written to the rows.
        parser_version: written to the rows.
        hides_bytes: True to leave the bytes of damaged ranges out, because messages are masked.
        counts: numbers so far, by broker.
        first: description of the first one.
    """

    lake: Lake
    name: str
    run_id: str
    parser_version: str
    hides_bytes: bool = False
    counts: dict[str, RefusalCounts] = field(default_factory=dict)
    first: str = ""
    _waiting: dict[str, list[pa.Table]] = field(default_factory=lambda: {table: [] for table in TABLES})
    _files: int = 0

    def add_batch(self, batch: pa.RecordBatch) -> Iterator[ManifestRow]:
        """Add the rows of a batch that describe unreadable ranges. Yields a manifest row for each file that was filled.

        Args:
            batch: batch with `broker` and `_corrupt_record`.
        """
        marks = batch.column(CORRUPT_RECORD)
        if marks.null_count == len(marks):
            return
        is_message = pc.is_valid(batch.column("size"))
        columns = {"broker": _decode_dictionary(batch.column("broker")), "mark": marks, "is_message": is_message}
        rows = pa.table(columns).filter(pc.is_valid(marks))
        fields = rows.column("mark").combine_chunks().flatten()
        names = [part.name for part in marks.type]
        values = {"broker": rows.column("broker"), **dict(zip(names, fields, strict=True))}
        values["start_offset"], values["end_offset"] = values.pop("start"), values.pop("end")
        for name in ("run_id", "parser_version"):
            values[name] = pa.repeat(getattr(self, name), rows.num_rows)
        # These columns show bytes of the log, in which the masks have not been applied.
        if self.hides_bytes:
            values |= {name: pa.nulls(rows.num_rows, values[name].type) for name in _BYTES}
        self.first = self.first or _describe_first_range(values)
        is_gap = pc.equal(values["reason"], str(Fault.MISSING_SEGMENT))
        self._count_refused(rows.column("broker"), rows.column("is_message"), is_gap)
        for table, wanted in (("gaps", is_gap), ("quarantine", pc.invert(is_gap))):
            yield from self._buffer_rows(table, _columns_to_table(values, TABLES[table]).filter(wanted))

    def finish(self) -> Iterator[ManifestRow]:
        """Write the remaining rows to files, and yield a manifest row for each file."""
        for table in TABLES:
            yield from self._write_rows(table)

    def _count_refused(self, brokers: pa.ChunkedArray, is_message: pa.ChunkedArray, is_gap: pa.ChunkedArray) -> None:
        counted = pa.table({"broker": brokers, "marked": is_message, "missing": is_gap})
        for group in counted.group_by(["broker", "marked", "missing"]).aggregate([([], "count_all")]).to_pylist():
            count = group["count_all"]
            if group["missing"]:
                more = RefusalCounts(missing_ranges=count)
            elif group["marked"]:
                more = RefusalCounts(marked_rows=count)
            else:
                more = RefusalCounts(bad_ranges=count)
            self.counts[group["broker"]] = self.counts.get(group["broker"], RefusalCounts()) + more

    def _buffer_rows(self, table: str, rows: pa.Table) -> Iterator[ManifestRow]:
        if rows.num_rows:
            self._waiting[table].append(rows)
        if sum(part.num_rows for part in self._waiting[table]) >= PART_ROWS:
            yield from self._write_rows(table)

    def _write_rows(self, table: str) -> Iterator[ManifestRow]:
        if not self._waiting[table]:
            return
        rows = pa.concat_tables(self._waiting[table])
        self._waiting[table] = []
        file = write_plain_file(rows, self.lake, table, f"{self.name}-{self._files:03d}.zstd.parquet")
        self._files += 1
        yield ManifestRow.from_data_file(file, table)


def _decode_dictionary(column: pa.Array) -> pa.Array:
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _columns_to_table(values: dict[str, pa.ChunkedArray | pa.Array], schema: Columns) -> pa.Table:
    target = arrow_schema(schema)
    return pa.table([values[name] for name in target.names], target.names).cast(target)


def _describe_first_range(values: dict[str, pa.ChunkedArray | pa.Array]) -> str:
    first = {name: values[name][0].as_py() for name in ("broker", "segment", "start_offset", "end_offset", "reason")}
    return "{broker}, {segment}, physical offsets {start_offset} to {end_offset}: {reason}".format(**first) + (
        f", expected {values['expected'][0].as_py()}, found {values['found'][0].as_py()}"
    )


@dataclass(frozen=True, slots=True)
class RefusedRangeGroup:
    """Rows of `quarantine` or `gaps` that have the same reason.

    Attributes:
        table: `quarantine` or `gaps`.
        reason: Value of the column in `quarantine`; empty for `gaps`.
        count: Number of rows.
        bytes: Total size of the ranges.
        first: The first rows of the table, by broker and offset.
    """

    table: str
    reason: str
    count: int
    bytes: int
    first: Sequence[Mapping[str, Any]]


def read_refused_ranges(lake: Lake, run_ids: Sequence[str]) -> list[RefusedRangeGroup]:
    """Return the ranges that a run could not read, in groups, the largest first.

    Args:
        run_ids: Ids of the commits of a finished run.
    """
    return [
        *_read_groups(lake, _QUARANTINE, run_ids, "reason"),
        *_read_groups(lake, _GAPS, run_ids, "''"),
    ]


def _read_groups(lake: Lake, table: str, run_ids: Sequence[str], reason: str) -> list[RefusedRangeGroup]:
    try:
        opened = lake.table(table)
    except NoTableError:
        return []
    of_run = f"run_id IN ({', '.join(map(text_literal, run_ids))})"
    counted = run_sql(
        opened,
        table,
        f"SELECT {reason} AS reason, count(*) AS count, sum(end_offset - start_offset) AS bytes FROM {table} "
        f"WHERE {of_run} GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT {_MAX_REASONS}",
    ).read_all()
    found = []
    for row in counted.to_pylist():
        of_reason = "" if table == _GAPS else f" AND {_reason_condition(row['reason'])}"
        first = run_sql(
            opened,
            table,
            f"SELECT * FROM {table} WHERE {of_run}{of_reason} ORDER BY broker, start_offset LIMIT {SAMPLE_ROWS}",
        ).read_all()
        found.append(RefusedRangeGroup(table, row["reason"] or "", row["count"], row["bytes"] or 0, first.to_pylist()))
    return found


def _reason_condition(reason: str | None) -> str:
    return "reason IS NULL" if reason is None else f"reason = {text_literal(reason)}"
