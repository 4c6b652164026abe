"""`edges` has a step for each copy of a message and each trace entry, for any sequence of archive runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from commitlake.connectors.lake.lake import Lake
from commitlake.pipelines.edges import incremental_linking
from commitlake.pipelines.edges.progress import followed_messages_version
from commitlake.pipelines.edges.row_lookup import read_rows_at_positions
from commitlake.pipelines.edges.table_update import catch_up_edges, follow_edges
from commitlake.pipelines.message_keys.key_files import key_hashes
from commitlake.schemas.layouts.rocketmq.commitlog import NewMessage
from commitlake.schemas.tables.edges import EDGES
from tests.support.lakes import GrowingLake, archive_store
from tests.support.message_families import (
    Family,
    begun,
    committed,
    dead,
    decided,
    delayed,
    delivered,
    ended,
    failed,
    given_up,
    half,
    op,
    pub,
    record,
    timed,
    timer_delivered,
    trace,
)

Done = Callable[..., None]


@pytest.fixture
def family(tmp_path: Path) -> Family:
    """A store without records."""
    return Family(GrowingLake(tmp_path), [])


@pytest.fixture(
    params=[
        pytest.param(
            "one run", marks=pytest.mark.long("two runs link the same records, and steps left open, each time")
        ),
        "two runs",
        pytest.param("a run for each record", marks=pytest.mark.long("two runs split the records each time")),
    ]
)
def done(request: pytest.FixtureRequest, family: Family) -> Done:
    """A function that stores records, and lets the lake and its edges follow once, twice, or after each."""

    def follow(*messages: NewMessage) -> None:
        size = {"one run": len(messages), "two runs": -(-len(messages) // 2)}.get(request.param, 1)
        for start in range(0, len(messages), size):
            family.write(*messages[start : start + size])
            family.growing.archive()
            follow_edges(family.growing.lake)

    return follow


def test_a_delayed_message_has_a_step_to_its_copy(family: Family, done: Done) -> None:
    done(
        delayed("U1", 0),  # 0
        delayed("U2", 1),  # 1: still waits
        delivered("U1", 10),  # 2
    )
    assert family.steps() == [("delayed", 0, 2, None, None), ("delayed", 1, None, "not_yet", None)]


def test_a_message_that_was_sent_twice_is_delivered_in_order(family: Family, done: Done) -> None:
    done(delayed("U1", 0), delayed("U1", 1), delivered("U1", 10), delivered("U1", 11))
    assert family.steps() == [("delayed", 0, 2, None, None), ("delayed", 1, 3, None, None)]


def test_a_delayed_message_may_be_delivered_twice(family: Family, done: Done) -> None:
    done(delayed("U1", 0), delivered("U1", 10), delivered("U1", 12))
    assert family.steps() == [("delayed", 0, 1, None, None), ("delayed", 0, 2, None, None)]


def test_a_timer_has_a_step_to_the_next_timer_and_to_the_copy(family: Family, done: Done) -> None:
    done(timed("U1", 0), timed("U1", 30, properties={"TIMER_ROLL_TIMES": 1}), timer_delivered("U1"))
    assert family.steps() == [("timer", 0, 1, None, None), ("timer", 1, 2, None, None)]


def test_a_cancelled_timer_has_a_cancelled_step(family: Family, done: Done) -> None:
    done(timed("U1", 0), timed("X", 1, properties={"TIMER_DEL_UNIQKEY": "orders_U1"}))
    assert family.steps() == [("timer", 0, 1, None, "cancelled")]


def test_failures_have_steps_between_retries_and_to_the_dead_letter(family: Family, done: Done) -> None:
    done(
        record("U1"),  # 0
        *failed("U1", 1, 0, 1),  # 1 waits, 2
        *failed("U1", 2, 0, 20),  # 3 waits, 4
        dead("U1", 3, 0, 40),  # 5
    )
    assert family.steps() == [
        ("dead", 4, 5, None, None),
        ("delayed", 1, 2, None, None),
        ("delayed", 3, 4, None, None),
        ("retried", 0, 1, None, None),
        ("retried", 2, 3, None, None),
    ]


def test_failures_of_two_groups_have_separate_steps(family: Family, done: Done) -> None:
    done(record("U1"), *failed("U1", 1, 0, 1, "a"), *failed("U1", 1, 0, 2, "b"), dead("U1", 2, 0, 30, "b"))
    assert family.steps() == [
        ("dead", 4, 5, None, None),
        ("delayed", 1, 2, None, None),
        ("delayed", 3, 4, None, None),
        ("retried", 0, 1, None, None),
        ("retried", 0, 3, None, None),
    ]


def sent_by_client(topic: str, attempt: int, seconds: float) -> list[NewMessage]:
    """Return the two records of a copy that a client sent itself, with a delay."""
    properties = {"RETRY_TOPIC": "orders", "RECONSUME_TIME": attempt}
    return [
        delayed("U1", seconds, topic=topic, reconsume_times=attempt, properties=properties),
        delivered("U1", seconds + 10, topic=topic, reconsume_times=attempt, properties=properties),
    ]


def test_a_dead_letter_that_a_client_sent_with_a_delay_has_steps_before_and_after_it_waits(
    family: Family, done: Done
) -> None:
    done(
        record("U1"),  # 0
        *sent_by_client("%DLQ%shop", 3, 20),  # 1 waits, 2
    )
    assert family.steps() == [("dead", 0, 1, None, None), ("delayed", 1, 2, None, None)]


def test_a_message_that_is_sent_again_does_not_change_the_steps_before(family: Family, done: Done) -> None:
    done(
        record("U1"),  # 0
        trace(pub("U1", None), seconds=1),  # 1
        *sent_by_client("%RETRY%shop", 1, 2),  # 2 waits, 3
        record("U1", seconds=30),  # 4: by an application, with the same unique key
        *sent_by_client("%RETRY%shop", 1, 31),  # 5 waits, 6: of the second one, because the group had copied the first
    )
    assert family.steps() == [
        ("delayed", 2, 3, None, None),
        ("delayed", 5, 6, None, None),
        ("produced", None, 0, None, "success"),
        ("retried", 0, 2, None, None),
        ("retried", 4, 5, None, None),
    ]


def test_timers_of_the_broker_itself_have_no_steps(family: Family, done: Done) -> None:
    revive = {"REAL_TOPIC": "rmq_sys_REVIVE_LOG_DefaultCluster", "UNIQ_KEY": "ck"}
    done(record("U1"), timed("ck", 1, properties=revive), record("ck", revive["REAL_TOPIC"], 61))
    assert not DeltaTable.is_deltatable(family.growing.lake.uri("edges")) or family.steps() == []


def test_transactions_end_by_their_op_records(family: Family, done: Done) -> None:
    first = 0
    done(
        half("T1"),  # 0
        half("T2", 1),  # 1
        half("T3", 2),  # 2: nobody has finished it
        committed("T1", first, 3),  # 3
        op([0, 1], 4),  # 4: two at once
    )
    assert family.steps() == [
        ("committed", 0, 3, None, "committed"),
        ("finished", 0, 4, None, "committed"),
        ("finished", 1, 4, None, "rolled_back"),
        ("finished", 2, None, "not_yet", None),
    ]


def test_half_messages_are_checked_and_given_up(family: Family, done: Done) -> None:
    done(half("T1"), half("T1", 6, 1), half("T1", 12, 2), given_up("T1", 18))
    assert family.steps() == [
        ("given_up", 2, 3, None, None),
        ("rechecked", 0, 1, None, None),
        ("rechecked", 1, 2, None, None),
    ]


def test_traces_give_steps_of_producer_and_consumers(family: Family, done: Done) -> None:
    done(
        record("U1"),  # 0
        trace(pub("U1", 0)),  # 1
        trace(begun("U1", "r1", seconds=1)),  # 2
        trace(ended("U1", "r1", 4, seconds=1), seconds=2),  # 3
        *failed("U1", 1, 0, 2),  # 4, 5
        trace(begun("U1", "r2", 1, seconds=13), ended("U1", "r2", seconds=13), seconds=14),  # 6
        trace(begun("U1", "r3", 0, seconds=13, group="other"), seconds=15),  # 7: has no end
    )
    assert family.steps() == [
        ("consumed", 0, None, None, "failed"),
        ("consumed", 0, None, None, None),
        ("consumed", 5, None, None, "success"),
        ("delayed", 4, 5, None, None),
        ("produced", None, 0, None, "success"),
        ("retried", 0, 4, None, None),
    ]


def test_a_trace_gives_the_decision_of_a_producer(family: Family, done: Done) -> None:
    done(half("T1"), trace(decided("T1", "ROLLBACK_MESSAGE", 1)), op([0], 2))
    assert family.steps() == [("ended", 0, None, None, "rolled_back"), ("finished", 0, 2, None, "rolled_back")]


def test_a_decision_stays_with_its_half_message_when_that_has_been_stored_again_since(
    family: Family, done: Done
) -> None:
    done(half("T1"), half("T1", 6, 1))
    done(trace(decided("T1", "UNKNOW", 1)), given_up("T1", 12))
    assert family.steps() == [
        ("ended", 0, None, None, "unknown"),
        ("given_up", 1, 3, None, None),
        ("rechecked", 0, 1, None, None),
    ]


def test_a_trace_stored_before_its_message_is_linked_later(family: Family, done: Done) -> None:
    done(trace(begun("U1", "r1", seconds=1), ended("U1", "r1", seconds=1)))
    assert family.steps() == [("consumed", None, None, "not_yet", "success")]
    done(record("U1", seconds=0))
    assert family.steps() == [("consumed", 1, None, None, "success")]


def test_a_trace_of_a_client_whose_clock_is_weeks_ahead_is_linked(family: Family, done: Done) -> None:
    done(record("U1"))
    ahead = 30 * 86_400
    done(trace(begun("U1", "r1", seconds=ahead), ended("U1", "r1", seconds=ahead), seconds=5))
    assert family.steps() == [("consumed", 0, None, None, "success")]


def test_a_trace_of_a_message_that_was_not_stored_is_a_refused_step(family: Family, done: Done) -> None:
    done(trace(pub("U1", None, succeeded=False)))
    assert family.steps() == [("produced", None, None, "refused", "failed")]


def test_failed_sends_are_not_read_again_while_another_broker_gets_no_messages(
    family: Family, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    family.write(record("U1"))
    family.growing.archive()
    busy, lake = GrowingLake(tmp_path / "busy"), family.growing.lake
    read: list[int] = []

    def counted(found: Lake, places: pa.Table) -> pa.Table:
        read.append(places.num_rows)
        return read_rows_at_positions(found, places)

    monkeypatch.setattr(incremental_linking, "read_rows_at_positions", counted)
    for number in range(4):
        seconds = 10 * number + 10
        busy.write([trace(pub(f"F{number}", None, seconds, succeeded=False), seconds=seconds)])
        archive_store(busy.store, lake, "broker-b")
        follow_edges(lake)
    assert sum(read) == 0
    assert family.steps() == [("produced", None, None, "refused", "failed")] * 4


def test_a_consumption_of_one_of_two_equal_messages_is_ambiguous(family: Family, done: Done) -> None:
    done(record("U1"), record("U1", seconds=1), trace(begun("U1", "r", 0, 9), ended("U1", "r", 0, 9), seconds=9))
    assert family.steps() == [("consumed", None, None, "ambiguous", "success")]


def test_without_traces_there_are_no_steps_of_clients(family: Family, done: Done) -> None:
    done(record("U1"), record("U2"), record(None))
    assert not DeltaTable.is_deltatable(family.growing.lake.uri("edges")) or family.steps() == []


def test_an_end_before_the_archive_has_that_reason(family: Family, done: Done) -> None:
    done(delivered("U1", 10), *failed("U2", 2, 99_999_999, 20))
    assert family.steps() == [
        ("delayed", 1, 2, None, None),
        ("delayed", None, 0, "before_archive", None),
        ("retried", None, 1, "before_archive", None),
    ]


def test_files_have_the_declared_columns_sorted_by_hash(family: Family, done: Done) -> None:
    done(half("T1"), committed("T1", 0, 1), op([0], 2))
    rows = DeltaTable(family.growing.lake.uri("edges")).to_pyarrow_table()
    assert set(rows.schema.names) == set(EDGES.names)
    nodes = rows.column("node").combine_chunks()
    assert rows.column("node_hash").to_pylist() == key_hashes(nodes).tolist()
    assert sorted(rows.column("side").to_pylist()) == ["both", "from", "to"]


def test_followed_versions_are_not_followed_again(family: Family) -> None:
    family.write(delayed("U1"))
    family.growing.archive()
    lake = family.growing.lake
    assert followed_messages_version(lake) == -1
    assert follow_edges(lake).rows == 1
    version = DeltaTable(lake.uri("edges")).version()
    assert catch_up_edges(lake).rows == follow_edges(lake).rows == 0
    assert DeltaTable(lake.uri("edges")).version() == version
    assert followed_messages_version(lake) == DeltaTable(lake.uri("messages")).version()


def test_another_follower_that_is_first_is_not_an_error(family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    family.write(delayed("U1"))
    family.growing.archive()
    lake = family.growing.lake
    monkeypatch.setattr("commitlake.pipelines.edges.table_update.commit_with_transaction", lambda *_, **__: False)
    assert follow_edges(lake).rows == 0
    assert catch_up_edges(lake, wait=lambda _: None).is_unfinished
    monkeypatch.undo()
    assert catch_up_edges(lake).rows == 1


def test_a_lake_without_messages_has_no_edges(tmp_path: Path) -> None:
    assert followed_messages_version(Lake(str(tmp_path))) == -1


def replayed(
    unique_key: str, origin: int, topic: str = "orders", seconds: float = 0, broker: str = "broker-a"
) -> NewMessage:
    """Return a message that a replay has sent."""
    stamps = {
        "REPLAY_ID": "r-1",
        "ORIGIN_BROKER": broker,
        "ORIGIN_PHYSICAL_OFFSET": origin,
        "ORIGIN_TOPIC": topic,
    }
    return record(unique_key, seconds=seconds, properties=stamps)


def test_a_replayed_message_has_a_step_from_its_origin(family: Family, done: Done) -> None:
    first = record("U1")
    size = 4096  # no record begins there
    done(
        first,  # 0
        record("U2", "%DLQ%other", 1, reconsume_times=1),  # 1: the record before it was never archived
        replayed("N1", 0, seconds=2),  # 2: with a key of its own
        replayed("U1", 0, seconds=3),  # 3: with the key of its origin
        replayed("N2", size, seconds=4, broker="broker-z"),  # 4: of a broker that the lake does not have
    )
    steps = [step for step in family.steps() if step[0] != "dead"]
    assert steps == [
        ("replayed", 0, 2, None, None),
        ("replayed", 0, 3, None, None),
        ("replayed", None, 4, "not_yet", None),
    ]


def test_a_dead_letter_that_was_sent_again_has_a_redriven_step(family: Family, done: Done) -> None:
    done(record("U1"), dead("U1", 1, 0, 1))
    place = family.places[1]
    done(replayed("U1", place, "%DLQ%shop", 2))
    assert family.steps() == [("dead", 0, 1, None, None), ("redriven", 1, 2, None, None)]
    assert {
        row["replay_id"] for row in DeltaTable(family.growing.lake.uri("edges")).to_pyarrow_table().to_pylist()
    } == {
        None,
        "r-1",
    }


def test_copies_of_a_replayed_message_are_not_replays(family: Family, done: Done) -> None:
    done(record("U1"))
    sent = replayed("N1", 0, seconds=1)
    stamps = dict(sent.properties)
    copies = failed("N1", 1, 0, 2)
    stamped = [
        record(
            "N1",
            copy.topic,
            2 + number,
            queue_id=copy.queue_id,
            reconsume_times=1,
            properties={**stamps, **dict(copy.properties)},
        )
        for number, copy in enumerate(copies)
    ]
    done(sent, *stamped)
    assert [step[0] for step in family.steps()] == ["delayed", "replayed", "retried"]
