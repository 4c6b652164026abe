"""Writing, reading and refusals of a store in JMQ's layout."""

from __future__ import annotations

import random
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from commitlake.broker_lite.stores.engine.queue_reader import PullLimits
from commitlake.broker_lite.stores.jmq import JournalOptions, JournalStore
from commitlake.broker_lite.stores.jmq.journal_files import JournalCheckpointFile
from commitlake.broker_lite.stores.jmq.message_preparation import QueueSelector, ordered_queue_id
from commitlake.broker_lite.stores.rocketmq import (
    FlushMode,
    GetStatus,
    MessageRefusedError,
    StoreError,
    StoreFilesError,
)
from commitlake.schemas.layouts.errors import LayoutError
from commitlake.schemas.layouts.jmq.journal import HEAD, MAX_BODY_SIZE, JournalMessage, parse_message
from commitlake.schemas.layouts.rocketmq.hosts import Host
from tests.support.journal_stores import BROKER, CLIENT, SENT_MS, SMALL, fill, journal_records, message, queue_entries
from tests.support.journals import original_body
from tests.support.small_stores import STORED_MS, Clock, all_messages
from tests.support.waiting import wait_until


def test_message_is_read_as_it_was_put(store: JournalStore) -> None:
    sent = message(7, business_tag=3, priority=2, is_ordered=True)
    result = store.put(sent)
    got = store.get("orders", result.queue_id, 0).messages[0]
    for field in ("topic", "body", "app", "business_id", "business_tag", "priority", "is_ordered", "send_timestamp"):
        assert getattr(got, field) == getattr(sent, field), field
    assert got.property_pairs == list(sent.properties)
    assert (got.client_address, got.server_address) == (CLIENT, BROKER)
    assert (got.receive_timestamp, got.store_timestamp) == (STORED_MS, STORED_MS)
    assert (got.journal_offset, got.queue_id, got.queue_offset, got.size) == (
        result.journal_offset, result.queue_id, result.queue_offset, result.size,
    )  # fmt: skip


def test_files_have_names_and_entries_of_the_format(root: Path, store: JournalStore) -> None:
    results = fill(store, 100)
    names = [path.name for path in sorted((root / "journal").iterdir())]
    assert names == [f"{number * 4096:020d}" for number in range(len(names))]
    assert len(names) == 3
    records = list(journal_records(root))
    assert [record.journal_offset for record in records] == [result.journal_offset for result in results]
    for queue_id in (0, 1):
        entries = [(entry.journal_offset, entry.size) for entry in queue_entries(root, queue_id=queue_id)]
        assert entries == [(result.journal_offset, result.size) for result in results if result.queue_id == queue_id]
        assert len(list((root / "queue" / "orders" / str(queue_id)).iterdir())) == 7


def test_file_without_room_ends_in_a_filler(root: Path, store: JournalStore) -> None:
    results = fill(store, 60)
    second = next(result.journal_offset for result in results if result.journal_offset >= 4096)
    before = max(
        (result for result in results if result.journal_offset < 4096), key=lambda result: result.journal_offset
    )
    end = before.journal_offset + before.size
    data = (root / "journal" / f"{0:020d}").read_bytes()
    assert second == 4096
    assert data[end : end + 6] == (4096 - end).to_bytes(4, "big") + b"\xbb\xbb"
    assert not any(data[end + 6 :])


def test_record_that_leaves_just_enough_room_is_kept_in_its_file(root: Path) -> None:
    with JournalStore.open(root, SMALL) as store:
        size = store.put(message(0, body=b"")).size
        body = random.Random(1).randbytes(1900)
        store.put(message(1, body=body))
        room = 4096 - store.max_journal_offset - 6
        fits = store.put(message(2, body=random.Random(2).randbytes(room - size)))
        assert fits.journal_offset + fits.size == 4090
        assert store.put(message(3)).journal_offset == 4096
    assert len(list(journal_records(root))) == 4


def test_each_queue_has_its_own_offsets(store: JournalStore) -> None:
    results = [*fill(store, 6), *fill(store, 4, topic="payments")]
    assert [result.queue_offset for result in results] == [0, 0, 1, 1, 2, 2, 0, 0, 1, 1]
    assert store.queues == [("orders", 0), ("orders", 1), ("payments", 0), ("payments", 1)]


