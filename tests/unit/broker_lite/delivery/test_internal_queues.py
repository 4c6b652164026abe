"""Tests of the broker's internal queues with damaged, expired or planted records, which must not delay others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from commitlake.broker_lite.delivery import Delivery, TransactionError
from commitlake.broker_lite.stores.rocketmq import MessageStore
from commitlake.schemas.layouts.rocketmq.commitlog import NewMessage, serialize_message
from commitlake.schemas.layouts.rocketmq.sysflag import INNER_BATCH
from commitlake.schemas.layouts.rocketmq.topics import HALF_TOPIC, OP_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from commitlake.schemas.layouts.segment_names import segment_name
from tests.support.message_stores import BORN_MS, PRODUCER, SMALL, message
from tests.support.small_stores import Clock, crash

TIMEOUT_MS, CHECKS = 6_000, 15
ROOMY = replace(SMALL, segment_size_bytes=1 << 18, max_message_size_bytes=1 << 14)


def timed(number: int) -> NewMessage:
    """Return a message that is to be delivered after some seconds."""
    return message(number, properties=(("UNIQ_KEY", f"U{number}"), ("TIMER_DELAY_SEC", "3")))


def half(number: int, **changes: object) -> NewMessage:
    """Return a message that waits for its producer's decision."""
    pairs = {"UNIQ_KEY": f"U{number}", "TRAN_MSG": "true", "PGROUP": "shop", **changes}
    return message(number, properties=tuple((key, str(value)) for key, value in pairs.items()))


def damage(root: Path, text: bytes) -> None:
    """Change a byte of the one record with a body."""
    (segment,) = [path for path in (root / "commitlog").iterdir() if text in path.read_bytes()]
    data = segment.read_bytes()
    assert data.count(text) == 1
    segment.write_bytes(data.replace(text, text[:-1] + b"!"))


def expire(store: MessageStore) -> None:
    """Delete all segments but the last one, as a broker with a full disk does."""
    files = store.files.log.files
    files.delete_oldest_files(len(files.file_starts) - 1)
    store.files.delete_expired(files.start, 0)


def bodies(store: MessageStore) -> list[bytes]:
    """Return the bodies of the delivered messages."""
    return [one.body for one in store.get("orders", 0, 0, 100).messages]


def asked(delivery: Delivery, now_ms: int) -> list[bytes]:
    """Return the bodies of the half messages that a producer is asked about."""
    return [one.body for one in delivery.take_due_half_messages(now_ms, TIMEOUT_MS, CHECKS) if one is not None]


@pytest.mark.parametrize("is_opened_again", [True, False])
def test_a_damaged_timer_does_not_delay_the_others(root: Path, clock: Clock, *, is_opened_again: bool) -> None:
    with MessageStore.open(root, SMALL, clock=clock) as store:
        delivery = Delivery(store)
        for number in (1, 2, 3):
            delivery.send(timed(number))
        if not is_opened_again:
            damage(root, b"body 2")
            clock.now_ms += 4_000
            delivery.deliver_due(clock.now_ms)
            assert bodies(store) == [b"body 1", b"body 3"]
            return
    damage(root, b"body 2")
    clock.now_ms += 4_000
    with MessageStore.open(root, SMALL, clock=clock) as store:
        Delivery(store).deliver_due(clock.now_ms)
        assert bodies(store) == [b"body 1", b"body 3"]


def test_a_damaged_half_message_does_not_delay_the_others(root: Path, clock: Clock) -> None:
    with MessageStore.open(root, SMALL, clock=clock) as store:
        delivery = Delivery(store)
        for number in (1, 2, 3):
            delivery.send(half(number))
    damage(root, b"body 2")
    with MessageStore.open(root, SMALL, clock=clock) as store:
        delivery = Delivery(store)
        assert [one.body for one in delivery.pending_half_messages()] == [b"body 1", b"body 3"]
        assert asked(delivery, BORN_MS + TIMEOUT_MS) == [b"body 1", b"body 3"]
        # The damaged one counts as decided and does not stop the progress.
        assert store.config.consumer_offsets.get("RMQ_SYS_TRANS_HALF_TOPIC", "CID_RMQ_SYS_TRANS", 0) == 3


