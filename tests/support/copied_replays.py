"""Replays whose messages were copied into the lake."""

from __future__ import annotations

import datetime

import pyarrow as pa

from commitlake.connectors.lake.committer import append_rows
from commitlake.connectors.lake.lake import Lake
from commitlake.pipelines.replay.ledger import add_replay_event
from commitlake.pipelines.replay.plan import LogRange, QueueEnd, QueueMapping, ReplayPlan, Target
from commitlake.pipelines.replay.planned_messages import SCHEMA
from commitlake.schemas.tables.replays import ReplayEvent

COPIES = 3
"""Number of messages of each replay."""


def add_copies(lake: Lake, replay_id: str) -> None:
    """Add the copies of a replay, as one data file."""
    rows = [
        {"replay_id": replay_id, "is_changed": True, "broker": "broker-a", "physical_offset": number, "body": b"text"}
        for number in range(COPIES)
    ]
    append_rows(lake, "replay_rows", pa.Table.from_pylist(rows, SCHEMA))


def add_copied_replay(lake: Lake, replay_id: str, *events: ReplayEvent) -> None:
    """Add a replay that has copied its messages, and its events."""
    target = Target("127.0.0.1:9876", "again", QueueMapping.KEY, (QueueEnd("again", "broker-a", 0, 0),))
    parts = ((LogRange("broker-a", 0, COPIES),),)
    plan = ReplayPlan(
        replay_id, datetime.datetime.now(datetime.UTC), "true", parts, COPIES, 1, 0, target, 1, is_changed=True
    )
    add_copies(lake, replay_id)
    add_replay_event(lake, replay_id, ReplayEvent.PLANNED, plan=plan)
    for event in events:
        add_replay_event(lake, replay_id, event)
