"""A plan round-trips through its text."""

from __future__ import annotations

import datetime
import json

import pytest

from commitlake.pipelines.replay.errors import ReplayError
from commitlake.pipelines.replay.plan import (
    LogRange,
    QueueEnd,
    QueueMapping,
    ReplayPlan,
    Target,
    plan_from_json,
    plan_to_json,
)

PLAN = ReplayPlan(
    replay_id="R1",
    created_at=datetime.datetime(2026, 11, 17, 14, 0, tzinfo=datetime.UTC),
    condition="topic = 'Bestellungen äöü'",
    parts=((LogRange("broker-a", 0, 2**62), LogRange("broker-b", 5, 6)), (LogRange("broker-a", 7, 8),)),
    messages=10,
    bytes=1000,
    limit=3,
    target=Target("127.0.0.1:9876", None, QueueMapping.KEY, (QueueEnd("orders", "broker-a", 0, 17),)),
    batch_bytes=1 << 19,
    command="--topic orders",
    selection="topic = 'orders'",
    rate=0.5,
    speed=2.0,
    lag_limit=("billing", 10_000),
)


def test_a_plan_round_trips() -> None:
    assert plan_from_json(plan_to_json(PLAN)) == PLAN
    assert PLAN.messages_to_send == 3


def test_a_plan_of_another_version_is_refused_with_the_remedy() -> None:
    text = json.dumps(json.loads(plan_to_json(PLAN)) | {"version": 1})
    with pytest.raises(
        ReplayError, match=r"has version 1, but this version of CommitLake reads version 3\. Resume the replay with the"
    ):
        plan_from_json(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "[" * 100_000,
        '{"version": ' + "9" * 5000 + "}",
        "{}",
        "null",
        '{"version": 3}',
        plan_to_json(PLAN).replace("parts", "part"),
    ],
)
def test_a_damaged_plan_is_refused(text: str) -> None:
    with pytest.raises(ReplayError, match="cannot be read"):
        plan_from_json(text)


DIGITS = 10**400
QUEUES = [["orders", "broker-a", 0, 17]]


@pytest.mark.parametrize(
    "change",
    [
        {"version": True},
        {"replay_id": "R1\x02ORIGIN_TOPIC\x01x"},
        {"replay_id": ""},
        {"created_at": "9999-12-31T23:59:59-23:00"},
        {"condition": None},
        {"messages": DIGITS},
        {"limit": -1},
        {"limit": "3"},
        {"bytes": 1.5},
        {"batch_bytes": 0},
        {"batch_bytes": DIGITS},
        {"command": ["x"]},
        {"is_changed": "false"},
        {"selection": None},
        {"rate": -1},
        {"rate": True},
        {"rate": float("nan")},
        {"speed": DIGITS},
        {"speed": "2x"},
        {"lag_limit": ["billing"]},
        {"lag_limit": ["billing", -1]},
        {"lag_limit": "billing>1"},
        {"parts": []},
        {"parts": [[]]},
        {"parts": [[["broker-a", 0]]]},
        {"parts": [[["broker-a", 0, "9) OR (true"]]]},
        {"parts": [[["broker-a", -1, DIGITS]]]},
        {"parts": {"broker-a": 1}},
        {"target": {"name_servers": 1, "topic": None, "mapping": "key", "queues": QUEUES}},
        {"target": {"name_servers": "a:1", "topic": 7, "mapping": "key", "queues": QUEUES}},
        {"target": {"name_servers": "a:1", "topic": None, "mapping": "none", "queues": QUEUES}},
        {"target": {"name_servers": "a:1", "topic": None, "mapping": "key", "queues": []}},
        {"target": {"name_servers": "a:1", "topic": None, "mapping": "key", "queues": [["orders", "b", 2**31, 1]]}},
        {"target": {"name_servers": "a:1", "topic": None, "mapping": "key", "queues": [["orders", "b", 0, 2**63]]}},
        {"target": "a:1"},
    ],
)
def test_a_plan_with_invalid_changes_is_refused(change: dict[str, object]) -> None:
    text = json.dumps(json.loads(plan_to_json(PLAN)) | change)
    with pytest.raises(ReplayError, match=r"cannot be read: .*expected") as raised:
        plan_from_json(text)
    assert len(str(raised.value)) < 300
