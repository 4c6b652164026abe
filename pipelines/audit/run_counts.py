"""Counts that archive runs recorded of their messages in `profiles`, and runs without such counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.arrays_without_pandas import rows_to_dicts
from commitlake.connectors.lake.delta_log.versions import AddedFile
from commitlake.connectors.lake.rows.table_rows import TableRows
from commitlake.pipelines.audit.audited_ranges import AuditSpan, LogSpan
from commitlake.pipelines.audit.counts_by_window import SCHEMA, merge_windows
from commitlake.pipelines.audit.message_rows import times_within_span

COLUMNS = pa.schema([*SCHEMA, pa.field("run_id", pa.string())])
"""Columns of `profiles`."""
RUN_COLUMNS = pa.schema(
    [pa.field("sequence", pa.int64()), pa.field("run_id", pa.string()), pa.field("messages", pa.int64())]
)
"""Columns of `archive_runs`."""
TAKEN = pa.schema(
    [
        pa.field("run_id", pa.string()),
        pa.field("broker", pa.string()),
        pa.field("first_physical_offset", pa.int64()),
        pa.field("last_physical_offset", pa.int64()),
    ]
)
_RUN = ["run_id", "broker"]


@dataclass(frozen=True)
class CountedLogPart:
    """Log ranges for which archive runs recorded message counts.

    Attributes:
        runs: number of runs without a profile of their messages.
        stretches: ranges of the brokers' logs of the other runs; None for all.
    """

    runs: int
    stretches: Sequence[LogSpan] | None


@dataclass(frozen=True)
class RunProfiles:
    """Reader of the message counts that archive runs recorded in `profiles`; picklable.

    Attributes:
        table: the table with `COLUMNS`.
        later: ids of later runs, which are left out.
    """

    table: TableRows
    later: tuple[str, ...]

    def _drop_later_runs(self, rows: pa.Table) -> pa.Table:
        is_later = pc.is_in(rows.column("run_id"), value_set=pa.array(self.later, pa.string()))
        return rows.filter(pc.invert(is_later)) if self.later else rows

    def read_windows(self, span: AuditSpan, file: AddedFile) -> pa.Table:
        """Return the message counts in a data file of `profiles`, as a table of `AUDIT`."""
        parts = []
        for rows in self.table.read_file(file):
            kept = self._drop_later_runs(rows)
            if (span.first, span.last) != (None, None):
                kept = kept.filter(times_within_span(span, kept.column("window_start")))
            parts.append(kept.select(SCHEMA.names))
        return merge_windows(parts)

    def read_run_extents(self, files: Sequence[AddedFile]) -> pa.Table:
        """Return the first and last physical offset of each run and broker in data files."""
        parts = (rows for file in files for rows in self.table.read_file(file))
        return _merge_run_extents([self._drop_later_runs(rows).select(TAKEN.names) for rows in parts])


def _merge_run_extents(tables: Sequence[pa.Table]) -> pa.Table:
    if not tables:
        return TAKEN.empty_table()
    extremes = [("first_physical_offset", "min"), ("last_physical_offset", "max")]
    grouped = pa.concat_tables(tables).group_by(_RUN, use_threads=False).aggregate(extremes)
    names = [*_RUN, *(f"{name}_{function}" for name, function in extremes)]
    return grouped.select(names).rename_columns(TAKEN.names)


def find_counted_part(
    runs: pa.Table, run_extents: Sequence[pa.Table], last_sequence: int, *, has_expired: bool
) -> CountedLogPart | None:
    """Return the log ranges for which archive runs recorded message counts; None if there are none.

    Args:
        runs: rows of `archive_runs`, with `RUN_COLUMNS`.
        run_extents: results of `RunProfiles.read_run_extents`.
        last_sequence: sequence of the newest run that counts.
        has_expired: True if rows of `profiles` or `archive_runs` may have expired.

    Returns:
        None if no run with messages has counts.
    """
    ranges = _merge_run_extents(run_extents)
    took = pc.and_(pc.less_equal(runs.column("sequence"), last_sequence), pc.greater(runs.column("messages"), 0))
    runs = runs.filter(took)
    profiled = pc.unique(ranges.column("run_id"))
    uncounted = runs.filter(pc.invert(pc.is_in(runs.column("run_id"), value_set=profiled)))
    if uncounted.num_rows and not len(profiled):
        return None
    if not uncounted.num_rows and not has_expired:
        return CountedLogPart(0, None)
    return CountedLogPart(uncounted.num_rows, _ranges_of_counted_runs(runs, uncounted, ranges))


def _ranges_of_counted_runs(runs: pa.Table, uncounted_runs: pa.Table, ranges: pa.Table) -> list[LogSpan]:
    """Return the log ranges that were archived by runs with recorded message counts.

    Neighbouring ranges are joined, so that there are few.

    Between two runs without a profile, all of each log is counted, so that there are few ranges however many runs there
    are. A run without a sequence is older than all others.
    """
    place = pc.index_in(ranges.column("run_id"), value_set=runs.column("run_id").combine_chunks())
    sequences = runs.column("sequence").take(place).fill_null(0).to_numpy()
    number = np.searchsorted(np.sort(uncounted_runs.column("sequence").to_numpy()), sequences, side="right")
    grouped = (
        ranges.append_column("stretch", pa.array(number.astype(np.int64)))
        .group_by(["broker", "stretch"], use_threads=False)
        .aggregate([("first_physical_offset", "min"), ("last_physical_offset", "max")])
    )
    return [
        LogSpan(row["broker"], row["first_physical_offset_min"], row["last_physical_offset_max"] + 1)
        for row in rows_to_dicts(grouped)
    ]
