"""Commands of mqadmin for a shell, queue by queue."""

from __future__ import annotations

from commitlake.pipelines.offsets.mqadmin import TopicOffsets, mqadmin_commands
from commitlake.schemas.remoting.routes import MessageQueue

A0, A1, B0 = (MessageQueue("orders", *place) for place in (("a", 0), ("a", 1), ("b", 0)))
ADDRESSES = {"a": "10.0.0.1:10911", "b": "10.0.0.2:10911"}
BASE = "mqadmin resetOffsetByTime -n '10.0.0.9:9876;10.0.0.8:9876' -g billing -t orders -s"


def commands(
    wanted: dict[MessageQueue, int],
    current: dict[MessageQueue, int | None],
    others: dict[MessageQueue, int | None],
) -> list[str]:
    offsets = TopicOffsets(wanted, current, others)
    return list(mqadmin_commands("10.0.0.9:9876;10.0.0.8:9876", "billing", "orders", offsets, ADDRESSES))


def test_each_queue_has_a_command_with_the_address_of_its_broker() -> None:
    assert commands({A1: 7, A0: 5}, {A0: 9, A1: 9}, {B0: 3}) == [
        f"{BASE} now -b 10.0.0.1:10911 -q 0 -o 5",
        f"{BASE} now -b 10.0.0.1:10911 -q 1 -o 7",
    ]


def test_offset_0_resets_the_whole_topic_and_restores_the_other_queues() -> None:
    assert commands({A0: 0, A1: 7}, {A0: 9, A1: 9}, {B0: 3}) == [
        "# orders: set all queues to their beginning first, because mqadmin cannot set one queue to 0",
        f"{BASE} 0",
        f"{BASE} now -b 10.0.0.1:10911 -q 1 -o 7",
        f"{BASE} now -b 10.0.0.2:10911 -q 0 -o 3",
    ]
    assert commands({A0: 0}, {A0: None}, {B0: None})[-1] == ("# queue 0 of b had no offset: it gets offset 0")


def test_a_queue_that_is_at_0_already_needs_no_command() -> None:
    assert commands({A0: 0, A1: 4}, {A0: 0, A1: 1}, {}) == [f"{BASE} now -b 10.0.0.1:10911 -q 1 -o 4"]


def test_topics_of_retries_are_quoted_for_a_shell() -> None:
    queue = MessageQueue("%RETRY%my group", "a", 0)
    offsets = TopicOffsets({queue: 1}, {queue: 2}, {})
    (line,) = mqadmin_commands("h:1", "my group", queue.topic, offsets, ADDRESSES)
    assert "-n h:1 -g 'my group' -t '%RETRY%my group' -s now" in line
