"""Tests of finding messages by queue and number, by time, by id, and by key."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from commitlake.broker_lite.stores.engine.mapped_file import MappedFiles
from commitlake.broker_lite.stores.rocketmq import (
    GetStatus,
    IndexDisabledError,
    MessageStore,
    StoreFilesError,
    StoreOptions,
)
from commitlake.schemas.layouts.errors import LayoutError
from commitlake.schemas.layouts.rocketmq.hosts import Host
from commitlake.schemas.layouts.rocketmq.indexfile import tags_index_key
from commitlake.schemas.layouts.rocketmq.message_id import serialize_message_id
from tests.support.message_stores import BORN_MS, BROKER, PRODUCER, SMALL, fill, message
from tests.support.small_stores import STORED_MS, Clock


def test_message_is_read_as_it_was_put(store: MessageStore) -> None:
    put = message(7, flag=5, sys_flag=0x301, reconsume_times=2, prepared_transaction_offset=99)
    result = store.put(put)
    (got,) = store.get("orders", 0, 0).messages
    assert (got.body, got.flag, got.sys_flag, got.reconsume_times) == (put.body, 5, 0x301, 2)
    assert (got.topic, got.queue_id, got.queue_offset) == ("orders", 0, 0)
    assert (got.born_timestamp, got.born_host, got.prepared_transaction_offset) == (BORN_MS, PRODUCER, 99)
    assert (got.store_timestamp, got.store_host) == (STORED_MS, BROKER)
    assert (got.physical_offset, got.size, got.msg_id) == (result.physical_offset, result.size, result.msg_id)
    assert got.property_pairs == list(put.properties)


def test_get_returns_as_many_messages_as_requested_and_the_next_offset(store: MessageStore) -> None:
    store.put_batch([message(number) for number in range(5)])
    found = store.get("orders", 0, 1, max_messages=3)
    assert found.status is GetStatus.FOUND
    assert [got.queue_offset for got in found.messages] == [1, 2, 3]
    assert (found.next_offset, found.min_offset, found.max_offset) == (4, 0, 5)


@pytest.mark.parametrize(
    ("queue_offset", "status", "next_offset"),
    [
        (-1, GetStatus.OFFSET_TOO_SMALL, 0),
        (2, GetStatus.OFFSET_OVERFLOW_ONE, 2),
        (3, GetStatus.OFFSET_OVERFLOW_BADLY, 2),
    ],
)
def test_get_outside_the_queue_returns_the_reason(
    store: MessageStore, queue_offset: int, status: GetStatus, next_offset: int
) -> None:
    store.put_batch([message(0), message(1)])
    found = store.get("orders", 0, queue_offset)
    assert (found.status, found.messages, found.next_offset) == (status, [], next_offset)


def test_get_of_zero_messages_finds_none(store: MessageStore) -> None:
    store.put(message())
    assert store.get("orders", 0, 0, max_messages=0).status is GetStatus.NO_MATCHED_MESSAGE


def test_get_of_an_unknown_queue_reports_it(store: MessageStore) -> None:
    assert store.get("nowhere", 0, 0).status is GetStatus.NO_MATCHED_LOGIC_QUEUE
    assert (store.min_offset("nowhere", 0), store.max_offset("nowhere", 0)) == (0, 0)


def test_damaged_record_is_an_error_and_not_a_shorter_result(store: MessageStore) -> None:
    fill(store, 4)
    memory, position = store._files.log.files.locate(store.get("orders", 0, 1).messages[0].physical_offset)
    memory[position + 88] ^= 0xFF
    with pytest.raises(
        StoreFilesError, match=r"queue offset 1 of orders/0: body_crc .* expected \d+ for these 6 bytes, found"
    ):
        store.get("orders", 0, 0)


def test_get_by_id_finds_the_message_of_every_result(store: MessageStore) -> None:
    for number, result in enumerate(fill(store, 9)):
        got = store.get_by_id(result.msg_id)
        assert got is not None
        assert got.body == f"body {number}".encode()


def test_get_by_id_of_another_broker_or_position_finds_nothing(store: MessageStore) -> None:
    result = store.put(message())
    store.put(message())
    assert store.get_by_id(serialize_message_id(Host.of("10.0.0.2", 10911), result.physical_offset)) is None
    for offset in (1, -1, result.size - 1, store.max_physical_offset, 1 << 62):
        assert store.get_by_id(serialize_message_id(BROKER, offset)) is None


def test_get_by_invalid_id_is_an_error(store: MessageStore) -> None:
    with pytest.raises(LayoutError, match="32 or 56 hexadecimal digits"):
        store.get_by_id("order-1")


def test_get_by_key_finds_business_keys_unique_keys_and_tags(store: MessageStore) -> None:
    fill(store, 30)
    for number in range(30):
        assert [got.body for got in store.get_by_key("orders", f"order-{number}")] == [f"body {number}".encode()]
        assert [got.body for got in store.get_by_key("orders", f"U{number:031d}")] == [f"body {number}".encode()]
    tagged = [got.body for got in store.get_by_key("orders", tags_index_key("tag1"))]
    assert tagged == [f"body {number}".encode() for number in range(1, 30, 3)]


def test_get_by_key_finds_every_part_of_keys(store: MessageStore) -> None:
    store.put(message(properties=(("KEYS", "a  b a"),)))
    assert [len(store.get_by_key("orders", key)) for key in ("a", "b", "a  b a", "")] == [1, 1, 0, 0]


def test_get_by_key_compares_topics_and_keys_besides_hashes(store: MessageStore) -> None:
    # "Aa" and "BB" have the same hash in Java.
    store.put(message(properties=(("KEYS", "Aa"),)))
    assert len(store.get_by_key("orders", "Aa")) == 1
    assert store.get_by_key("orders", "BB") == []
    assert store.get_by_key("payments", "Aa") == []


def test_get_by_key_returns_the_newest_in_the_order_of_the_log(store: MessageStore) -> None:
    for number in range(20):
        store.put(message(number, properties=(("KEYS", "same"),)))
    bodies = [got.body for got in store.get_by_key("orders", "same", limit=3)]
    assert bodies == [b"body 17", b"body 18", b"body 19"]


def test_get_by_key_respects_a_time_range_to_the_millisecond(store: MessageStore, clock: Clock) -> None:
    times = [STORED_MS + step for step in (0, 1, 999, 1000, 1001, 5_000, 3_600_000, 3_600_001)]
    for clock.now_ms in times:
        store.put(message(properties=(("KEYS", "same"),)))
    for begin in times:
        for end in times:
            found = store.get_by_key("orders", "same", begin, end)
            assert [got.store_timestamp for got in found] == [time for time in times if begin <= time <= end]


def test_get_by_key_finds_the_first_entry_of_a_file_that_began_after_a_pause(store: MessageStore, clock: Clock) -> None:
    # Its time in the file is measured from the end of the file before: 24 hours too much.
    for number in range(23):
        store.put(message(number, properties=(("KEYS", f"order-{number}"),)))
    clock.now_ms += 24 * 3_600_000
    store.put(message(23, properties=(("KEYS", "late"),)))
    assert len(list((store.path / "index").iterdir())) == 2
    assert len(store.get_by_key("orders", "late", clock.now_ms, clock.now_ms)) == 1


def test_get_by_key_without_an_index_is_an_error(root: Path) -> None:
    options = StoreOptions(segment_size_bytes=4096, keep_index=False)
    with MessageStore.open(root, options) as store:
        store.put(message())
        with pytest.raises(IndexDisabledError, match="keep_index is False"):
            store.get_by_key("orders", "order-0")
        assert list((store.path / "index").iterdir()) == []


def test_offset_by_time_is_the_first_stored_at_or_after(store: MessageStore, clock: Clock) -> None:
    for clock.now_ms in (1000, 1000, 2000, 2000, 2000, 3000):
        store.put(message())
    asked = (0, 999, 1000, 1001, 2000, 2001, 3000, 3001)
    assert [store.offset_by_time("orders", 0, time) for time in asked] == [0, 0, 0, 2, 2, 5, 5, 6]
    assert store.offset_by_time("nowhere", 0, 1000) == 0


def test_entry_at_returns_the_position_of_a_message(store: MessageStore) -> None:
    result = store.put(message(1))
    entry = store.entry_at("orders", 0, 0)
    assert entry is not None
    assert (entry.physical_offset, entry.size) == (result.physical_offset, result.size)
    assert [store.entry_at(*place) for place in (("orders", 0, 1), ("orders", 0, -1), ("nowhere", 0, 0))] == [None] * 3


def test_all_messages_are_found_with_only_one_mapped_file(
    root: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("commitlake.broker_lite.stores.rocketmq.store_files.MappedFiles", partial(MappedFiles, limit=1))
    with MessageStore.open(root, SMALL, clock=clock) as store:
        results = fill(store, 60)
    with MessageStore.open(root, SMALL, clock=clock) as store:
        for number, result in enumerate(results):
            (got,) = store.get_by_key("orders", f"order-{number}")
            assert got == store.get_by_id(result.msg_id) == store.get("orders", number % 2, number // 2).messages[0]
        assert len(store.get_by_key("orders", tags_index_key("tag1"))) == 20