def test_a_damaged_mark_does_not_prevent_opening_the_store(root: Path, clock: Clock) -> None:
    with MessageStore.open(root, SMALL, clock=clock) as store:
        delivery = Delivery(store)
        places = [delivery.send(half(number)).physical_offset for number in (1, 2, 3)]
        for place in places[1:]:
            delivery.rollback("shop", place)
        mark = store.get(OP_TOPIC, 0, 0).messages[0]
    segment = root / "commitlog" / f"{0:020d}"
    with segment.open("r+b") as file:
        file.seek(segment.read_bytes().index(mark.body, mark.physical_offset))
        file.write(b"!")
    (root / "config" / "consumerOffset.json").unlink()
    (root / "config" / "consumerOffset.json.bak").unlink(missing_ok=True)
    with MessageStore.open(root, SMALL, clock=clock) as store:
        # The decision in the damaged mark is unknown: its producer is asked again.
        assert asked(Delivery(store), BORN_MS + TIMEOUT_MS) == [b"body 1", b"body 2"]


def test_a_delay_level_continues_after_expired_messages(root: Path, clock: Clock) -> None:
    with MessageStore.open(root, SMALL, clock=clock) as store:
        delivery = Delivery(store)
        for number in range(40):
            delivery.send(message(number, properties=(("UNIQ_KEY", f"U{number}"), ("DELAY", "18"))))
        expire(store)
        kept = store.min_offset("SCHEDULE_TOPIC_XXXX", 17)
        assert kept >= 8, "a whole file of the queue has gone"
        clock.now_ms += 7_200_000
        delivery.deliver_due(clock.now_ms)
        found = store.get("orders", 0, 0, 100).messages
        assert [one.body for one in found] == [b"body %d" % number for number in range(kept, 40)]


def test_half_messages_after_expired_ones_are_checked(root: Path, clock: Clock) -> None:
    with MessageStore.open(root, SMALL, clock=clock) as store:
        delivery = Delivery(store)
        for number in range(40):
            delivery.send(half(number))
        expire(store)
        kept = store.min_offset("RMQ_SYS_TRANS_HALF_TOPIC", 0)
        assert 0 < kept < 40
        assert asked(delivery, BORN_MS + TIMEOUT_MS) == [b"body %d" % number for number in range(kept, 40)]


@pytest.mark.parametrize(
    ("immunity", "age_ms", "is_asked"),
    [
        (None, 5_999, False),
        (None, 6_000, True),
        (None, -1, True),  # its producer's clock is ahead: the other messages must not wait for it
        ("2", 1_999, False),
        ("2", 2_000, True),
        ("60", 59_999, False),
        ("60", 60_000, True),
        ("soon", 5_999, False),
        ("soon", 6_000, True),
    ],
)
def test_time_of_the_first_check_of_a_half_message(
    root: Path, clock: Clock, immunity: str | None, age_ms: int, *, is_asked: bool
) -> None:
    with MessageStore.open(root, SMALL, clock=clock) as store:
        delivery = Delivery(store)
        delivery.send(half(1, **({} if immunity is None else {"CHECK_IMMUNITY_TIME_IN_SECONDS": immunity})))
        assert asked(delivery, BORN_MS + age_ms) == ([b"body 1"] if is_asked else [])


