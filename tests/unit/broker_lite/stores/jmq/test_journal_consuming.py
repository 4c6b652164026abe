"""Tests of batches, retries and dead letters, and of reading what was produced and consumed."""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from commitlake.broker_lite.stores.engine.queue_reader import GetResult
from commitlake.broker_lite.stores.jmq import (
    Batch,
    Consuming,
    JournalStore,
    RetryStatus,
    StoreError,
    retry_delay_ms,
)
from commitlake.broker_lite.stores.jmq.retry_queues import RetryQueue, RetryQueues
from commitlake.broker_lite.stores.rocketmq import FlushMode, StoreFilesError
from commitlake.schemas.layouts.errors import UnserializableError
from commitlake.schemas.layouts.jmq.consume_records import DeliveryOutcome
from commitlake.schemas.layouts.jmq.journal import JournalMessage
from commitlake.schemas.layouts.rocketmq.hosts import Host
from tests.support.journal_stores import CLIENT, SMALL, fill, message
from tests.support.small_stores import STORED_MS, Clock, crash

OTHER = Host.of("192.168.1.11", 50123)
SECOND = 1000


@pytest.fixture
def consuming(store: JournalStore) -> Iterator[Consuming]:
    """Ten messages in each of two queues."""
    fill(store, 20)
    consuming = Consuming(store)
    yield consuming
    consuming.close()


def take(consuming: Consuming, count: int = 4, client: Host = CLIENT, app: str = "mail") -> Batch:
    """Take a batch that must exist."""
    batch = consuming.take_batch("orders", app, 0, client, count)
    assert batch is not None
    return batch


def numbers(batch: Batch) -> list[int]:
    return [one.queue_offset for one in batch.messages]


def test_batches_are_consecutive(consuming: Consuming) -> None:
    seen = []
    while (batch := consuming.take_batch("orders", "mail", 0, CLIENT, 4)) is not None:
        seen.append(numbers(batch))
        consuming.finish_batch(batch)
    assert seen == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert consuming.take_batch("orders", "mail", 9, CLIENT, 4) is None
    assert consuming.take_batch("nobody", "mail", 0, CLIENT, 4) is None


