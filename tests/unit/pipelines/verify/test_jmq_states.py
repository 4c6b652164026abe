"""JMQ stores that are being written, that crashed, that lost their oldest files, or that their broker has repaired."""

from __future__ import annotations

import random
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest

from commitlake.broker_lite.stores.engine.options import RetentionOptions
from commitlake.broker_lite.stores.jmq import JournalStore
from commitlake.schemas.layouts.jmq.journal import JournalMessage
from commitlake.schemas.layouts.jmq.queue_file import ENTRY, JmqQueueEntry
from commitlake.schemas.layouts.segment_names import segment_name
from tests.support.indexed_stores import Clock
from tests.support.jmq_stores import FILE_BYTES, OPTIONS, open_again, put, write_jmq_store
from tests.support.journal_stores import journal_records, queue_entries
from tests.support.small_stores import crash
from tests.support.store_damages import JMQ, QUEUE, patch
from tests.support.store_reports import report_of


@pytest.fixture
def store(intact_jmq: Path, tmp_path: Path) -> Path:
    """A copy of the intact store."""
    return Path(shutil.copytree(intact_jmq, tmp_path / "store"))


def counts(root: Path) -> dict[str, int]:
    return dict(report_of(root).findings.counts)


def last_record(root: Path) -> JournalMessage:
    return list(journal_records(root))[-1]


def test_a_crash_before_the_last_entries_is_a_lag(store: Path) -> None:
    (store / "abort").touch()
    last = last_record(store)
    path = store / "queue" / last.topic / str(last.queue_id)
    newest = max(path.iterdir())
    patch(newest, last.queue_offset * ENTRY.size - int(newest.name), bytes(ENTRY.size))
    assert counts(store) == {"abort_present": 1, "queue_not_dispatched": 1}


@pytest.mark.parametrize("crashed", [True, False])
def test_a_torn_end_beyond_the_checkpoint_is_reported_as_a_torn_tail(store: Path, crashed: bool) -> None:
    if crashed:
        (store / "abort").touch()
    last = last_record(store)
    JMQ.patch_log(store, last.journal_offset + last.size, b"\x00\x00\x01\x00\x12\x34 and no more")
    assert counts(store) == {"log_torn_tail": 1, **({"abort_present": 1} if crashed else {})}


def test_a_torn_end_remains_a_torn_tail_after_a_restart_of_the_broker(store: Path) -> None:
    (store / "abort").touch()
    last = last_record(store)
    JMQ.patch_log(store, last.journal_offset + last.size, b"\x00\x00\x01\x00\x12\x34 and no more")
    open_again(store)
    assert counts(store) == {"log_torn_tail": 1}


def test_an_end_lost_after_a_clean_stop_is_damage(store: Path) -> None:
    last = last_record(store)
    JMQ.patch_log(store, last.journal_offset, b"\xff" * last.size)
    found = counts(store)
    assert found == {"log_torn_clean": 1, "checkpoint_ahead": 2, "queue_beyond_log": 1}


@pytest.mark.parametrize("gone", [1, 3])
def test_files_deleted_by_age_are_not_damage(store: Path, gone: int) -> None:
    for number in range(gone):
        (store / "journal" / segment_name(number * FILE_BYTES)).unlink()
    assert set(counts(store)) <= {"offset_below_queue"}


def test_a_store_whose_broker_has_deleted_expired_files_has_no_damage(store: Path) -> None:
    retention = RetentionOptions(file_reserved_hours=0, delete_hours=tuple(range(24)), delete_batch=4)
    with JournalStore.open(store, replace(OPTIONS, retention=retention), clock=Clock()) as opened:
        assert opened.delete_expired_files(time.time() + 10_000_000) == 4
        assert set(counts(store)) <= {"offset_below_queue"}
    assert int(min((store / "queue" / "topic-1" / "1").iterdir()).name) > 0
    assert set(counts(store)) <= {"offset_below_queue"}


def test_queues_rebuilt_by_the_broker_begin_at_their_first_message(store: Path) -> None:
    for number in range(3):
        (store / "journal" / segment_name(number * FILE_BYTES)).unlink()
    shutil.rmtree(store / "queue")
    open_again(store)
    first = min((store / "queue" / "topic-1" / "1").iterdir())
    assert int(first.name) % OPTIONS.queue_file_size_bytes
    assert set(counts(store)) == {"offset_below_queue"}
    first.unlink()
    assert counts(store)["queue_missing_file"] == 1


@pytest.mark.parametrize("number", [0, 6])
def test_messages_given_up_by_the_broker_are_reported(store: Path, number: int) -> None:
    JMQ.patch_field(store, JMQ.of_queue(store)[number], "body_crc", 1)
    shutil.rmtree(store / "queue")
    open_again(store)
    assert queue_entries(store, *QUEUE)[number] == JmqQueueEntry(JMQ.entry(store, number + 1).journal_offset, 0)
    report = report_of(store)
    assert dict(report.findings.counts) == {"log_bad_crc": 1, "log_lost_messages": 1}
    (finding,) = report.findings.kept["log_lost_messages"]
    assert (finding.file, finding.queue, finding.number) == ("journal", "topic-1/1", number)


def test_a_killed_store_has_no_damage(tmp_path: Path) -> None:
    root, clock = tmp_path / "store", Clock()
    store = JournalStore.open(root, OPTIONS, clock=clock, rng=random.Random(1))
    put(store, clock, range(100))
    crash(store)
    assert set(counts(root)) <= {"abort_present", "checkpoint_missing"}


def test_a_distant_send_time_is_not_a_clock_that_went_back(tmp_path: Path) -> None:
    root = write_jmq_store(tmp_path / "store", 200)
    message = JMQ.record(root, 20)
    for name, value in (("send_timestamp", 0), ("receive_delay", (1 << 31) - 1), ("store_delay", (1 << 31) - 1)):
        JMQ.patch_field(root, message, name, value)
    assert counts(root) == {}
