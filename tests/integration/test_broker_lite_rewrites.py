"""broker_lite rewrites messages as the real broker does: each rewrite is compared with two recorded records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

import pytest

from commitlake.broker_lite.delivery import message_rewrites
from commitlake.schemas.layouts.rocketmq import properties as props
from commitlake.schemas.layouts.rocketmq.commitlog import Message, NewMessage, parse_message
from commitlake.schemas.layouts.rocketmq.sysflag import TransactionType, transaction_type
from commitlake.schemas.layouts.rocketmq.topics import (
    DLQ_PREFIX,
    HALF_TOPIC,
    OP_TOPIC,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    parse_op_offsets,
)
from tests.servers.recording import FAILING_GROUP, FAILING_TOPIC, RecordedStore

RETRY_TOPIC = f"{RETRY_PREFIX}{FAILING_GROUP}"
DLQ_TOPIC = f"{DLQ_PREFIX}{FAILING_GROUP}"


@pytest.fixture(scope="module")
def messages(recorded_store: RecordedStore) -> dict[int, Message]:
    """Every record of the recorded store, by physical offset."""
    found = {}
    for row in recorded_store.decoded:
        segment = (recorded_store.store / "commitlog" / row["segment"]).read_bytes()
        parsed = parse_message(segment, row["physical_offset"] - int(row["segment"]))
        assert parsed is not None
        found[row["physical_offset"]] = parsed[0]
    return found


def families(messages: dict[int, Message]) -> Iterator[list[Message]]:
    """Yield the records of one UNIQ_KEY, in the order of the log."""
    by_key = defaultdict(list)
    for message in messages.values():
        by_key[message.unique_key].append(message)
    yield from (family for key, family in by_key.items() if key)


def commits(messages: dict[int, Message]) -> list[Message]:
    """Return committed messages, recognised by their type, because a half may be at offset 0."""
    return [message for message in messages.values() if transaction_type(message.sys_flag) is TransactionType.COMMIT]


def assert_made(made: NewMessage, stored: Message) -> None:
    """Check that a rewrite has everything that the broker stored."""
    for field in ("topic", "queue_id", "body", "flag", "born_timestamp", "born_host", "reconsume_times"):
        assert getattr(made, field) == getattr(stored, field), field
    assert made.prepared_transaction_offset == stored.prepared_transaction_offset
    assert made.sys_flag == message_rewrites.to_new_message(stored).sys_flag
    assert dict(made.properties) == stored.properties


def test_delayed_messages_are_rewritten_as_by_rocketmq(messages: dict[int, Message]) -> None:
    pairs = [
        (parked, delivered)
        for family in families(messages)
        for parked, delivered in pairwise(family)
        if parked.topic == SCHEDULE_TOPIC and delivered.topic == parked.properties[props.REAL_TOPIC]
    ]
    assert {delivered.topic for _, delivered in pairs} >= {"EveryDelay", RETRY_TOPIC}
    for parked, delivered in pairs:
        place = parked.properties
        assert_made(
            message_rewrites.to_delivered_message(parked, place[props.REAL_TOPIC], int(place[props.REAL_QID])),
            delivered,
        )


def test_failed_messages_are_rewritten_as_by_rocketmq(messages: dict[int, Message]) -> None:
    retries = 0
    for family in families(messages):
        for failed, parked in pairwise(family):
            if failed.topic in (FAILING_TOPIC, RETRY_TOPIC) and parked.topic == SCHEDULE_TOPIC:
                level = message_rewrites.FIRST_RETRY_LEVEL + failed.reconsume_times
                again = message_rewrites.to_retry_message(failed, FAILING_GROUP, 0, level)
                assert_made(message_rewrites.to_scheduled_message(again, level, SCHEDULE_TOPIC), parked)
                retries += 1
    assert retries == 6


def test_dead_letters_are_rewritten_as_by_rocketmq(messages: dict[int, Message]) -> None:
    pairs = [
        (failed, dead) for family in families(messages) for failed, dead in pairwise(family) if dead.topic == DLQ_TOPIC
    ]
    assert len(pairs) == 3
    for failed, dead in pairs:
        assert_made(message_rewrites.to_dead_letter(failed, FAILING_GROUP), dead)


def test_committed_messages_are_rewritten_as_by_rocketmq(
    recorded_store: RecordedStore, messages: dict[int, Message]
) -> None:
    committed = commits(messages)
    assert committed
    for stored in committed:
        half = messages[stored.prepared_transaction_offset]
        made = message_rewrites.to_committed_message(
            half, half.properties[props.REAL_TOPIC], int(half.properties[props.REAL_QID])
        )
        if recorded_store.version < "5.5":
            kept = {key: half.properties[key] for key in (props.REAL_TOPIC, props.REAL_QID)}
            made = NewMessage(
                **{name: getattr(made, name) for name in made.__slots__ if name != "properties"},
                properties=message_rewrites.change_properties(made.properties, kept),
            )
        assert_made(made, stored)


def test_op_marks_of_finished_halves_equal_those_of_rocketmq(
    recorded_store: RecordedStore, messages: dict[int, Message]
) -> None:
    halves = {message.queue_offset: message for message in messages.values() if message.topic == HALF_TOPIC}
    marks = [message for message in messages.values() if message.topic == OP_TOPIC]
    finished = [offset for mark in marks for offset in parse_op_offsets(mark.body)]
    assert finished
    assert set(finished) <= set(halves)
    committed = {message.prepared_transaction_offset for message in commits(messages)}
    decided = {offset for offset, half in halves.items() if half.physical_offset in committed}
    assert decided <= set(finished)
    made = message_rewrites.to_op_record(halves[finished[0]], marks[0].born_timestamp, marks[0].born_host)
    assert dict(made.properties) == marks[0].properties
    assert (made.topic, made.queue_id, made.sys_flag) == (OP_TOPIC, marks[0].queue_id, 0)
    if recorded_store.version >= "5.5":
        # 5.x puts several halves into one mark, each in this form.
        assert marks[0].body.startswith(made.body)
