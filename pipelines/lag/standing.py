"""Time since which a group has not moved in a queue although messages wait for it."""

from __future__ import annotations

import datetime

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.lake.snapshot_tables import OFFSETS, open_snapshots
from commitlake.connectors.lake.sql import text_literal, timestamp_literal
from commitlake.pipelines.lag.measure import Lag
from commitlake.pipelines.snapshot.progress import OffsetKind
from commitlake.schemas.layouts.rocketmq.offset_keys import BROADCAST_SUFFIX


def standing_since(lake: Lake, row: Lag) -> datetime.datetime | None:
    """Return the time since which a group has not moved; None if no message waits for it.

    This is the time of the first snapshot that has the group's offset, or the store time of the first waiting message
    if that is later, or if the group has no offset.

    Args:
        row: The group's lag in the queue.

    Raises:
        LakeError: There is no lake.
        QueryError: The table cannot be read.
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
