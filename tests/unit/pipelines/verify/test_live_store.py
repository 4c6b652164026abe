"""A store that a broker has open: files that it has not written yet are not damage."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from commitlake.broker_lite.stores.jmq import JournalStore
from commitlake.broker_lite.stores.rocketmq import MessageStore
from commitlake.connectors.formats.registry import all_formats
from commitlake.connectors.reading.stores import find_stores
from commitlake.pipelines.verify.store_precheck import VerifyOptions
from commitlake.pipelines.verify.store_verification import StoreReport, verify_stores
from commitlake.pipelines.verify.store_view import is_locked
from commitlake.schemas.layouts.rocketmq.consumequeue import ENTRY
from tests.support.indexed_stores import OPTIONS, Clock, message, write_indexed_store
from tests.support.jmq_stores import OPTIONS as JMQ_OPTIONS
from tests.support.jmq_stores import put
from tests.support.store_damages import ROCKETMQ, patch

LAG = {"queue_not_dispatched", "index_not_dispatched"}


def verify(root: Path) -> StoreReport:
    (report,) = verify_stores(find_stores(str(root), "a", formats=all_formats()), VerifyOptions())
    return report


@contextmanager
def commit_log(root: Path) -> Iterator[Callable[[int], object]]:
    """An open store of RocketMQ's, as a function that stores a message."""
    chance = random.Random(1)
    with MessageStore.open(root, OPTIONS, clock=Clock()) as store:
        yield lambda number: store.put(message(number, chance))


@contextmanager
def journal(root: Path) -> Iterator[Callable[[int], object]]:
    """An open store of JMQ's, as a function that stores a message."""
    clock = Clock()
    with JournalStore.open(root, JMQ_OPTIONS, clock=clock, rng=random.Random(1)) as store:
        yield lambda number: put(store, clock, range(number, number + 1), seed=number)


@contextmanager
def written(store: Callable[[int], object]) -> Iterator[threading.Event]:
    """A thread that stores one message after another, and an event that it sets each time."""
    one_more, stop = threading.Event(), threading.Event()

    def write() -> None:
        for number in itertools.count(1):
            store(number)
            one_more.set()
            if stop.wait(0.002):
                return

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield one_more
    finally:
        stop.set()
        writer.join()


@pytest.mark.parametrize(
    ("opened", "lag"), [(commit_log, LAG), (journal, {"queue_not_dispatched"})], ids=["rocketmq", "jmq"]
)
def test_a_store_written_during_verify_has_no_finding(
    tmp_path: Path, opened: Callable[[Path], AbstractContextManager[Callable[[int], object]]], lag: set[str]
) -> None:
    root = tmp_path / "store"
    with opened(root) as store:
        store(0)
        reports = []
        with written(store) as one_more:
            for _ in range(4):
                one_more.clear()
                assert one_more.wait(60)
                reports.append(verify(root))
    assert all(report.is_live for report in reports)
    assert {code for report in reports for code in report.findings.codes} <= lag
    assert reports[-1].records > reports[0].records
    assert verify(root).findings.counts == {}


def test_checking_the_lock_does_not_release_it(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with MessageStore.open(root, OPTIONS, clock=Clock()):
        assert is_locked(root)
        assert is_locked(root)
    assert not is_locked(root)


def test_the_lock_of_a_file_on_another_disk_is_not_the_stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_indexed_store(tmp_path / "store", 20)
    inode = (root / "lock").stat().st_ino
    locks = f"1: POSIX  ADVISORY  WRITE 1 00:7f:{inode} 0 0\n"
    monkeypatch.setattr(Path, "read_text", lambda _: locks)
    assert not is_locked(root)


def test_a_crash_before_the_last_entries_is_a_lag(tmp_path: Path) -> None:
    root = write_indexed_store(tmp_path / "store", 100)
    (root / "abort").touch()
    for found in ROCKETMQ.messages(root)[-5:]:
        path, position = ROCKETMQ.queue_file(root, found.queue_offset, (found.topic, found.queue_id))
        patch(path, position, bytes(ENTRY.size))
    assert dict(verify(root).findings.counts) == {"abort_present": 1, "queue_not_dispatched": 5}


def test_missing_entry_is_no_lag_after_the_log_lost_its_end(tmp_path: Path) -> None:
    root, chance = tmp_path / "store", random.Random(3)
    with MessageStore.open(root, OPTIONS, clock=Clock()) as store:
        for number in range(60):
            store.put(replace(message(number, chance), topic="only", queue_id=0))
    (root / "abort").touch()
    for lost in ROCKETMQ.messages(root)[-20:]:
        ROCKETMQ.patch_log(root, lost.physical_offset, bytes(lost.size))
    path, position = ROCKETMQ.queue_file(root, 5, ("only", 0))
    patch(path, position, bytes(ENTRY.size))
    counts = verify(root).findings.counts
    assert (counts["queue_missing_entry"], counts["queue_beyond_log"]) == (1, 20)
    assert "queue_not_dispatched" not in counts


@pytest.mark.parametrize(("crashed", "code"), [(True, "log_torn_tail"), (False, "log_torn_clean")])
def test_a_torn_end_is_judged_by_the_brokers_last_stop(tmp_path: Path, crashed: bool, code: str) -> None:
    root = write_indexed_store(tmp_path / "store", 40)
    if crashed:
        (root / "abort").touch()
    last = ROCKETMQ.messages(root)[-1]
    end = last.physical_offset + last.size
    ROCKETMQ.patch_log(root, end, b"\x00\x00\x01\x00\xda\xa3\x20\xa7 and no more")
    expected = {code: 1, **({"abort_present": 1} if crashed else {})}
    assert dict(verify(root).findings.counts) == expected


def test_a_log_that_lost_its_end_in_a_crash_is_reported(tmp_path: Path) -> None:
    root = write_indexed_store(tmp_path / "store", 40)
    (root / "abort").touch()
    last = ROCKETMQ.messages(root)[-1]
    ROCKETMQ.patch_log(root, last.physical_offset, bytes(last.size))
    found = dict(verify(root).findings.counts)
    assert found == {"abort_present": 1, "queue_beyond_log": 1, "checkpoint_ahead": 2, "index_beyond_log": 4}


def test_segments_deleted_by_age_are_not_damage(tmp_path: Path) -> None:
    root = write_indexed_store(tmp_path / "store")
    for start in (0, OPTIONS.segment_size_bytes):
        (root / "commitlog" / f"{start:020d}").unlink()
    assert dict(verify(root).findings.counts) == {}


def test_a_group_that_missed_deleted_messages_is_reported(tmp_path: Path) -> None:
    root = write_indexed_store(tmp_path / "store")
    (root / "commitlog" / f"{0:020d}").unlink()
    (root / "config" / "consumerOffset.json").write_text('{"offsetTable":{"rare@shipping":{0:0}}}')
    assert dict(verify(root).findings.counts) == {"offset_below_queue": 1}