def test_any_number_of_lost_messages_is_passed_over(
    consuming: Consuming, store: JournalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    get, lost = store.get, 3000

    def get_after_lost(topic: str, queue_id: int, offset: int, count: int) -> GetResult[JournalMessage]:
        found = get(topic, queue_id, max(0, offset - lost), count)
        if offset < lost:
            return found._replace(messages=[], next_offset=offset + 1)
        return found._replace(next_offset=found.next_offset + lost)

    monkeypatch.setattr(store, "get", get_after_lost)
    batch = take(consuming, 4)
    assert (numbers(batch), batch.end) == ([0, 1, 2, 3], lost + 4)


def test_queue_is_consumed_by_one_consumer_of_an_application_at_a_time(consuming: Consuming) -> None:
    batch = take(consuming)
    assert consuming.take_batch("orders", "mail", 0, OTHER, 4) is None
    assert consuming.take_batch("orders", "mail", 1, OTHER, 4) is not None
    assert numbers(take(consuming, app="stock", client=OTHER)) == [0, 1, 2, 3]
    consuming.finish_batch(batch)
    assert numbers(take(consuming, client=OTHER)) == [4, 5, 6, 7]


def test_expired_batch_is_given_to_another_consumer(consuming: Consuming, clock: Clock) -> None:
    batch = take(consuming)
    clock.now_ms += SMALL.lock_timeout_ms
    second = take(consuming, client=OTHER)
    assert numbers(second) == numbers(batch)
    with pytest.raises(StoreError, match="the batch up to message 4 of"):
        consuming.finish_batch(batch)
    consuming.finish_batch(second)
    with pytest.raises(StoreError):
        consuming.finish_batch(second)


def test_unfinished_batch_is_available_again_after_a_crash(root: Path) -> None:
    with JournalStore.open(root, SMALL, clock=Clock()) as store:
        fill(store, 20)
        consuming = Consuming(store)
        consuming.finish_batch(take(consuming, 2))
        store.offsets.save_if_changed()
        take(consuming)
        consuming.close()
        crash(store)
    with JournalStore.open(root, SMALL, clock=Clock()) as store:
        consuming = Consuming(store)
        assert numbers(take(consuming)) == [2, 3, 4, 5]
        consuming.close()


def test_consumption_can_be_reset_to_an_earlier_offset(consuming: Consuming) -> None:
    consuming.finish_batch(take(consuming))
    batch = take(consuming)
    consuming.set_offset("orders", "mail", 0, 1)
    with pytest.raises(StoreError):
        consuming.finish_batch(batch)
    assert numbers(take(consuming)) == [1, 2, 3, 4]


def test_retries_wait_for_powers_of_three_seconds() -> None:
    assert [retry_delay_ms(attempt) for attempt in range(1, 6)] == [1000, 3000, 9000, 27_000, 81_000]
    assert retry_delay_ms(1000) == retry_delay_ms(31)


def test_failed_message_is_retried_and_the_others_continue(consuming: Consuming, clock: Clock) -> None:
    consuming.finish_batch(take(consuming), {1: "no such address"})
    assert numbers(take(consuming)) == [4, 5, 6, 7]
    assert consuming.take_retries("orders", "mail", 10) == []
    assert consuming.retries.next_due_ms("orders", "mail") == STORED_MS + SECOND
    clock.now_ms += SECOND
    assert consuming.take_retries("orders", "stock", 10) == []
    (retry,) = consuming.take_retries("orders", "mail", 10)
    assert retry.message.body == b"body 2"
    assert (retry.attempt, retry.exception) == (2, "no such address")
    assert consuming.finish_retry(retry, CLIENT, None) is RetryStatus.SUCCEEDED
    assert consuming.retries.next_due_ms("orders", "mail") is None


def test_each_retry_waits_longer_and_the_last_failure_makes_a_dead_letter(root: Path, clock: Clock) -> None:
    with JournalStore.open(root, replace(SMALL, retry_max_attempts=4), clock=clock) as store:
        fill(store, 2)
        consuming = Consuming(store)
        consuming.finish_batch(take(consuming), {0: "first"})
        waits = []
        for attempt in range(1, 5):
            due = consuming.retries.next_due_ms("orders", "mail")
            assert due is not None
            waits.append((due - clock.now_ms) // SECOND)
            clock.now_ms = due - 1
            assert consuming.take_retries("orders", "mail", 10) == []
            clock.now_ms = due
            (retry,) = consuming.take_retries("orders", "mail", 10)
            assert retry.attempt == attempt + 1
            status = consuming.finish_retry(retry, CLIENT, f"failure {attempt}")
        assert waits == [1, 3, 9, 27]
        assert status is RetryStatus.DEAD
        assert consuming.retries.next_due_ms("orders", "mail") is None
        (dead,) = consuming.retries.dead_letters("orders", "mail")
        assert (dead.message.body, dead.exception, dead.failed_retries) == (b"body 0", "failure 4", 4)
        assert consuming.retries.dead_letters("orders", "mail", after_id=dead.id) == []
        assert consuming.retries.dead_letters("orders", "stock") == []
        consuming.close()


def test_a_deleted_message_is_not_retried(consuming: Consuming, clock: Clock) -> None:
    consuming.finish_batch(take(consuming), {1: "no such address"})
    clock.now_ms += SECOND
    (retry,) = consuming.take_retries("orders", "mail", 10)
    consuming.retries.delete([retry.id])
    with pytest.raises(StoreError):
        consuming.finish_retry(retry, CLIENT, None)
    clock.now_ms += 10**9
    assert consuming.take_retries("orders", "mail", 10) == []


def test_message_becomes_dead_if_its_next_retry_would_be_too_late(root: Path, clock: Clock) -> None:
    with JournalStore.open(root, replace(SMALL, retry_expiry_ms=5 * SECOND), clock=clock) as store:
        fill(store, 2)
        consuming = Consuming(store)
        consuming.finish_batch(take(consuming), {0: "x"})
        for wait, status in ((1, RetryStatus.RETRYING), (3, RetryStatus.DEAD)):  # 9 s more would be too late
            clock.now_ms += wait * SECOND
            (retry,) = consuming.take_retries("orders", "mail", 10)
            assert consuming.finish_retry(retry, CLIENT, "x") is status
        consuming.close()


def test_retry_is_held_by_one_consumer_until_it_expires(consuming: Consuming, clock: Clock) -> None:
    consuming.finish_batch(take(consuming), {0: "x", 2: "y"})
    clock.now_ms += SECOND
    (first,) = consuming.take_retries("orders", "mail", 1)
    (second,) = consuming.take_retries("orders", "mail", 1)
    assert (first.message.queue_offset, second.message.queue_offset) == (0, 2)
    assert consuming.take_retries("orders", "mail", 1) == []
    clock.now_ms += SMALL.lock_timeout_ms
    with pytest.raises(StoreError, match="its time has expired"):
        consuming.finish_retry(first, CLIENT, None)
    assert len(consuming.take_retries("orders", "mail", 10)) == 2


def test_message_that_fails_twice_before_its_retry_waits_once(consuming: Consuming, clock: Clock) -> None:
    consuming.finish_batch(take(consuming, 1), {0: "first"})
    clock.now_ms += 500
    consuming.set_offset("orders", "mail", 0, 0)
    consuming.finish_batch(take(consuming, 1), {0: "second"})
    clock.now_ms += 500
    (retry,) = consuming.take_retries("orders", "mail", 10)
    assert retry.exception == "first"
    consuming.finish_retry(retry, CLIENT, None)
    consuming.set_offset("orders", "mail", 0, 0)
    consuming.finish_batch(take(consuming, 1), {0: "third"})
    clock.now_ms += SECOND
    (retry,) = consuming.take_retries("orders", "mail", 10)
    assert (retry.exception, retry.attempt) == ("third", 2)


def test_retries_survive_crashes_and_deleted_journal_files(root: Path, clock: Clock) -> None:
    with JournalStore.open(root, replace(SMALL, flush_mode=FlushMode.SYNC), clock=clock) as store:
        fill(store, 100)
        consuming = Consuming(store)
        consuming.finish_batch(take(consuming), {1: "\ud800 and a long reason " + "x" * 10_000})
        consuming.close()
        crash(store)
    (root / "journal" / f"{0:020d}").unlink()
    clock.now_ms += SECOND
    with JournalStore.open(root, SMALL, clock=clock) as store:
        consuming = Consuming(store)
        (retry,) = consuming.take_retries("orders", "mail", 10)
        assert retry.message.body == b"body 2"
        assert retry.exception.startswith("? and a long reason")
        consuming.close()


@pytest.mark.parametrize("data", [b"no database" * 100, b"SQLite format 3\0" + b"\xff" * 5000])
def test_file_that_is_not_a_retry_store_is_an_error(root: Path, store: JournalStore, data: bytes) -> None:
    path = root / "retry" / "retry.db"
    path.parent.mkdir()
    path.write_bytes(data)
    with pytest.raises(StoreFilesError, match=r"retry\.db: the retry store cannot be opened"):
        Consuming(store)


def test_foreign_database_is_an_error(root: Path, store: JournalStore) -> None:
    path = root / "retry" / "retry.db"
    path.parent.mkdir()
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE other (id INTEGER)")
    database.close()
    with pytest.raises(StoreFilesError, match="expected a retry store of version 2, found 0"):
        Consuming(store)


@pytest.mark.parametrize(("app", "client"), [("a" * 256, CLIENT), ("\ud800", CLIENT), ("mail", Host.of("::1", 1))])
def test_a_consumer_that_cannot_be_recorded_is_refused_immediately(
    consuming: Consuming, app: str, client: Host
) -> None:
    with pytest.raises(UnserializableError):
        consuming.take_batch("orders", app, 0, client, 4)
    assert numbers(take(consuming)) == [0, 1, 2, 3]


def test_archive_sees_every_message_and_every_consumption(
    store: JournalStore, consuming: Consuming, clock: Clock
) -> None:
    assert store.read_journal(0, 100) == ([], 0)
    consuming.finish_batch(take(consuming), {1: "x"})
    clock.now_ms += SECOND
    (retry,) = consuming.take_retries("orders", "mail", 10)
    consuming.finish_retry(retry, OTHER, None)
    assert store.read_consumptions(0, 100) == ([], 0)
    store.flush()
    produced, offset = [], 0
    while (found := store.read_journal(offset, 7))[0]:
        produced += found[0]
        offset = found[1]
    assert [one.body for one in produced] == [f"body {number}".encode() for number in range(20)]
    assert (produced[5].topic, produced[5].queue_id, produced[5].queue_offset) == ("orders", 1, 2)
    assert offset == store.max_journal_offset
    consumed, place = [], 0
    while (some := store.read_consumptions(place, 2))[0]:
        consumed += some[0]
        place = some[1]
    assert [(one.queue_offset, one.outcome, one.attempt) for one in consumed] == [
        (0, DeliveryOutcome.CONSUMED, 1),
        (1, DeliveryOutcome.FAILED, 1),
        (2, DeliveryOutcome.CONSUMED, 1),
        (3, DeliveryOutcome.CONSUMED, 1),
        (1, DeliveryOutcome.CONSUMED, 2),
    ]
    assert [one.client_address for one in consumed] == [CLIENT] * 4 + [OTHER]
    assert {one.consume_timestamp for one in consumed} == {STORED_MS, STORED_MS + SECOND}
    by_place = {(one.queue_id, one.queue_offset): one for one in produced}
    assert all(by_place[one.queue_id, one.queue_offset].journal_offset == one.journal_offset for one in consumed)


def test_consume_records_continue_in_the_next_file_and_after_a_crash(root: Path, clock: Clock) -> None:
    options = replace(SMALL, journal_file_size_bytes=1 << 16)
    counts = 0
    for end in (crash, JournalStore.close, crash):
        store = JournalStore.open(root, options, clock=clock)
        fill(store, 50)
        consuming = Consuming(store)
        while (batch := consuming.take_batch("orders", "mail", 0, CLIENT, 10)) is not None:
            consuming.finish_batch(batch)
            counts += len(batch.messages)
        store.offsets.save_if_changed()
        store.flush()
        found, place = store.read_consumptions(0, 1000)
        assert [one.queue_offset for one in found] == list(range(counts))
        assert store.read_consumptions(place, 1000) == ([], place)
        consuming.close()
        end(store)
    assert len(list((root / "consume").iterdir())) == 5


def test_torn_consume_record_is_cut(root: Path, clock: Clock) -> None:
    with JournalStore.open(root, SMALL, clock=clock) as store:
        fill(store, 8)
        consuming = Consuming(store)
        consuming.finish_batch(take(consuming, 4))
        consuming.close()
    file = root / "consume" / f"{0:020d}"
    data = bytearray(file.read_bytes())
    size = int.from_bytes(data[:2], "big")
    data[3 * size + 20] ^= 0xFF
    file.write_bytes(data)
    with JournalStore.open(root, SMALL, clock=clock) as store:
        found, place = store.read_consumptions(0, 100)
        assert ([one.queue_offset for one in found], place) == ([0, 1, 2], 3 * size)
        assert file.read_bytes() == bytes(data[: 3 * size]).ljust(1024, b"\0")


def test_archive_continues_after_damage(root: Path, clock: Clock) -> None:
    with JournalStore.open(root, SMALL, clock=clock) as store:
        results = fill(store, 100)
        store.flush()
        memory, position = store._files.journal.files.locate(results[3].journal_offset)
        memory[position] = 0xFF
        produced, offset = store.read_journal(0, 1000)
        assert [one.body for one in produced] == [f"body {number}".encode() for number in range(100) if number != 3]
        assert offset == store.max_journal_offset


def test_lost_messages_are_skipped(root: Path, clock: Clock) -> None:
    with JournalStore.open(root, SMALL, clock=clock) as store:
        results = [store.put(message(number), 0) for number in range(60)]
    file = root / "journal" / f"{0:020d}"
    data = bytearray(file.read_bytes())
    for result in results[2:5]:
        data[result.journal_offset] = 0xFF
    file.write_bytes(data)
    (root / "checkpoint").unlink()
    with JournalStore.open(root, SMALL, clock=clock) as store:
        consuming = Consuming(store)
        seen = []
        while (batch := consuming.take_batch("orders", "mail", 0, CLIENT, 1)) is not None:
            seen += numbers(batch)
            consuming.finish_batch(batch)
        assert seen == [0, 1, *range(5, 60)]
        consuming.close()


def test_rollback_that_would_delete_another_file_is_refused(
    root: Path, store: JournalStore, consuming: Consuming, tmp_path: Path
) -> None:
    consuming.close()
    victim = tmp_path / "victim"
    victim.write_text("not of this store")
    name, end = str(victim).encode(), bytes.fromhex("d9d505f920a163d7")
    header = (end + struct.pack(">5I", 0, 1, 1, 512, 4096)).ljust(512, b"\0")
    named = struct.pack(">I", (1 << 18) + 1) + name + struct.pack(">II", len(name), sum(name))
    path = root / "retry" / "retry.db-journal"
    path.write_bytes(header + named + end)
    database = bytearray(path.with_name("retry.db").read_bytes())
    database[18:20] = b"\1\1"  # as if it had no write-ahead log, so that SQLite looks for a rollback journal
    path.with_name("retry.db").write_bytes(database)
    with pytest.raises(StoreFilesError, match="found one that names a super-journal"):
        Consuming(store)
    assert victim.exists()


@pytest.mark.parametrize(
    ("statements", "expected"),
    [
        (
            "CREATE TRIGGER more AFTER UPDATE ON message_retry BEGIN DELETE FROM message_retry; END",
            "other definitions of 'more'",
        ),
        (
            "DROP TABLE retry_queue; CREATE TABLE retry_queue (app, status, following)",
            "other definitions of 'retry_queue'",
        ),
        (
            """
            PRAGMA writable_schema=ON;
            INSERT INTO sqlite_master VALUES ('table', CAST(x'ff' AS TEXT), 'x', 99, 'CREATE TABLE');
            """,
            "the retry store cannot be opened",
        ),
    ],
)
def test_definitions_that_no_broker_writes_are_refused(
    root: Path, store: JournalStore, consuming: Consuming, statements: str, expected: str
) -> None:
    consuming.close()
    with closing(sqlite3.connect(root / "retry" / "retry.db")) as database:
        database.executescript(statements)
    with pytest.raises(StoreFilesError, match=expected):
        Consuming(store)


def test_numbers_that_no_broker_writes_end_no_loop(consuming: Consuming) -> None:
    consuming.finish_batch(take(consuming), {0: "no stock"})
    with consuming.retries.transaction() as database:
        database.execute("INSERT INTO retry_queue VALUES ('mail', 1, 9223372036854775807), ('mail', 77, 1)")
    queues = RetryQueues(consuming.retries)
    assert queues.all_queues() == [RetryQueue("mail", RetryStatus.RETRYING)]
    with pytest.raises(StoreFilesError, match="too large"):
        queues.enqueue_due_retries(1 << 62, 1)
