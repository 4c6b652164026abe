"""Messages that a replay selects, with the real query engine."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest
from deltalake import DeltaTable

from commitlake.connectors.lake.reader import run_sql
from commitlake.pipelines.lag.counting import Queue
from commitlake.pipelines.query.sql import Conditions
from commitlake.pipelines.replay.errors import ReplayError
from commitlake.pipelines.replay.groups.not_consumed import NotConsumed, QueueStart
from commitlake.pipelines.replay.selection import Selection, condition
from commitlake.schemas.layouts.rocketmq.topics import HALF_TOPIC, SCHEDULE_TOPIC
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


def chosen(table: DeltaTable, selection: Selection) -> list[str]:
    sql = f"SELECT keys[1] AS key FROM messages WHERE {condition(selection)} ORDER BY physical_offset"
    return [row["key"] for row in run_sql(table, "messages", sql).read_all().to_pylist()]


def starts(offsets: dict[tuple[str, int], int], topics: list[str] | None = None) -> NotConsumed:
    """Return the first messages of queues, and the topics of which all queues are chosen; by default, theirs."""
    names = [topic for topic, _ in offsets] if topics is None else topics
    queues = {Queue("broker-a", *place): QueueStart(offset) for place, offset in offsets.items()}
    return NotConsumed("billing", queues, {("broker-a", name) for name in names})


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        (Selection(Conditions()), ["k0", "k1", "k7"]),
        (Selection(Conditions(keys=["all"])), ["k0", "k1", "k7"]),
        (Selection(Conditions(), has_replayed=True), ["k0", "k1", "k7", "k8"]),
        (Selection(Conditions(topics=["orders"])), ["k0", "k7"]),
        (Selection(Conditions(kinds=["retry"])), ["k2"]),
        (Selection(Conditions(topics=["orders", "%RETRY%billing"])), ["k0", "k2", "k7"]),
        (Selection(Conditions(keys=["k2", "k1", "all"], topics=["payments", "%DLQ%mail"])), ["k1", "k4"]),
        (Selection(Conditions(), dead_letters_of="billing"), ["k3"]),
        (Selection(Conditions(), tags=["t0", "t1", "t2"]), ["k0", "k1"]),
        (Selection(Conditions(), ids=["U7"]), ["k7"]),
        (Selection(Conditions(queue_ids=[3, 1])), ["k1", "k7"]),
        (Selection(Conditions(where="queue_id = 1 OR queue_id = 3 -- odd")), ["k1", "k7"]),
        (Selection(Conditions(start=START + datetime.timedelta(seconds=1))), ["k1", "k7"]),
        (Selection(Conditions(end=START + datetime.timedelta(seconds=1)), born=True), ["k0"]),
        (Selection(Conditions(), not_consumed=starts({("orders", 3): 0, ("payments", 1): 5})), ["k0", "k7"]),
        (Selection(Conditions(), not_consumed=starts({("orders", 3): 0}, topics=["payments"])), ["k1", "k7"]),
        (Selection(Conditions(), not_consumed=starts({}, topics=["orders"])), ["k0", "k7"]),
        (Selection(Conditions(), not_consumed=starts({})), []),
    ],
)
def test_each_option_selects_its_messages(table: DeltaTable, selection: Selection, expected: list[str]) -> None:
    assert chosen(table, selection) == expected


@pytest.mark.parametrize(
    "topic",
    [HALF_TOPIC, SCHEDULE_TOPIC, "rmq_sys_wheel_timer", "RMQ_SYS_TRACE_TOPIC", "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"],
)
def test_topics_of_the_broker_are_refused(topic: str) -> None:
    with pytest.raises(ReplayError, match="its records cannot be sent again"):
        condition(Selection(Conditions(topics=[topic])))


def test_a_group_with_very_many_queues_can_be_selected(table: DeltaTable) -> None:
    some = starts({(f"topic-{number}", number): number for number in range(5_000)})
    sql = f"SELECT count(*) AS messages FROM messages WHERE {condition(Selection(Conditions(), not_consumed=some))}"
    assert run_sql(table, "messages", sql).read_all().to_pylist() == [{"messages": 0}]