def test_get_returns_the_reason_for_an_empty_result(store: JournalStore) -> None:
    fill(store, 6)
    assert store.get("nobody", 0, 0).status is GetStatus.NO_MATCHED_LOGIC_QUEUE
    assert store.get("orders", 0, 3).status is GetStatus.OFFSET_OVERFLOW_ONE
    assert store.get("orders", 0, 4).status is GetStatus.OFFSET_OVERFLOW_BADLY
    assert store.get("orders", 0, -1).status is GetStatus.OFFSET_TOO_SMALL
    found = store.get("orders", 0, 1, 1)
    assert (found.status, found.next_offset, found.min_offset, found.max_offset) == (GetStatus.FOUND, 2, 0, 3)


def test_pull_returns_messages_in_the_requested_form(store: JournalStore) -> None:
    fill(store, 10)

    def stored(found: JournalMessage) -> bytes:
        return store.record_at(found.journal_offset, found.size)

    found = store.pull("orders", 1, 1, PullLimits(3, 1 << 20), stored)
    parsed = [parse_message(record) for record in found.records]
    assert [one[0].body for one in parsed if one] == [b"body 3", b"body 5", b"body 7"]
    assert (found.next_offset, found.max_offset) == (4, 5)
    assert len(store.pull("orders", 1, 0, PullLimits(10, 1), stored).records) == 1
    assert store.pull("orders", 1, 0, PullLimits(10, len(found.records[0]) * 2), stored).next_offset == 2
    some = store.pull("orders", 1, 0, PullLimits(2, 1 << 20), lambda found: found.body if b"7" in found.body else None)
    assert (some.records, some.next_offset) == ([b"body 7"], 5)


def test_message_is_found_by_its_position_its_id_and_its_time(store: JournalStore, clock: Clock) -> None:
    first = store.put(message(1), 0)
    clock.now_ms += 1000
    second = store.put(message(2), 0)
    assert second.message_id == "orders/0/1@broker-a"
    for got in (store.get_at(second.journal_offset), store.get_by_id(second.message_id)):
        assert got is not None
        assert got.body == b"body 2"
    assert store.get_at(first.journal_offset + 1) is None
    assert store.get_by_id("orders/0/2@broker-a") is None
    assert store.get_by_id("orders/0/1@broker-b") is None
    assert store.get_by_id("nobody/0/1@broker-a") is None
    assert [store.offset_by_time("orders", 0, STORED_MS + ms) for ms in (0, 1, 1000, 1001)] == [0, 1, 1, 2]
    with pytest.raises(LayoutError, match="message_id"):
        store.get_by_id("orders")


def test_batch_is_stored_in_one_file(store: JournalStore) -> None:
    fill(store, 30)
    room = 4096 - store.max_journal_offset % 4096
    batch = [message(number, body=random.Random(number).randbytes(400)) for number in range(6)]
    assert room < 6 * 500
    results = store.put_batch(batch)
    assert {result.queue_id for result in results} == {results[0].queue_id}
    assert results[0].journal_offset % 4096 == 0
    ends = [result.journal_offset + result.size for result in results]
    assert [result.journal_offset for result in results[1:]] == ends[:-1]


@pytest.mark.parametrize("bodies", [[], [b"x", b"y"]])
def test_batch_of_no_or_several_queues_is_refused(store: JournalStore, bodies: list[bytes]) -> None:
    batch = [message(0, topic=f"topic{number}", body=body) for number, body in enumerate(bodies)]
    with pytest.raises(MessageRefusedError, match="batch: expected messages of one queue"):
        store.put_batch(batch)
    assert store.max_journal_offset == 0


@pytest.mark.parametrize(
    ("body", "is_compressed"),
    [
        (b"a" * 100, False),
        (b"a" * 101, True),
        (b"", False),
        (random.Random(1).randbytes(1000), False),
        (b'{"order":4711}' * 1000, True),
    ],
)
def test_body_over_100_bytes_is_compressed_if_it_gets_smaller(
    store: JournalStore, body: bytes, is_compressed: bool
) -> None:
    result = store.put(message(body=body), 0)
    got = store.get("orders", 0, 0).messages[0]
    assert got.is_compressed is is_compressed
    assert original_body(got) == body
    assert (got.body == body) is not is_compressed
    assert got.body_crc == zlib.crc32(got.body)
    assert result.size == got.size


def test_body_that_is_already_compressed_is_stored_unchanged(store: JournalStore) -> None:
    stored = zlib.compress(b"a" * 10_000)
    store.put(message(body=stored, is_compressed=True), 0)
    got = store.get("orders", 0, 0).messages[0]
    assert (got.body, got.is_compressed) == (stored, True)
    assert original_body(got) == b"a" * 10_000


