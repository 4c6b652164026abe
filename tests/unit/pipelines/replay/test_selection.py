"""Messages that a replay selects, with the real query engine."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from commitlake.connectors.lake.reader import run_sql
from commitlake.pipelines.lag.backlog_counting import Queue
from commitlake.pipelines.replay.errors import ReplayError
from commitlake.pipelines.replay.groups.not_consumed_messages import NotConsumed, QueueStart
from commitlake.pipelines.replay.selection import selection_condition
from commitlake.schemas.layouts.rocketmq.topics import HALF_TOPIC, ROCKSDB_HALF_TOPIC, ROCKSDB_OP_TOPIC, SCHEDULE_TOPIC
from commitlake.schemas.selection import ALL_MESSAGES, Selection
from tests.support.lakes import MIDNIGHT_MS, GrowingLake
from tests.support.logs import new_message

START = datetime.datetime.fromtimestamp(MIDNIGHT_MS / 1000, datetime.UTC)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> DeltaTable:
    """Messages of all kinds, the nth one stored n seconds after midnight."""
    growing = GrowingLake(Path(tmp_path_factory.mktemp("lake")))
    topics = ["orders", "payments", "%RETRY%billing", "%DLQ%billing", "%DLQ%mail", SCHEDULE_TOPIC, HALF_TOPIC, "orders"]
    growing.write(
        new_message(number, topic, born_timestamp=MIDNIGHT_MS + 1000 * number, properties=properties)
        for number, topic in enumerate(topics)
        for properties in [(("KEYS", f"k{number} all"), ("TAGS", f"t{number}"), ("UNIQ_KEY", f"U{number}"))]
    )
    growing.write([new_message(8, "orders", properties=(("REPLAY_ID", "R0"), ("KEYS", "k8")))])
    growing.archive()
    return DeltaTable(growing.lake.uri("messages"))


def chosen(table: DeltaTable, selection: Selection, **more: Any) -> list[str]:
    sql = f"SELECT keys[1] AS key FROM messages WHERE {selection_condition(selection, **more)} ORDER BY physical_offset"
    return [row["key"] for row in run_sql(table, "messages", sql).read_all().to_pylist()]


def starts(offsets: dict[tuple[str, int], int], topics: list[str] | None = None) -> NotConsumed:
    """Return the first messages of queues, and the topics of which all queues are chosen; by default, theirs."""
    names = [topic for topic, _ in offsets] if topics is None else topics
    queues = {Queue("broker-a", *place): QueueStart(offset) for place, offset in offsets.items()}
    return NotConsumed("billing", queues, {("broker-a", name) for name in names})


@pytest.mark.parametrize(
    ("selection", "more", "expected"),
    [
        (ALL_MESSAGES, {}, ["k0", "k1", "k7"]),
        (Selection(keys=["all"]), {}, ["k0", "k1", "k7"]),
        (ALL_MESSAGES, {"includes_replayed": True}, ["k0", "k1", "k7", "k8"]),
        (Selection(topics=["orders"]), {}, ["k0", "k7"]),
        (Selection(kinds=["retry"]), {}, ["k2"]),
        (Selection(topics=["orders", "%RETRY%billing"]), {}, ["k0", "k2", "k7"]),
        (Selection(keys=["k2", "k1", "all"], topics=["payments", "%DLQ%mail"]), {}, ["k1", "k4"]),
        (Selection(groups=["billing"]), {}, ["k3"]),
        (Selection(tags=["t0", "t1", "t2"]), {}, ["k0", "k1"]),
        (Selection(ids=["U7"]), {}, ["k7"]),
        (Selection(queue_ids=[3, 1]), {}, ["k1", "k7"]),
        (Selection(where="queue_id = 1 OR queue_id = 3 -- odd"), {}, ["k1", "k7"]),
        (Selection(start=START + datetime.timedelta(seconds=1)), {}, ["k1", "k7"]),
        (Selection(end=START + datetime.timedelta(seconds=1), is_by_birth=True), {}, ["k0"]),
        (ALL_MESSAGES, {"not_consumed": starts({("orders", 3): 0, ("payments", 1): 5})}, ["k0", "k7"]),
        (ALL_MESSAGES, {"not_consumed": starts({("orders", 3): 0}, topics=["payments"])}, ["k1", "k7"]),
        (ALL_MESSAGES, {"not_consumed": starts({}, topics=["orders"])}, ["k0", "k7"]),
        (ALL_MESSAGES, {"not_consumed": starts({})}, []),
    ],
)
def test_each_option_selects_its_messages(
    table: DeltaTable, selection: Selection, more: dict[str, Any], expected: list[str]
) -> None:
    assert chosen(table, selection, **more) == expected


@pytest.mark.parametrize(
    "topic",
    [HALF_TOPIC, SCHEDULE_TOPIC, "rmq_sys_wheel_timer", "RMQ_SYS_TRACE_TOPIC", "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"],
)
def test_topics_of_the_broker_are_refused(topic: str) -> None:
    with pytest.raises(ReplayError, match="its records cannot be sent again"):
        selection_condition(Selection(topics=[topic]))


def test_a_group_with_very_many_queues_can_be_selected(table: DeltaTable) -> None:
    some = starts({(f"topic-{number}", number): number for number in range(5_000)})
    sql = f"SELECT count(*) AS messages FROM messages WHERE {selection_condition(ALL_MESSAGES, not_consumed=some)}"
    assert run_sql(table, "messages", sql).read_all().to_pylist() == [{"messages": 0}]


def test_the_text_of_a_condition_stays_as_plans_have_it() -> None:
    """A notebook recognises an earlier replay of the same messages by it, and must not send them again."""
    end = START + datetime.timedelta(seconds=5)
    wanted = Selection(brokers=["b"], topics=["o"], queue_ids=[2, 1], keys=["k"], tags=["t"], start=START, end=end)
    times = (
        """store_timestamp >= arrow_cast(1700006400000000, 'Timestamp(Microsecond, Some("UTC"))') AND """
        "store_date >= DATE '2023-11-15' AND "
        """store_timestamp < arrow_cast(1700006405000000, 'Timestamp(Microsecond, Some("UTC"))') AND """
        "store_date <= DATE '2023-11-15'"
    )
    unsent = """NOT array_contains(map_keys("properties"), 'REPLAY_ID')"""
    assert selection_condition(wanted) == (
        f"broker IN ('b') AND topic IN ('o') AND queue_id IN (1, 2) AND array_contains(keys, 'k') AND {times} AND "
        f"kind IN ('normal') AND tags IN ('t') AND {unsent}"
    )
    others = f"topic NOT IN ('{ROCKSDB_HALF_TOPIC}', '{ROCKSDB_OP_TOPIC}')"
    assert selection_condition(Selection(groups=["g"], where="a = 1")) == (
        f"(a = 1\n) AND topic = '%DLQ%g' AND {others} AND {unsent}"
    )
    many = [f"t{number}" for number in range(50)]
    assert selection_condition(Selection(topics=many)).startswith("topic IN ('t0', 't1', ")
    assert " OR " not in selection_condition(Selection(topics=many))
