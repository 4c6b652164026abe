"""Lag summed by group, with the worst group first, and the time since which a group has not moved."""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.lake.snapshot_tables import OFFSETS, open_snapshots
from commitlake.connectors.lake.sql import text_literal, timestamp_literal
from commitlake.pipelines.lag.group_lag import LagRow
from commitlake.pipelines.lag.verdicts import FigureBounds, LagVerdict
from commitlake.pipelines.snapshot.progress import OffsetKind
from commitlake.schemas.layouts.rocketmq.topics import BROADCAST_SUFFIX

GROUP_KINDS = frozenset({"group", "retry"})
"""Kinds of rows that belong to a consumer group."""


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """Lag of a consumer group, summed over its topics and queues.

    Attributes:
        group: Name of the group.
        rows: Rows of the group, the worst first.
    """

    group: str
    rows: Sequence[LagRow]

    @property
    def worst_row(self) -> LagRow:
        """The row with the worst verdict; among several, the one whose next message has waited longest."""
        return self.rows[0]

    @property
    def verdict(self) -> LagVerdict:
        """The worst verdict of all queues."""
        return self.worst_row.judged.verdict

    @property
    def messages_behind(self) -> FigureBounds:
        """Number of messages by which the group is behind, summed over all its queues."""
        return sum_of_bounds(row.messages for row in self.rows)

    @property
    def lost_messages(self) -> FigureBounds:
        """Number of messages that brokers deleted before the group consumed them."""
        return sum_of_bounds(row.lost for row in self.rows)

    @property
    def bytes_behind(self) -> FigureBounds:
        """Size in bytes of the messages by which the group is behind, summed over all its queues."""
        return sum_of_bounds(row.bytes for row in self.rows)

    @property
    def longest_wait_seconds(self) -> FigureBounds:
        """Longest time that a message has been waiting for the group."""
        highs = [row.seconds.high for row in self.rows]
        known = [high for high in highs if high is not None]
        low = max(row.seconds.low for row in self.rows)
        return FigureBounds(low, max(known) if len(known) == len(highs) else None)

    @property
    def troubled_topics(self) -> list[str]:
        """Topics in which the group has a verdict other than OK; all its topics if it has none."""
        ill = {row.topic for row in self.rows if row.judged.verdict is not LagVerdict.OK}
        return sorted(ill or {row.topic for row in self.rows})


def sum_of_bounds(figure_bounds: Iterable[FigureBounds]) -> FigureBounds:
    """Return the sum of numbers given by lower and upper bounds; it has no upper bound if one of them has none."""
    low, high = 0.0, 0.0
    is_bounded = True
    for figure in figure_bounds:
        low += figure.low
        high += figure.high or 0.0
        is_bounded = is_bounded and figure.high is not None
    return FigureBounds(low, high if is_bounded else None)


def group_row_times(rows: Sequence[LagRow]) -> list[datetime.datetime]:
    """Return the distinct times of those rows that are of consumer groups, oldest first.

    If there are no such rows, return those of all rows.

    What a broker holds back has other times: the broker writes them elsewhere.
    """
    return sorted({row.as_of for row in rows if row.kind in GROUP_KINDS} or {row.as_of for row in rows})


def sort_worst_first(rows: Iterable[LagRow]) -> list[LagRow]:
    """Sort rows by verdict, the worst first, then by waiting time."""
    return sorted(rows, key=lambda row: (-row.judged.verdict.severity_rank, -row.seconds.largest, row.topic))


def summarize_by_group(rows: Iterable[LagRow]) -> list[GroupSummary]:
    """Sum up rows of lag by consumer group, and return the worst group first."""
    found: dict[str, list[LagRow]] = defaultdict(list)
    for row in sort_worst_first(row for row in rows if row.kind in GROUP_KINDS):
        found[row.group].append(row)
    return [GroupSummary(group, group_rows) for group, group_rows in found.items()]


def find_stalled_since(lake: Lake, row: LagRow) -> datetime.datetime | None:
    """Return since when a group has consumed nothing in a queue; None if no message waits for it.

    This is the time of the first snapshot that has the group's offset, or the store time of the first waiting message
    if that is later, or if the group has no offset.

    Args:
        row: The group's lag in the queue.
    """
    table = open_snapshots(lake, OFFSETS)
    if table is None or row.next_time is None:
        return None
    names = f"{text_literal(row.group)}, {text_literal(row.group + BROADCAST_SUFFIX)}"
    sql = (
        f"SELECT max(as_of) AS moved FROM {OFFSETS} WHERE kind = {text_literal(OffsetKind.GROUP)} "
        f'AND broker = {text_literal(row.broker)} AND "group" IN ({names}) '
        f"AND topic = {text_literal(row.topic)} AND queue_id = {row.queue_id} "
        f"AND as_of <= {timestamp_literal(row.as_of)}"
    )
    moved: datetime.datetime | None = run_sql(table, OFFSETS, sql).read_all().column("moved")[0].as_py()
    return row.next_time if moved is None else max(moved, row.next_time)