def test_body_is_measured_after_its_compression(root: Path) -> None:
    options = JournalOptions(journal_file_size_bytes=16 << 20)
    noise = random.Random(1).randbytes(MAX_BODY_SIZE + 1)
    with JournalStore.open(root, options) as store:
        store.put(message(body=bytes(20 << 20)), 0)
        store.put(message(body=noise[:-1]), 0)
        with pytest.raises(
            MessageRefusedError,
            match=f"expected at most {MAX_BODY_SIZE} bytes in the form in which it is stored, found",
        ):
            store.put(message(body=noise), 0)
        first, second = store.get("orders", 0, 0).messages
        assert len(original_body(first)) == 20 << 20
        assert second.body == noise[:-1]
        assert store.max_offset("orders", 0) == 2


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"topic": "../orders"}, "topic"),
        ({"topic": ""}, "topic"),
        ({"topic": "a/b"}, "topic"),
        ({"body": random.Random(1).randbytes(2049)}, "body: expected at most 2048"),
        ({"is_ordered": True, "business_id": ""}, "business_id: an ordered message needs a business id"),
        ({"business_id": "b" * 256}, "business_id"),
        ({"app": "\ud800"}, "app"),
        ({"priority": 256}, "priority"),
        ({"business_tag": -1}, "business_tag"),
        ({"client_address": Host.of("::1", 1)}, "client_ip"),
        ({"client_address": Host.of("10.0.0.1", 65536)}, "client_port"),
        ({"properties": (("", "x"),)}, "properties"),
        ({"properties": (("k", "v" * 70_000),)}, "properties"),
        ({"send_timestamp": 1 << 63}, "send_timestamp"),
    ],
)
def test_refused_message_leaves_the_store_unchanged(
    root: Path, store: JournalStore, changes: dict[str, object], words: str
) -> None:
    with pytest.raises(MessageRefusedError, match=words):
        store.put(replace(message(), **changes))  # type: ignore[arg-type]
    assert store.max_journal_offset == 0
    assert store.queues == []
    assert not list((root / "queue").iterdir())


def test_record_that_no_file_has_room_for_is_refused(store: JournalStore) -> None:
    noise = random.Random(1).randbytes(2048)
    with pytest.raises(MessageRefusedError, match="expected a record of at most 4090 bytes"):
        store.put(message(body=noise, properties=(("k", "v" * 2000),)))
    with pytest.raises(MessageRefusedError, match="expected at most 4090, which fit in a file of 4096"):
        store.put_batch([message(body=noise), message(body=noise)])


def test_ordered_messages_of_a_business_id_are_in_one_queue_in_order(root: Path) -> None:
    with JournalStore.open(root, replace(SMALL, queue_count=7, journal_file_size_bytes=1 << 16)) as store:
        for number in range(200):
            store.put(message(number, business_id=f"order-{number % 10}", is_ordered=True))
        places: dict[str, set[int]] = {}
        for (_, queue_id), got in all_messages(store).items():
            numbers = [int(one.body.split()[1]) for one in got]
            assert numbers == sorted(numbers)
            for one in got:
                places.setdefault(one.business_id, set()).add(queue_id)
    assert all(len(queues) == 1 for queues in places.values())
    assert len(set.union(*places.values())) > 2


@pytest.mark.parametrize(
    ("business_id", "queue_id"),
    # 31 * h + character, its sign cleared; the last one's hash is Integer.MIN_VALUE.
    [("a", 97 % 7), ("ab", (97 * 31 + 98) % 7), ("", 0), ("polygenelubricants", 0)],
)
def test_business_id_is_hashed_as_a_string_of_java(business_id: str, queue_id: int) -> None:
    assert ordered_queue_id(business_id, 7) == queue_id


def test_ordered_message_is_refused_in_another_queue(store: JournalStore) -> None:
    own = ordered_queue_id("order-1", 2)
    assert store.put(message(1, is_ordered=True), own).queue_id == own
    with pytest.raises(MessageRefusedError, match=f"'order-1' belong to queue {own}, found {1 - own}"):
        store.put(message(1, is_ordered=True), 1 - own)


@pytest.mark.parametrize("queue_id", [-1, 2, 255])
def test_unknown_queue_of_a_topic_is_refused(store: JournalStore, queue_id: int) -> None:
    with pytest.raises(MessageRefusedError, match="queue_id: expected 0 to 1"):
        store.put(message(), queue_id)