def test_a_half_message_decided_during_a_check_is_skipped(root: Path, clock: Clock) -> None:
    with MessageStore.open(root, SMALL, clock=clock) as store:
        delivery = Delivery(store)
        places = [delivery.send(half(number)).physical_offset for number in (1, 2, 3)]
        due = delivery.take_due_half_messages(BORN_MS + TIMEOUT_MS, TIMEOUT_MS, CHECKS)
        first = next(due)
        assert first is not None
        assert first.body == b"body 1"
        delivery.commit("shop", places[1])
        assert [one.body for one in due if one is not None] == [b"body 3"]


HOSTILE_NUMBERS = ("9" * 5000, "-" + "9" * 5000, "9" * 20, "\u0661\u0662", "1_0", " 1", "0x1", "-1", "2147483647", "x")


def planted(store: MessageStore, topic: str, properties: dict[str, str]) -> None:
    """Store a record that an attacker with write access to the topic could have sent."""
    store.put(message(9, topic, properties=tuple(properties.items())))


@pytest.mark.parametrize("name", ["TIMER_OUT_MS", "REAL_QID"])
def test_planted_timers_are_skipped_and_the_store_can_be_reopened(root: Path, clock: Clock, name: str) -> None:
    sound = {"REAL_TOPIC": "orders", "REAL_QID": "0", "UNIQ_KEY": "U9", "TIMER_OUT_MS": str(clock.now_ms - 1)}
    for opened in (1, 2):
        with MessageStore.open(root, ROOMY, clock=clock) as store:
            delivery = Delivery(store)
            if opened == 1:
                for text in HOSTILE_NUMBERS:
                    planted(store, TIMER_TOPIC, sound | {name: text})
                planted(store, TIMER_TOPIC, {"REAL_QID": "0", "TIMER_OUT_MS": "1"})
                delivery.send(timed(1))
                clock.now_ms += 5_000
            delivery.deliver_due(clock.now_ms)
            # A time below zero has passed long ago: that one record can be delivered.
            expected = [b"body 9", b"body 1"] if name == "TIMER_OUT_MS" else [b"body 1"]
            assert [body for body in bodies(store) if body in expected][-1] == b"body 1"
            assert store.queues == [("orders", 0), (TIMER_TOPIC, 0)]
            assert delivery.next_due_ms() is None
            crash(store)


@pytest.mark.parametrize("text", HOSTILE_NUMBERS)
def test_planted_delayed_messages_do_not_delay_their_level(root: Path, clock: Clock, text: str) -> None:
    with MessageStore.open(root, ROOMY, clock=clock) as store:
        planted(store, SCHEDULE_TOPIC, {"REAL_TOPIC": "orders", "REAL_QID": text, "DELAY": "1"})
        delivery = Delivery(store)
        delivery.send(message(1, properties=(("DELAY", "1"),)))
        clock.now_ms += 3 * 3_600_000
        delivery.deliver_due(clock.now_ms)
        assert bodies(store)[-1] == b"body 1"
        assert all(queue_id == 0 for _, queue_id in store.queues)


@pytest.mark.parametrize("topic", ["", SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC, OP_TOPIC, "../etc", "a" * 300])
def test_no_message_is_delivered_into_an_internal_or_invalid_topic(root: Path, clock: Clock, topic: str) -> None:
    with MessageStore.open(root, ROOMY, clock=clock) as store:
        place = {"REAL_QID": "0"} | ({"REAL_TOPIC": topic} if topic else {})
        planted(store, SCHEDULE_TOPIC, place | {"DELAY": "1"})
        planted(store, TIMER_TOPIC, place | {"TIMER_OUT_MS": "1"})
        delivery = Delivery(store)
        clock.now_ms += 5_000
        assert delivery.deliver_due(clock.now_ms) == []
        assert delivery.next_due_ms() is None


