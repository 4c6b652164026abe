"""Replays of the same messages to the same target are reported, and refused while one has not finished."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from commitlake.connectors.lake.lake import Lake
from commitlake.pipelines.replay import other_replays
from commitlake.pipelines.replay.errors import ReplayError
from commitlake.pipelines.replay.ledger import add_replay_event, read_replay_state, read_replay_states
from commitlake.pipelines.replay.other_replays import check_no_unfinished_replay, find_other_replays, record_plan
from commitlake.pipelines.replay.plan import LogRange, QueueEnd, QueueMapping, ReplayPlan, Target
from commitlake.schemas.tables.replays import ReplayEvent
from tests.support.lakes import GrowingLake, shop_messages

HERE = "127.0.0.1:9876"


@pytest.fixture(scope="module")
def archived(tmp_path_factory: pytest.TempPathFactory) -> GrowingLake:
    """A lake of a hundred messages of five topics."""
    growing = GrowingLake(tmp_path_factory.mktemp("lake"))
    growing.write(shop_messages(100))
    growing.archive()
    return growing


@pytest.fixture
def lake(archived: GrowingLake, tmp_path: Path) -> Lake:
    """A copy of it."""
    return archived.copy_to(tmp_path / "copy").lake


def plan(name: str, selection: str, name_servers: str = HERE, topic: str = "again", end: int = 1 << 30) -> ReplayPlan:
    target = Target(name_servers, topic, QueueMapping.KEY, (QueueEnd(topic, "broker-a", 0, 0),))
    now = datetime.datetime.now(datetime.UTC)
    parts = ((LogRange("broker-a", 0, end),),)
    return ReplayPlan(name, now, selection, parts, 100, 1, 0, target, 1, selection=selection)


def shared(lake: Lake, mine: ReplayPlan) -> dict[str, int]:
    found = find_other_replays(lake, mine, lake.table("messages"))
    return {other.state.plan.replay_id: other.messages for other in found}


def test_the_messages_that_two_replays_share_are_counted(lake: Lake) -> None:
    add_replay_event(lake, "A", ReplayEvent.PLANNED, plan=plan("A", "topic = 'topic-01'"))
    assert shared(lake, plan("B", "topic IN ('topic-01', 'topic-02')")) == {"A": 20}
    assert shared(lake, plan("B", "topic = 'topic-01' AND queue_id = 2")) == {"A": 5}
    assert shared(lake, plan("B", "topic = 'topic-02'")) == {}
    assert shared(lake, plan("B", "topic = 'topic-01'", topic="elsewhere")) == {}
    assert shared(lake, plan("B", "topic = 'topic-01'", name_servers="10.0.0.1:9876")) == {}
    assert shared(lake, plan("B", "topic = 'topic-01'", name_servers=f"10.0.0.1:9876;{HERE}")) == {"A": 20}


@pytest.mark.parametrize("event", [ReplayEvent.STARTED, ReplayEvent.STOPPED, ReplayEvent.FAILED])
def test_a_replay_is_refused_while_another_has_not_finished(lake: Lake, event: ReplayEvent) -> None:
    add_replay_event(lake, "A", ReplayEvent.PLANNED, plan=plan("A", "true"))
    add_replay_event(lake, "A", event)
    found = find_other_replays(lake, plan("B", "true"), lake.table("messages"))
    with pytest.raises(ReplayError, match=rf"100 of these messages belong to the replay A, .* \({event}\)"):
        check_no_unfinished_replay(found)
    add_replay_event(lake, "A", ReplayEvent.FINISHED)
    found = find_other_replays(lake, plan("B", "true"), lake.table("messages"))
    assert [other.is_unfinished for other in found] == [False]
    check_no_unfinished_replay(found)


def test_the_newest_of_the_ended_replays_are_reported(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(other_replays, "_MAX_ENDED", 1)
    for name, event in (("A", ReplayEvent.FAILED), ("B", ReplayEvent.FINISHED), ("C", ReplayEvent.FINISHED)):
        add_replay_event(lake, name, ReplayEvent.PLANNED, plan=plan(name, "true"))
        add_replay_event(lake, name, event)
    assert list(shared(lake, plan("D", "true"))) == ["A", "C"]


def test_one_of_two_replays_planned_at_once_withdraws(lake: Lake) -> None:
    table = lake.table("messages")
    record_plan(lake, plan("A", "true"), table, [])
    with pytest.raises(ReplayError, match="belong to the replay A"):
        record_plan(lake, plan("B", "queue_id = 1"), table, [])
    assert {name: state.event for name, state in read_replay_states(lake).items()} == {
        "A": ReplayEvent.PLANNED,
        "B": ReplayEvent.WITHDRAWN,
    }
    assert "has not finished" in str(read_replay_state(lake, "B").detail)
    record_plan(
        lake, plan("C", "true"), table, find_other_replays(lake, plan("C", "true"), table)
    )  # A is known, and --again