def test_weights_decide_how_often_a_queue_is_chosen() -> None:
    routing = QueueSelector(replace(SMALL, queue_weights={"orders": (3, 0, 1)}), random.Random(1))
    chosen = [routing.choose_queue_id(message()) for _ in range(4000)]
    assert chosen.count(1) == 0
    assert 2800 < chosen.count(0) < 3200
    assert set(chosen) == {0, 2}
    equal = [routing.choose_queue_id(message(topic="payments")) for _ in range(4000)]
    assert 1800 < equal.count(0) < 2200
    assert set(equal) == {0, 1}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"queue_weights": {"orders": (0, 0)}}, "and not only 0"),
        ({"queue_weights": {"orders": ()}}, "1 to 255 numbers"),
        ({"queue_weights": {"orders": (1, -1)}}, "and not only 0"),
        ({"queue_count": 256}, "queue_count"),
        ({"queue_file_size_bytes": 100}, "multiple of 22"),
        ({"journal_file_size_bytes": 77}, "journal_file_size_bytes"),
        ({"broker_name": "a@b"}, "broker_name"),
        ({"server_address": Host.of("::1", 1)}, "server_address"),
        ({"compression_level": 10}, "compression_level"),
    ],
)
def test_options_that_no_store_can_have_are_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(StoreError, match=words):
        replace(SMALL, **changes)  # type: ignore[arg-type]


def test_damaged_record_is_an_error(root: Path, store: JournalStore) -> None:
    result = store.put(message(), 0)
    memory, _ = store._files.journal.files.locate(0)
    memory[result.journal_offset + HEAD.size + 4] ^= 0xFF
    with pytest.raises(StoreFilesError, match="the message with queue offset 0 of orders/0: body_crc"):
        store.get("orders", 0, 0)
    with pytest.raises(StoreFilesError, match="the message with queue offset 0 of orders/0: body_crc"):
        store.pull("orders", 0, 0, PullLimits(1, 100), lambda found: found.body)


def test_damaged_queue_entry_is_an_error(store: JournalStore) -> None:
    fill(store, 4)
    queue = store._files.queues.find("orders", 0)
    assert queue is not None
    memory, _ = queue.files.locate(0)
    memory[22 + 3] ^= 0xFF
    with pytest.raises(StoreFilesError, match="the message with queue offset 1 of orders/0 cannot be found: entry_crc"):
        store.get("orders", 0, 0)


def test_messages_have_times_of_receipt_and_append(store: JournalStore, clock: Clock) -> None:
    clock.now_ms = SENT_MS + 5
    prepared = store.preparing.prepare(message(), 0)
    clock.now_ms = SENT_MS + 9
    store.append(prepared)
    got = store.get("orders", 0, 0).messages[0]
    assert (got.receive_timestamp, got.store_timestamp) == (SENT_MS + 5, SENT_MS + 9)


def test_synced_put_returns_when_the_message_is_on_the_disk(root: Path) -> None:
    with JournalStore.open(root, replace(SMALL, flush_mode=FlushMode.SYNC)) as store:
        for number in range(60):
            store.put(message(number))
            assert store._files.journal.files.synced == store.max_journal_offset
        prepared = store.preparing.prepare(message())
        end = store.append(prepared)
        assert store._files.journal.files.synced < end.journal_offset + end.size
        assert store.sync_log() == store.max_journal_offset


def test_background_flush_brings_everything_to_the_disk(root: Path) -> None:
    with JournalStore.open(root, replace(SMALL, flush_interval_ms=1)) as store:
        results = fill(store, 20)
        end = results[-1].journal_offset + results[-1].size
        last = store.get_at(results[-1].journal_offset)
        assert last is not None
        wait_until(lambda: (saved := JournalCheckpointFile(root).value) is not None and saved.journal_end == end)
        assert JournalCheckpointFile(root).value == (end, last.journal_offset, last.store_timestamp, 20)
        assert all(queue.files.synced == queue.files.end for queue in store._files.queues)


def test_several_threads_put_concurrently(root: Path) -> None:
    with JournalStore.open(root, replace(SMALL, journal_file_size_bytes=1 << 16)) as store:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda number: store.put(message(number)), range(800)))
        queues = all_messages(store)
        assert sorted(one.body for got in queues.values() for one in got) == sorted(
            f"body {number}".encode() for number in range(800)
        )
        for got in queues.values():
            assert [one.queue_offset for one in got] == list(range(len(got)))
            assert [one.journal_offset for one in got] == sorted(one.journal_offset for one in got)


@pytest.mark.parametrize("sent_ms", [0, 1, (1 << 62), -(1 << 62)])
def test_an_implausible_time_of_a_producer_does_not_change_the_checkpoint(root: Path, sent_ms: int) -> None:
    with JournalStore.open(root, SMALL) as store:
        offset = store.put(replace(message(), send_timestamp=sent_ms)).journal_offset
        record = store.get_at(offset)
        assert record is not None
    checkpoint = JournalCheckpointFile(root).value
    assert checkpoint is not None
    assert checkpoint.store_timestamp == record.store_timestamp
