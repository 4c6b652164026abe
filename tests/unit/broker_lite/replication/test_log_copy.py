"""Tests of a copy of a log from chunks of any size: files, queues and answers are the same as the master's."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from commitlake.broker_lite.delivery import Delivery
from commitlake.broker_lite.errors import ReplicationError
from commitlake.broker_lite.replication.log_copy import LogCopy
from commitlake.broker_lite.stores.rocketmq import DiskFullError, MessageStore, StoreUnusableError
from tests.support.message_stores import BROKER, SMALL, fill, message, queue_entries
from tests.support.small_stores import Clock, all_messages, crash

SEGMENT = SMALL.segment_size_bytes
MORE_ENDS = pytest.mark.long("more ends of the same copy")


def log_bytes(store: MessageStore) -> bytes:
    """Return the bytes that a master would send, from its first byte on."""
    files = store.files.log.files
    end = store.max_physical_offset
    return b"".join(files.read(start, min(SEGMENT, end - start)) for start in files.file_starts if start < end)


def copy(log: LogCopy, data: bytes, start: int = 0, size: int = 700) -> None:
    """Append bytes as from a master, in chunks that end at each segment."""
    position = 0
    while position < len(data):
        offset = start + position
        step = min(size, SEGMENT - offset % SEGMENT, len(data) - position)
        log.append(offset, data[position : position + step])
        position += step


@pytest.fixture
def master(tmp_path: Path) -> Iterator[MessageStore]:
    """A store with three segments."""
    with MessageStore.open(tmp_path / "master", SMALL, clock=Clock()) as store:
        fill(store, 40)
        store.put(message(40, "delayed", properties=(("DELAY", "3"), ("UNIQ_KEY", "D" * 32))))
        fill(store, 20, 41, topic="payments")
        yield store


@pytest.mark.parametrize("more", [0, 1, 300, 2000])
def test_a_slave_that_stops_immediately_keeps_its_first_record(root: Path, master: MessageStore, more: int) -> None:
    first = master.get_at(0)
    assert first is not None
    slave = MessageStore.open(root, SMALL, clock=Clock())
    copy(LogCopy(slave), log_bytes(master)[: first.size + more], size=first.size + more)
    crash(slave)
    with MessageStore.open(root, SMALL, clock=Clock(), is_copy=True) as again:
        assert (LogCopy(again).end_offset or 0) >= first.size
        assert again.get_at(0) == first


@pytest.mark.parametrize("size", [1, 7, 91, 700, SEGMENT])
def test_a_copy_has_the_masters_log_queues_and_index(root: Path, master: MessageStore, size: int) -> None:
    with MessageStore.open(root, SMALL, clock=Clock()) as slave:
        copy(LogCopy(slave), log_bytes(master), size=size)
        assert all_messages(slave) == all_messages(master)
        assert slave.max_physical_offset == master.max_physical_offset == slave.log_end
        for number in range(61):
            key = f"order-{number}"
            assert slave.get_by_key("orders", key) == master.get_by_key("orders", key)
        assert slave.take_queues_with_new_messages() == set(master.queues)
        assert slave.config.topics.entries.keys() >= {"orders", "payments", "delayed"}
    assert master.max_physical_offset > 2 * SEGMENT
    master.close()
    for path in (root.parent / "master" / "commitlog").iterdir():
        assert (root / "commitlog" / path.name).read_bytes() == path.read_bytes()


def test_incomplete_records_are_not_visible(root: Path, master: MessageStore) -> None:
    data = log_bytes(master)
    first = master.get_at(0)
    assert first is not None
    with MessageStore.open(root, SMALL, clock=Clock()) as slave:
        log = LogCopy(slave)
        for position in range(first.size - 1):
            log.append(position, data[position : position + 1])
            assert log.end_offset == slave.log_end == position + 1
            assert slave.queues == []
        log.append(first.size - 1, data[first.size - 1 : first.size])
        assert slave.get("orders", 0, 0).messages == [first]


def test_a_copy_begins_with_the_segment_that_the_master_sends(root: Path, master: MessageStore) -> None:
    data = log_bytes(master)
    with MessageStore.open(root, SMALL, clock=Clock()) as slave:
        log = LogCopy(slave)
        assert log.end_offset is None
        copy(log, data[SEGMENT:], SEGMENT)
        assert slave.min_physical_offset == SEGMENT
        low = slave.min_offset("orders", 0)
        assert low > 0
        wanted = [one for one in all_messages(master)["orders", 0] if one.physical_offset >= SEGMENT]
        assert slave.get("orders", 0, low, 100).messages == wanted
    with MessageStore.open(root, SMALL, clock=Clock()) as again:
        assert again.get("orders", 0, low, 100).messages == wanted


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(seed, marks=MORE_ENDS) for seed in range(6, 30))])
@pytest.mark.parametrize("end", [crash, MessageStore.close])
def test_a_slave_that_stops_at_any_byte_continues_at_a_record(
    root: Path, master: MessageStore, end: Callable[[MessageStore], None], seed: int
) -> None:
    moment = random.Random(seed)
    data = log_bytes(master)
    cut = moment.randrange(1, len(data))
    first = master.get_at(0)
    assert first is not None
    slave = MessageStore.open(root, SMALL, clock=Clock())
    copy(LogCopy(slave), data[:cut], size=moment.randrange(50, 900))
    end(slave)
    with MessageStore.open(root, SMALL, clock=Clock(), is_copy=True) as again:
        log = LogCopy(again)
        start = log.end_offset or 0
        assert start <= cut
        # A crash loses only unsynced records of at most a second, but never the first record.
        assert start > cut - SEGMENT if end is MessageStore.close else start > 0 or cut < first.size
        copy(log, data[start:], start)
        assert all_messages(again) == all_messages(master)
        assert log_bytes(again) == data


def test_an_invalid_record_stops_the_copy_before_it(root: Path, master: MessageStore) -> None:
    data = bytearray(log_bytes(master))
    second = master.get("orders", 1, 0).messages[0]
    data[second.physical_offset + 90] ^= 0xFF
    with MessageStore.open(root, SMALL, clock=Clock()) as slave:
        log = LogCopy(slave)
        with pytest.raises(ReplicationError, match=f"body_crc at byte {second.physical_offset + 8}"):
            copy(log, bytes(data))
        assert log.end_offset == slave.log_end == second.physical_offset
        # The copy continues when the master sends valid records.
        copy(log, log_bytes(master)[second.physical_offset :], second.physical_offset)
        assert all_messages(slave) == all_messages(master)


@pytest.mark.parametrize("size", [-1, 0, 90, SEGMENT + 1, (1 << 31) - 1])
def test_an_invalid_size_is_refused_before_the_record_arrives(root: Path, size: int) -> None:
    with MessageStore.open(root, SMALL, clock=Clock()) as slave:
        log = LogCopy(slave)
        with pytest.raises(ReplicationError, match="total_size"):
            log.append(0, size.to_bytes(4, "big", signed=True) + bytes.fromhex("daa320a7"))
        assert slave.log_end == 0


def test_a_topic_that_was_deleted_and_created_again_starts_at_offset_0(root: Path, master: MessageStore) -> None:
    master.delete_queues("orders")
    results = fill(master, 6, 100)
    assert results[0].queue_offset == 0
    with MessageStore.open(root, SMALL, clock=Clock()) as slave:
        copy(LogCopy(slave), log_bytes(master))
        assert all_messages(slave) == all_messages(master)
    assert [entry.physical_offset for entry in queue_entries(root)] == [one.physical_offset for one in results[::2]]


def test_a_copy_continues_after_a_full_disk(root: Path, master: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    data = log_bytes(master)
    with MessageStore.open(root, SMALL, clock=Clock()) as slave:
        log = LogCopy(slave)
        copy(log, data[:3000])
        with monkeypatch.context() as patched:
            full = SimpleNamespace(f_bavail=0, f_frsize=1)
            patched.setattr("commitlake.broker_lite.stores.engine.mapped_file.os.statvfs", lambda _: full)
            with pytest.raises(DiskFullError):
                copy(log, data[3000:], 3000)
        start = log.end_offset
        assert start is not None
        copy(log, data[start:], start)
        assert all_messages(slave) == all_messages(master)
        assert slave.get_by_key("orders", "order-20") == master.get_by_key("orders", "order-20")


def test_a_closed_store_refuses_data(root: Path) -> None:
    slave = MessageStore.open(root, SMALL, clock=Clock())
    log = LogCopy(slave)
    slave.close()
    with pytest.raises(StoreUnusableError, match="the store is closed"):
        log.append(0, b"x")


def test_a_slave_that_becomes_the_master_delivers_waiting_messages(root: Path, tmp_path: Path) -> None:
    clock = Clock()
    with MessageStore.open(tmp_path / "old", SMALL, clock=clock) as old:
        Delivery(old).send(message(1, properties=(("DELAY", "1"), ("UNIQ_KEY", "D" * 32))))
        data = log_bytes(old)
    with MessageStore.open(root, SMALL, clock=clock) as slave:
        copy(LogCopy(slave), data)
    clock.now_ms += 10_000
    with MessageStore.open(root, SMALL, clock=clock) as new:
        (delivered,) = Delivery(new).deliver_due(clock.now_ms)
        assert delivered.store_host == BROKER
        assert [one.body for one in new.get("orders", 0, 0).messages] == [b"body 1"]
