"""A plan that is written down is the plan that is read."""

from __future__ import annotations

import datetime
import json

import pytest

from commitlake.pipelines.replay.errors import ReplayError
from commitlake.pipelines.replay.plan import LogRange, QueueEnd, QueueMapping, ReplayPlan, Target

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
)


def test_a_plan_survives_its_text() -> None:
    assert ReplayPlan.from_json(PLAN.to_json()) == PLAN
    assert PLAN.wanted == 3


def test_a_plan_of_another_version_is_refused_with_what_to_do() -> None:
    text = json.dumps(json.loads(PLAN.to_json()) | {"version": 2})
    with pytest.raises(ReplayError, match="of version 2, and this program reads version 1: resume the replay with the"):
        ReplayPlan.from_json(text)


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", '{"version": 1}', PLAN.to_json().replace("parts", "part")])
def test_a_damaged_plan_is_refused(text: str) -> None:
    with pytest.raises(ReplayError, match="cannot be read"):
        ReplayPlan.from_json(text)
