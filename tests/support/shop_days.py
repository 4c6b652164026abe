"""A shop's broker on one day: varying traffic, a gap, damage, and consumer groups in several states.

Groups: `mailer` keeps up, `shipping` is too slow, `billing` has not moved on orders since noon, `reports` wants two of
three orders by their tags and is half an hour behind, and a group with a hostile name has no client.
"""

from __future__ import annotations

import datetime
import math
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.lake.committer import append_rows
from commitlake.pipelines.snapshot.progress import (
    GroupTopic,
    Member,
    OffsetKind,
    OffsetOwner,
    SnapshotSource,
    StoreSnapshot,
    Subscription,
)
from commitlake.pipelines.snapshot.table_append import append_snapshot
from commitlake.schemas.layouts.rocketmq.commitlog import NewMessage
from commitlake.schemas.tables.archive_runs import GAPS, QUARANTINE
from tests.support.lakes import MIDNIGHT_MS, GrowingLake, rows_of
from tests.support.logs import new_message

MIDNIGHT = datetime.datetime(2023, 11, 15, tzinfo=datetime.UTC)
MINUTE = datetime.timedelta(minutes=1)
HOSTILE_TOPIC = "<script>alert(1)</script>"
HOSTILE_GROUP = "<b>\u202egroup"
HOURS = 16
GAP_HOURS = (5, 6)
DAMAGED_AT = 11 * 60
STALLED_AT = 12 * 60
SILENT_HOURS = (8, 9)
QUEUES = 2


def shop_day(folder: Path, *, messages_per_minute: float = 1.0, snapshot_minutes: int = 60) -> GrowingLake:
    """Return a store and its lake.

    Args:
        folder: Folder of store and lake.
        messages_per_minute: Average rate of the largest topic.
        snapshot_minutes: Interval of the offset snapshots; there are none in `SILENT_HOURS`.
    """
    growing = GrowingLake(folder)
    growing.write(_messages(messages_per_minute), lambda message: 3 + message.born_timestamp % 97**2 % 700)
    growing.archive()
    rows = sorted(rows_of(growing.lake.uri("messages")), key=lambda row: int(row["physical_offset"]))
    _add_stretch(growing, "gaps", GAP_HOURS[1] * 60, rows)
    _add_stretch(growing, "quarantine", DAMAGED_AT, rows)
    ends: dict[tuple[str, int], list[datetime.datetime]] = defaultdict(list)
    for row in rows:
        ends[row["topic"], row["queue_id"]].append(row["store_timestamp"])
    for minute in range(0, HOURS * 60 + 1, snapshot_minutes):
        if minute // 60 not in SILENT_HOURS:
            append_snapshot(growing.lake, _progress(minute, ends))
    return growing


def _messages(rate: float) -> Iterator[NewMessage]:
    due: dict[str, float] = defaultdict(float)
    number = 0
    for minute in range(HOURS * 60):
        if GAP_HOURS[0] <= minute / 60 < GAP_HOURS[1]:
            continue
        swell = 1 + 0.7 * math.sin(minute / 150)
        peak = 6 if 14 * 60 <= minute < 14 * 60 + 6 else 1
        shares = {
            "orders": swell * peak, "payments": 0.5 * swell, "shipments": 0.25, "%RETRY%billing": 0.08,
            "%DLQ%billing": 0.02, HOSTILE_TOPIC: 0.05,
        }  # fmt: skip
        for topic, share in shares.items():
            due[topic] += share * rate
            while due[topic] >= 1:
                due[topic] -= 1
                born_ms = MIDNIGHT_MS + minute * 60_000 + number % 50 * 1000
                yield new_message(number, topic=topic, queue_id=number % QUEUES, born_timestamp=born_ms)
                number += 1


def _add_stretch(growing: GrowingLake, name: str, minute: int, rows: list[dict[str, Any]]) -> None:
    """Record that the part of the log just before a minute is missing or damaged."""
    moment = MIDNIGHT + minute * MINUTE
    offset = min(row["physical_offset"] for row in rows if row["store_timestamp"] >= moment)
    schema = {"gaps": GAPS, "quarantine": QUARANTINE}[name]
    row = {"broker": "broker-a", "segment": "s", "start_offset": offset - 10, "end_offset": offset}
    added = pa.Table.from_pylist([row], schema=arrow_schema(schema))
    append_rows(growing.lake, name, added)


def _progress(minute: int, ends: dict[tuple[str, int], list[datetime.datetime]]) -> StoreSnapshot:
    now = MIDNIGHT + minute * MINUTE
    behind = {  # minutes of a group's lag
        ("mailer", "payments"): 0,
        ("reports", "orders"): 30,
        ("shipping", "shipments"): minute // 4,
        ("billing", "orders"): max(0, minute - STALLED_AT),
        ("billing", "payments"): 0,
        ("billing", "%RETRY%billing"): 0,
        (HOSTILE_GROUP, HOSTILE_TOPIC): max(0, minute - 4 * 60),
    }
    offsets = {}
    for (group, topic), minutes in behind.items():
        until = now - minutes * MINUTE
        for queue_id in range(QUEUES):
            stored = ends.get((topic, queue_id), [])
            offsets[OffsetOwner(OffsetKind.GROUP, group, topic, queue_id)] = sum(time <= until for time in stored)
    member = (Member("10.0.0.9@1", "10.0.0.9:4711", "JAVA", 473, "V5_5_0"),)
    subscriptions = {
        GroupTopic(group, topic): Subscription(
            "TAG", "Tag0 || Tag1" if group == "reports" else "*", 0, members=() if group == HOSTILE_GROUP else member
        )
        for group, topic in behind
    }
    return StoreSnapshot(
        broker="broker-a",
        source=SnapshotSource.BROKER,
        taken={OffsetKind.GROUP: now},
        offsets=offsets,
        subscribed_as_of=now,
        subscriptions=subscriptions,
        log_end=0,
        log_start=0,
    )