@pytest.mark.parametrize("text", HOSTILE_NUMBERS)
@pytest.mark.parametrize("name", ["TRANSACTION_CHECK_TIMES", "CHECK_IMMUNITY_TIME_IN_SECONDS", "REAL_QID"])
def test_planted_half_messages_do_not_delay_the_others(root: Path, clock: Clock, name: str, text: str) -> None:
    with MessageStore.open(root, ROOMY, clock=clock) as store:
        sound = {"REAL_TOPIC": "orders", "REAL_QID": "0", "PGROUP": "shop"}
        planted(store, HALF_TOPIC, sound | {name: text})
        store.put(message(8, OP_TOPIC, body=f"{text},".encode()))
        delivery = Delivery(store)
        delivery.send(half(1))
        found = asked(delivery, clock.now_ms + TIMEOUT_MS)
        assert found[-1] == b"body 1"
        if name == "REAL_QID":
            with pytest.raises(TransactionError, match="REAL_QID"):
                delivery.commit("shop", 0)


def test_a_half_message_too_large_to_store_again_does_not_delay_the_others(root: Path, clock: Clock) -> None:
    with MessageStore.open(root, ROOMY, clock=clock) as store:
        names = {"UNIQ_KEY": "U9", "PGROUP": "shop", "REAL_TOPIC": "orders", "REAL_QID": "0"}
        size = sum(len(key) + len(value) + 2 for key, value in names.items())
        planted(store, HALF_TOPIC, {**names, "X": "x" * (32_767 - size - 3)})
        delivery = Delivery(store)
        delivery.send(half(1))
        assert asked(delivery, clock.now_ms + TIMEOUT_MS) == [b"body 1"]
        assert [pending.body for pending in delivery.pending_half_messages()] == [b"body 1"]


def test_a_forged_batch_does_not_turn_internal_topics_into_batch_topics(root: Path, clock: Clock) -> None:
    text = {"INNER_BASE": "7", "INNER_NUM": "3", "REAL_TOPIC": "orders", "REAL_QID": "0"}
    properties = tuple(text.items())
    forged = [
        serialize_message(
            message(number, topic, sys_flag=INNER_BATCH, properties=properties), queue_offset=(1 << 63) - 1,
            physical_offset=number, store_timestamp=(1 << 63) - 1, store_host=PRODUCER,
        )
        for number, topic in enumerate((TIMER_TOPIC, HALF_TOPIC, OP_TOPIC, SCHEDULE_TOPIC))
    ]  # fmt: skip
    write_log(root, forged)
    for _ in range(2):
        with MessageStore.open(root, ROOMY, clock=clock) as store:
            delivery = Delivery(store)
            clock.now_ms += 5_000
            delivery.deliver_due(clock.now_ms)
            assert delivery.pending_half_messages() is not None
            assert not any(store.config.topics.is_batch(topic) for topic in store.config.topics.entries)


def test_a_forged_batch_in_a_light_queue_does_not_prevent_opening_the_store(root: Path, clock: Clock) -> None:
    batch = (("INNER_BASE", "0"), ("INNER_NUM", "3"))
    light = (("INNER_MULTI_DISPATCH", "%LMQ%a"), ("INNER_MULTI_QUEUE_OFFSET", "1"))
    place: dict[str, Any] = {"physical_offset": 0, "store_timestamp": clock.now_ms, "store_host": PRODUCER}
    forged = message(0, "%LMQ%a", sys_flag=INNER_BATCH, properties=batch)
    sound = message(1, properties=light)
    write_log(root, [serialize_message(each, queue_offset=0, **place) for each in (forged, sound)])
    for _ in range(2):
        with MessageStore.open(root, ROOMY, clock=clock) as store:
            assert store.max_offset("%LMQ%a", 0) == 2


def test_a_forged_number_of_a_batch_gets_no_entry(root: Path, clock: Clock) -> None:
    place: dict[str, Any] = {"physical_offset": 0, "store_timestamp": clock.now_ms, "store_host": PRODUCER}
    sound = []
    for number in (0, 3):
        batch = message(0, sys_flag=INNER_BATCH, properties=(("INNER_BASE", str(number)), ("INNER_NUM", "3")))
        sound.append(serialize_message(batch, queue_offset=number, **place))
    far = serialize_message(message(1), queue_offset=(1 << 63) - 1, **place)
    write_log(root, [*sound, far])
    with MessageStore.open(root, ROOMY, clock=clock) as store:
        assert store.max_offset("orders", 0) == 6


