"""Number of the selected messages that a group has consumed, also for dead letters."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from commitlake.pipelines.replay.groups.consumed_counts import ChosenMessages, ConsumedCount
from commitlake.pipelines.replay.planning import count_messages_by_queue
from tests.support.lag_places import stored
from tests.support.lakes import MIDNIGHT_MS, GrowingLake, rows_of, shop_messages
from tests.support.logs import new_message

TOPIC = "topic-00"
LETTERS = "%DLQ%billing"
START = datetime.datetime.fromtimestamp(MIDNIGHT_MS / 1000, datetime.UTC)


@pytest.fixture(scope="module")
def growing(tmp_path_factory: pytest.TempPathFactory) -> GrowingLake:
    """Ten messages of a topic in their queues, of which a group has given up three, and a message that is not there."""
    growing = GrowingLake(tmp_path_factory.mktemp("lake"))
    growing.write(shop_messages(10, topics=1))
    growing.archive()
    rows = sorted(rows_of(growing.lake.uri("messages")), key=lambda row: row["physical_offset"])
    first_ids = [*(rows[number]["msg_id"] for number in (0, 4, 8)), "7F00000100002A9F00000000000FFFFF"]
    growing.write(
        new_message(
            number,
            topic=LETTERS,
            queue_id=0,
            born_timestamp=MIDNIGHT_MS + number,
            properties=(("RETRY_TOPIC", TOPIC), ("ORIGIN_MESSAGE_ID", first_id)),
        )
        for number, first_id in enumerate(first_ids)
    )
    growing.archive()
    return growing


def chosen(growing: GrowingLake, topic: str) -> ChosenMessages:
    """Return all messages of a topic."""
    table, condition = growing.lake.table("messages"), f"topic = '{topic}'"
    return ChosenMessages(table, condition, count_messages_by_queue(table, condition))


def test_messages_before_the_offsets_are_consumed(growing: GrowingLake) -> None:
    rows = [row for row in rows_of(growing.lake.uri("messages")) if row["topic"] == TOPIC]
    ends = {("broker-a", TOPIC, row["queue_id"]): 1 for row in rows}
    messages = chosen(growing, TOPIC)
    assert not messages.has_retries_or_dead_letters
    assert messages.count_consumed(ends) == ConsumedCount(len(ends))
    assert messages.count_consumed(dict.fromkeys(ends, 100)) == ConsumedCount(10)
    assert messages.count_consumed({}) == ConsumedCount(0)


def test_messages_of_a_deleted_topic_are_unknown(tmp_path: Path) -> None:
    growing = GrowingLake(tmp_path)
    growing.write(stored("orders", second) for second in range(5))
    growing.recreate_topics()
    growing.write(stored("orders", second) for second in range(10, 13))
    growing.archive()
    table = growing.lake.table("messages")

    def consumed(offset: int, second: int) -> ConsumedCount:
        as_of = {"broker-a": START + datetime.timedelta(seconds=second)}
        choice = count_messages_by_queue(table, "topic = 'orders'")
        return ChosenMessages(table, "topic = 'orders'", choice, as_of).count_consumed(
            {("broker-a", "orders", 0): offset}
        )

    assert [consumed(offset, 20) for offset in (0, 2, 3)] == [ConsumedCount(number, 5) for number in (0, 2, 3)]
    assert [consumed(offset, 9) for offset in (0, 2, 5)] == [ConsumedCount(number) for number in (0, 2, 5)]


def test_a_dead_letter_is_consumed_according_to_its_first_record(growing: GrowingLake) -> None:
    messages = chosen(growing, LETTERS)
    rows = sorted(rows_of(growing.lake.uri("messages")), key=lambda row: row["physical_offset"])
    given_up = [rows[number] for number in (0, 4, 8)]
    assert messages.has_retries_or_dead_letters
    everywhere = {("broker-a", TOPIC, queue): 100 for queue in range(8)}
    assert messages.count_consumed(everywhere) == ConsumedCount(3, unknown=1)
    before_last = everywhere | {("broker-a", TOPIC, given_up[-1]["queue_id"]): given_up[-1]["queue_offset"]}
    assert messages.count_consumed(before_last) == ConsumedCount(2, unknown=1)
    assert messages.count_consumed({("broker-a", LETTERS, 0): 100}) == ConsumedCount(0, unknown=1)
    assert messages.count_consumed({("broker-b", TOPIC, queue): 100 for queue in range(8)}) == ConsumedCount(
        0, unknown=1
    )
