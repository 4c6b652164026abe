"""Deletion of a journal's files, together with the queue entries and records that only refer to their messages."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from commitlake.broker_lite.stores.engine.options import RetentionOptions
from commitlake.broker_lite.stores.jmq import JournalStore
from commitlake.schemas.layouts.jmq.consume_records import Consumption, DeliveryOutcome
from tests.support.journal_stores import CLIENT, SMALL, fill
from tests.support.small_stores import Clock

AT_ANY_HOUR = replace(SMALL, retention=RetentionOptions(1, tuple(range(24)), 97, 98, 99))
COUNT = 120
NOW = time.time()


@pytest.fixture
def used(root: Path, clock: Clock) -> Iterator[JournalStore]:
    """A store of several files of every kind; each message was consumed when the next one was stored."""
    with JournalStore.open(root, AT_ANY_HOUR, clock=clock) as store:
        for number in range(COUNT):
            (put,) = fill(store, 1, number)
            consumption = Consumption(
                "orders", put.queue_id, put.queue_offset, put.journal_offset, "mail", DeliveryOutcome.CONSUMED,
                clock.now_ms, 1, CLIENT,
            )  # fmt: skip
            store.log_consumption([consumption])
        store.flush()
        yield store


def files_of(root: Path, folder: str) -> list[Path]:
    """Return files in the order of their offsets."""
    return sorted((root / folder).iterdir())


def let_time_pass(root: Path, hours: float, folder: str, count: int) -> None:
    """Set the ages of the first files, each written a minute after the previous one."""
    for number, path in enumerate(files_of(root, folder)[:count]):
        os.utime(path, (NOW - hours * 3600 + 60 * number,) * 2)


def test_consume_records_are_deleted_with_their_messages(used: JournalStore, root: Path, clock: Clock) -> None:
    before = used.read_consumptions(0, 10 * COUNT)[0]
    let_time_pass(root, 3, "journal", 2)  # the second one 2 h 59 min ago
    let_time_pass(root, 3, "consume", 2)
    os.utime(files_of(root, "consume")[2], (NOW - 2.9 * 3600,) * 2)  # when the third one was written, too
    kept = files_of(root, "consume")[2:]
    assert used.delete_expired_files(NOW) == 2
    assert files_of(root, "consume") == kept
    after, end = used.read_consumptions(0, 10 * COUNT)
    assert after == before[-len(after) :]
    start = 2 * SMALL.journal_file_size_bytes
    assert [one for one in before if one.journal_offset >= start] == [
        one for one in after if one.journal_offset >= start
    ]
    used.close()
    with JournalStore.open(root, AT_ANY_HOUR, clock=clock) as again:
        assert again.read_consumptions(0, 10 * COUNT) == (after, end)
        again.log_consumption(after[:1])
        again.flush()
        assert again.read_consumptions(end, 10)[0] == after[:1]


def test_the_file_of_consume_records_in_use_is_kept(used: JournalStore, root: Path) -> None:
    let_time_pass(root, 9, "journal", 100)
    let_time_pass(root, 10, "consume", 100)
    assert used.delete_expired_files(NOW) > 2
    assert len(files_of(root, "journal")) == len(files_of(root, "consume")) == 1


def test_consume_records_are_kept_if_no_message_is_deleted(used: JournalStore, root: Path) -> None:
    let_time_pass(root, 9, "consume", 100)
    before = files_of(root, "consume")
    assert len(before) > 3
    assert used.delete_expired_files(NOW) == 0
    assert files_of(root, "consume") == before
