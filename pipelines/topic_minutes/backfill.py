"""Counts `topic_minutes` from `messages`, for lakes older than the table, and after damage.

The table itself shows which messages are counted already: the rows of each run contain the first and last physical
offset that the run took of each broker. Messages outside these ranges are read from `messages` and added in one commit.
The commit carries the version of `messages` as an application transaction: of two concurrent backfills only one
commits, and a killed one changes nothing.
"""

from __future__ import annotations

import secrets
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.lake.archive_commits import commits_after, newest_commit
from commitlake.connectors.lake.committer import commit_with_transaction
from commitlake.connectors.lake.delta_log.versions import AddedFile, files_of_table
from commitlake.connectors.lake.erasures import APPLICATION_ID as ERASURE
from commitlake.connectors.lake.erasures import newest_erasure_number
from commitlake.connectors.lake.follower_progress import last_finished_sequence
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.manifest import ManifestRow
from commitlake.connectors.lake.paths import LakeError
from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.lake.rows.table_rows import TableRows
from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.runtime.local_runner import HERE
from commitlake.connectors.runtime.runner import Runner, divide_tasks
from commitlake.pipelines.topic_minutes.minute_counts import COLUMNS, REPEATING, MinutesFiles
from commitlake.pipelines.topic_minutes.progress import APPLICATION_ID, BACKFILLED
from commitlake.schemas.errors import ConcurrentRunError
from commitlake.schemas.tables.messages import MESSAGES

_MAX_FILES = 8  # number of data files of `messages` per task
_MESSAGES = arrow_schema(MESSAGES)
Ranges = Mapping[str, Array]
"""For each broker a 2 x n array with the starts and ends of ranges of physical offsets, sorted and disjoint."""


@dataclass(frozen=True, slots=True)
class BackfillResult:
    """Numbers of messages and rows that a backfill has added.

    Attributes:
        messages: number of messages counted.
        rows: number of rows added to `topic_minutes`.
    """

    messages: int = 0
    rows: int = 0


@dataclass(frozen=True)
class _CountTasks:
    """Counts the messages of data files in tasks of a backfill; can be pickled."""

    lake: Lake
    run_id: str
    counted: Ranges = field(default_factory=dict)

    def count_messages_of_files(self, files: Sequence[AddedFile]) -> tuple[int, list[ManifestRow]]:
        """Count the messages that `topic_minutes` lacks; return their number and the files written."""
        minutes = MinutesFiles(self.lake, f"part-{self.run_id}-{secrets.token_hex(8)}", self.run_id)
        schema = pa.schema([_MESSAGES.field(name) for name in COLUMNS])
        table = TableRows(self.lake.uri("messages"), self.lake.s3, schema, REPEATING)
        messages = 0
        for rows in (rows for file in files for rows in table.read_file(file)):
            left = _uncounted_rows(rows, self.counted)
            if left.num_rows:
                minutes.add_messages(left)
                messages += left.num_rows
        return messages, [ManifestRow.from_data_file(file, "topic_minutes") for file in minutes.finish_files()]


def _read_newest_erasure(lake: Lake) -> int:
    """Return the number of the newest erasure that is applied to `topic_minutes`; 0 without the table."""
    return newest_erasure_number(lake.find("topic_minutes"))


