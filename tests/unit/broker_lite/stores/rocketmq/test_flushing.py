"""Tests of flushes to the disk: content, time, and errors."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from commitlake.broker_lite.stores.engine.mapped_file import MappedFile, MappedFiles, check_free_space
from commitlake.broker_lite.stores.rocketmq import (
    DiskFullError,
    FlushMode,
    MessageStore,
    StoreOptions,
)
from commitlake.broker_lite.stores.rocketmq.store_files import CheckpointFile
from tests.support.message_stores import SMALL, fill, message
from tests.support.small_stores import STORED_MS, Clock, crash
from tests.support.waiting import wait_until

SYNC = StoreOptions(
    segment_size_bytes=4096, consume_queue_file_size_bytes=160, keep_index=False, flush_mode=FlushMode.SYNC
)
NEVER_MS = 3_600_000
LAZY = StoreOptions(
    segment_size_bytes=4096, consume_queue_file_size_bytes=160, keep_index=False, flush_interval_ms=NEVER_MS
)


def text_of(path: Path) -> str:
    """Return the text of a file, or an empty text if the file is missing because it is being replaced."""
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the synced files, in order."""
    names: list[str] = []
    real = os.fdatasync

    def recording(descriptor: int) -> None:
        names.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        real(descriptor)

    monkeypatch.setattr(os, "fdatasync", recording)
    return names


def test_sync_put_returns_when_the_message_is_on_the_disk(root: Path, synced: list[str]) -> None:
    with MessageStore.open(root, SYNC) as store:
        for number in range(3):
            result = store.put(message(number))
            assert store._files.log.files.synced >= result.physical_offset + result.size
        results = store.put_batch([message(3), message(4)])
        assert store._files.log.files.synced >= results[-1].physical_offset + results[-1].size
        assert len([name for name in synced if "commitlog" in name]) >= 4


def test_sync_put_that_rolls_puts_both_segments_on_the_disk(root: Path, synced: list[str]) -> None:
    with MessageStore.open(root, SYNC) as store:
        fill(store, 30)
    assert {Path(name).name for name in synced if "commitlog" in name} == {
        path.name for path in (root / "commitlog").iterdir()
    }
    assert len(list((root / "commitlog").iterdir())) > 1


def test_async_put_does_not_wait_for_the_disk(root: Path, clock: Clock) -> None:
    with MessageStore.open(root, LAZY, clock=clock) as store:
        store.put(message())
        assert store._files.log.files.synced == 0
        store.flush()
        assert store._files.log.files.synced == store.max_physical_offset


def test_async_message_is_on_the_disk_within_the_interval(root: Path) -> None:
    options = StoreOptions(segment_size_bytes=4096, keep_index=False, flush_interval_ms=10)
    with MessageStore.open(root, options) as store:
        store.put(message())
        wait_until(lambda: store._files.log.files.synced == store.max_physical_offset)


def test_checkpoint_is_written_within_a_second_or_two(root: Path, clock: Clock) -> None:
    store = MessageStore.open(root, SMALL, clock=clock)
    fill(store, 3)
    wait_until(lambda: CheckpointFile(root).value.min_timestamp == STORED_MS - 3000)
    crash(store)


def test_checkpoint_is_synced_after_log_and_queues(root: Path, synced: list[str]) -> None:
    with MessageStore.open(root, LAZY) as store:
        fill(store, 3)
        synced.clear()
        store.flush()
        folders = [Path(name).relative_to(root).parts[0] for name in synced]
    assert folders == ["commitlog", "consumequeue", "consumequeue", "checkpoint"]


def test_checkpoint_has_the_end_of_the_last_full_index_file(root: Path, clock: Clock) -> None:
    store = MessageStore.open(root, SMALL, clock=clock)
    for number in range(24):
        store.put(message(number, properties=(("KEYS", f"k{number}"),)))
        clock.now_ms += 1
    store.flush()
    value = CheckpointFile(root).value
    assert value.index_msg_timestamp == STORED_MS + 22
    assert value.logics_msg_timestamp == value.physic_msg_timestamp == STORED_MS + 23
    assert value.logics_physical_offset == store.get("orders", 0, 23).messages[0].physical_offset
    crash(store)


def test_checkpoint_of_a_store_without_new_messages_is_kept(root: Path, clock: Clock) -> None:
    with MessageStore.open(root, SMALL, clock=clock) as store:
        fill(store, 30)
    before = (root / "checkpoint").read_bytes()
    MessageStore.open(root, SMALL, clock=Clock(STORED_MS + 99)).close()
    assert (root / "checkpoint").read_bytes() == before