def test_a_delay_beyond_64_bits_is_a_time_that_has_passed(root: Path, clock: Clock) -> None:
    properties = (("DELAY", "18"), ("REAL_TOPIC", "orders"), ("REAL_QID", "0"))
    parked = message(1, SCHEDULE_TOPIC, queue_id=17, properties=properties)
    place: dict[str, Any] = {"queue_offset": 0, "physical_offset": 0, "store_host": PRODUCER}
    write_log(root, [serialize_message(parked, store_timestamp=(1 << 63) - 1, **place)])
    with MessageStore.open(root, ROOMY, clock=clock) as store:
        Delivery(store).deliver_due(clock.now_ms)
        assert bodies(store) == [b"body 1"]


def test_a_forged_timer_that_cannot_be_rolled_does_not_delay_the_others(root: Path, clock: Clock) -> None:
    due = clock.now_ms + 30 * 86_400_000  # beyond the wheel: stored again on the way
    text = {"TIMER_OUT_MS": str(due), "INNER_NUM": "nan", "REAL_TOPIC": "orders", "REAL_QID": "0"}
    forged = message(9, TIMER_TOPIC, sys_flag=INNER_BATCH, properties=tuple(text.items()))
    place: dict[str, Any] = {
        "queue_offset": 0,
        "physical_offset": 0,
        "store_timestamp": clock.now_ms,
        "store_host": PRODUCER,
    }
    write_log(root, [serialize_message(forged, **place)])
    with MessageStore.open(root, ROOMY, clock=clock) as store:
        delivery = Delivery(store)
        delivery.send(timed(1))
        for _ in range(40):
            clock.now_ms += 86_400_000
            delivery.deliver_due(clock.now_ms)
        assert bodies(store) == [b"body 1"]
        assert delivery.next_due_ms() is None


@pytest.mark.parametrize("number", [5, 1 << 62, (1 << 63) - 1])
def test_a_half_message_is_identified_by_its_position_not_its_stored_number(
    root: Path, clock: Clock, number: int
) -> None:
    properties = (("PGROUP", "shop"), ("REAL_TOPIC", "orders"), ("REAL_QID", "0"))
    place: dict[str, Any] = {"physical_offset": 0, "store_timestamp": clock.now_ms, "store_host": PRODUCER}
    halves = [message(each, HALF_TOPIC, properties=properties) for each in range(3)]
    offsets = (0, number, number)
    forged = [serialize_message(one, queue_offset=at, **place) for one, at in zip(halves, offsets, strict=True)]
    write_log(root, forged)
    with MessageStore.open(root, ROOMY, clock=clock) as store:
        delivery = Delivery(store)
        clock.now_ms += TIMEOUT_MS
        waiting = [half.body for half in delivery.pending_half_messages()]
        assert asked(delivery, clock.now_ms) == waiting
        assert [half.body for half in delivery.pending_half_messages()] == waiting
        with pytest.raises(TransactionError, match=r"undecided|points to it"):
            delivery.commit("shop", len(forged[0]) + len(forged[1]))
        for half in delivery.pending_half_messages():
            delivery.commit("shop", half.physical_offset)
        assert bodies(store) == waiting
        assert delivery.pending_half_messages() == []


def write_log(root: Path, records: Sequence[bytes]) -> None:
    """Write a log of these records at their offsets."""
    data = b""
    for record in records:
        data += record[:28] + len(data).to_bytes(8, "big") + record[36:]
    (root / "commitlog").mkdir(parents=True)
    (root / "commitlog" / segment_name(0)).write_bytes(data.ljust(ROOMY.segment_size_bytes, b"\0"))