def backfill_minutes(lake: Lake, runner: Runner = HERE, *, from_scratch: bool = False) -> BackfillResult:
    """Count the messages that are missing in `topic_minutes`, and add the rows.

    Args:
        runner: runs the tasks that read `messages` and write files.
        from_scratch: true to count all of `messages` and replace the rows of the table.

    Raises:
        ConcurrentRunError: if another backfill was first.
        LakeError: if a data file of `messages` cannot be read, or if nothing has been archived yet.
    """
    table = lake.table("messages")
    newest = newest_commit(lake, table)
    if newest is None:
        raise LakeError(f"nothing was archived into {lake.root} yet: run 'commitlake archive' first")
    snapshot = files_of_table(lake.uri("messages"), table)
    before = _followed_sequence(lake)
    counted = {} if from_scratch else _read_counted_ranges(lake)
    tasks = _CountTasks(lake, f"{BACKFILLED}{newest[1].sequence}", counted)
    groups = divide_tasks(snapshot.files, max(2 * runner.cores, -(-len(snapshot.files) // _MAX_FILES)))
    messages, written = 0, []
    for _, (count, rows) in runner.run(partial(_run_count_task, tasks), groups):
        messages += count
        written += rows
    if not written and not from_scratch:
        return BackfillResult()
    files = [row.data_file for row in written]
    # Always larger than the number before: an equal one would not show that another backfill has committed.
    step = (before, max(snapshot.version, (before or 0) + 1))
    # A repair may count rows as they were before an erasure, which it then repeats.
    erasures = _read_newest_erasure(lake), newest_erasure_number(table)
    numbers = {ERASURE: erasures} if from_scratch and erasures[0] != erasures[1] else {}
    if not commit_with_transaction(
        lake, "topic_minutes", files, APPLICATION_ID, step, replaces_all_files=from_scratch, other_transactions=numbers
    ):
        raise ConcurrentRunError(
            f"{lake.uri('topic_minutes')}: another backfill committed first; what this one computed was discarded. Run "
            "the command again"
        )
    return BackfillResult(messages, sum(row.rows for row in written))


def _run_count_task(tasks: _CountTasks, files: Sequence[AddedFile]) -> tuple[int, list[ManifestRow]]:
    return tasks.count_messages_of_files(files)


def _followed_sequence(lake: Lake) -> int | None:
    table = lake.find("topic_minutes")
    return None if table is None else table.transaction_version(APPLICATION_ID)


def _read_counted_ranges(lake: Lake) -> Ranges:
    """Return the log ranges whose messages `topic_minutes` counts, including commits that it has yet to follow."""
    found: dict[str, list[tuple[int, int]]] = defaultdict(list)
    # The commits are read first: any that follow in the meantime are in the table and count as well.
    for commit in commits_after(lake, last_finished_sequence(lake, "topic_minutes")):
        if commit.files.get("topic_minutes"):
            for broker, part in commit.ranges.items():
                found[broker].append((part.start, part.end))
    for row in _read_rows_of_runs(lake):
        found[row["broker"]].append((row["first"], row["last"] + 1))
    return {broker: _join_ranges(ranges) for broker, ranges in found.items()}


def _read_rows_of_runs(lake: Lake) -> Iterator[Mapping[str, Any]]:
    table = lake.find("topic_minutes")
    if table is None:
        return
    answer = run_sql(
        table,
        "topic_minutes",
        "SELECT broker, min(first_physical_offset) AS first, max(last_physical_offset) AS last "
        "FROM topic_minutes GROUP BY broker, run_id",
    )
    for batch in answer:
        yield from batch.to_pylist()


def _join_ranges(ranges: Iterable[tuple[int, int]]) -> Array:
    """Return ranges as an array in ascending order, with overlapping ones joined."""
    joined: list[list[int]] = []
    for begin, end in sorted(ranges):
        if joined and begin <= joined[-1][1]:
            joined[-1][1] = max(joined[-1][1], end)
        else:
            joined.append([begin, end])
    return np.array(joined, np.int64).T


def _uncounted_rows(rows: pa.Table, counted_ranges: Ranges) -> pa.Table:
    """Return the messages outside of the given log ranges, which are counted already."""
    if not counted_ranges:
        return rows
    brokers = rows.column("broker").combine_chunks()
    codes, names = brokers.indices.to_numpy(), brokers.dictionary.to_pylist()
    offsets = rows.column("physical_offset").to_numpy()
    left = np.ones(len(offsets), bool)
    for code, name in enumerate(names):
        if name in counted_ranges:
            begins, ends = counted_ranges[name]
            mine = np.flatnonzero(codes == code)
            places = np.searchsorted(begins, offsets[mine], side="right") - 1
            left[mine] = (places < 0) | (offsets[mine] >= ends[places])
    return rows if left.all() else rows.filter(pa.array(left))