def test_several_writers_share_a_sync(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entered, go_on, syncs = threading.Event(), threading.Event(), []
    real = os.fdatasync

    def slow(descriptor: int) -> None:
        if "commitlog" in str(Path(f"/proc/self/fd/{descriptor}").readlink()):
            syncs.append(descriptor)
            entered.set()
            assert go_on.wait(20)
        real(descriptor)

    with MessageStore.open(root, SYNC) as store:
        store._flusher.stop()
        monkeypatch.setattr(os, "fdatasync", slow)
        writers = [threading.Thread(target=store.put, args=(message(number),)) for number in range(9)]
        writers[0].start()
        assert entered.wait(20)
        for writer in writers[1:]:
            writer.start()
        wait_until(lambda: store.max_offset("orders", 0) == 9)
        go_on.set()
        for writer in writers:
            writer.join()
        assert len(syncs) == 2


def test_writers_get_distinct_places_and_offsets(root: Path) -> None:
    options = StoreOptions(segment_size_bytes=4096, consume_queue_file_size_bytes=160, index_slots=7, index_entries=24)
    results: list[tuple[int, int]] = []

    def write(start: int) -> None:
        results.extend(result[:2] for result in fill(store, 50, start))

    with MessageStore.open(root, options) as store:
        threads = [threading.Thread(target=write, args=(1000 * number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(set(results)) == 200
        for queue_id in (0, 1):
            found = store.get("orders", queue_id, 0, 1000).messages
            assert [got.queue_offset for got in found] == list(range(100))
            assert all(len(store.get_by_key("orders", (got.keys or [""])[0])) == 1 for got in found)


@pytest.mark.parametrize(
    ("options", "size"),
    [(SMALL, 4096), (SMALL, 160), (SMALL, 548), (SYNC, 4096)],
    ids=["log", "queue", "index", "sync"],
)
def test_lack_of_disk_space_is_an_error_before_anything_is_written(
    root: Path, monkeypatch: pytest.MonkeyPatch, options: StoreOptions, size: int
) -> None:
    real = MappedFile.create

    def create(path: Path, wanted: int, mappings: MappedFiles) -> MappedFile:
        check(path.parent, wanted)
        return real(path, wanted, mappings)

    def check(folder: Path, wanted: int) -> None:
        if wanted == size:
            raise DiskFullError(f"{folder}: {wanted} bytes of free disk are needed for a new file, found 0")

    with MessageStore.open(root, options) as store:
        fill(store, 2)
        with monkeypatch.context() as broken:
            broken.setattr(MappedFile, "create", create)
            broken.setattr("commitlake.broker_lite.stores.rocketmq.message_index.check_free_space", check)
            with pytest.raises(DiskFullError, match=f"{size} bytes of free disk are needed"):
                fill(store, 60, start=2)
        count = store.max_offset("orders", 0) + store.max_offset("orders", 1)
        fill(store, 30, start=count)
        found = store.get("orders", 0, 0, 100).messages + store.get("orders", 1, 0, 100).messages
        assert sorted(int(got.body[5:]) for got in found) == list(range(count + 30))


def test_free_disk_space_is_reported_by_the_operating_system(tmp_path: Path) -> None:
    disk = os.statvfs(tmp_path)
    check_free_space(tmp_path, 0)
    with pytest.raises(DiskFullError, match=r"\d+ bytes of free disk are needed for a new file, found \d+"):
        check_free_space(tmp_path, disk.f_blocks * disk.f_frsize + 1)


QUICK = StoreOptions(segment_size_bytes=4096, consume_queue_file_size_bytes=160, keep_index=False, flush_interval_ms=10)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE, errno.EIO])
def test_a_failed_save_of_tables_is_retried(root: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.setattr("commitlake.broker_lite.stores.engine.flushing.CONFIG_SAVE_INTERVAL_SECONDS", 0.01)
    failed = threading.Event()
    with MessageStore.open(root, QUICK) as store:
        with monkeypatch.context() as broken:

            def fail(*_: object) -> None:
                failed.set()
                raise OSError(number, os.strerror(number))

            broken.setattr("commitlake.broker_lite.stores.engine.table_and_checkpoint_files.sync_folder", fail)
            store.config.consumer_offsets.commit("orders", "shipping", 0, 7)
            assert failed.wait(20)
            store.put(message(0))
        wait_until(lambda: "orders@shipping" in text_of(root / "config" / "consumerOffset.json"))
        assert store.put(message(1)).queue_offset == 1


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE])
def test_a_failed_write_of_the_checkpoint_is_retried(root: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.setattr("commitlake.broker_lite.stores.engine.flushing.QUEUE_FLUSH_INTERVAL_SECONDS", 0.01)
    failed = threading.Event()
    with MessageStore.open(root, QUICK, clock=Clock()) as store:
        with monkeypatch.context() as broken:

            def fail(*_: object) -> None:
                failed.set()
                raise OSError(number, os.strerror(number))

            broken.setattr(CheckpointFile, "save", fail)
            store.put(message(0))
            assert failed.wait(20)
            store.put(message(1))
        wait_until(lambda: CheckpointFile(root).value.min_timestamp == STORED_MS - 3000)
        store.put(message(2))


def test_a_failed_opening_of_the_log_for_a_sync_is_retried(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = threading.Event()
    with MessageStore.open(root, QUICK) as store:
        with monkeypatch.context() as broken:

            def fail(*_: object) -> None:
                failed.set()
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

            broken.setattr(MappedFile, "sync", fail)
            store.put(message(0))
            assert failed.wait(20)
        wait_until(lambda: store._files.log.files.synced == store.max_physical_offset)
        store.put(message(1))
