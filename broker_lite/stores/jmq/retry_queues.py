"""Queues of an application's retries and dead letters, for consumers that know only queues and offsets.

A retry that is due gets the next offset in its application's queue of retries, and a dead letter in the queue of dead
letters; the column `place` stores it. Offsets are never reused, so a consumer that resumes misses nothing, even after a
crash of the broker. A retry that fails leaves the queue, and later gets a new offset. A consumer that acknowledges an
offset has consumed all retries before it that are still in the queue.

`is_passed` is set when the application has also acknowledged the first, failed delivery of a message: only then is the
next delivery of the same message a new one (see `take_failed_offsets`).
"""

from __future__ import annotations

import sqlite3
from typing import NamedTuple

from commitlake.broker_lite.stores.jmq.retry_store import Retry, RetryStatus, RetryStore
from commitlake.schemas.layouts.jmq.offset_json import ConsumedQueue
from commitlake.schemas.layouts.rocketmq.topics import DLQ_PREFIX, RETRY_PREFIX


class RetryQueue(NamedTuple):
    """Queue of an application's retries (status RETRYING) or dead letters (DEAD)."""

    app: str
    status: RetryStatus


def topic_of_retry_queue(queue: RetryQueue) -> str:
    """Return the name of the RocketMQ retry or dead-letter topic for a queue of the retry store."""
    return f"{DLQ_PREFIX if queue.status is RetryStatus.DEAD else RETRY_PREFIX}{queue.app}"


def retry_queue_of(topic: str) -> RetryQueue | None:
    """Return the queue of the retry store for a RocketMQ retry or dead-letter topic; None for other topics."""
    for prefix, status in ((RETRY_PREFIX, RetryStatus.RETRYING), (DLQ_PREFIX, RetryStatus.DEAD)):
        if topic.startswith(prefix):
            return RetryQueue(topic.removeprefix(prefix), status)
    return None


class RetryQueues:
    """Queues of a retry store; several threads may use it."""

    def __init__(self, retries: RetryStore) -> None:
        self._retries = retries

    def all_queues(self) -> list[RetryQueue]:
        """Return the queues that have ever had a message."""
        with self._retries.transaction() as database:
            kept = "SELECT app, status FROM retry_queue WHERE status IN (?, ?)"
            rows = database.execute(kept, (_DEAD, _RETRYING)).fetchall()
        return [RetryQueue(app, RetryStatus(status)) for app, status in rows]

    def next_due_ms(self) -> int | None:
        """Return the earliest time at which a message must be added to a retry or dead-letter queue, ms, or None."""
        with self._retries.transaction() as database:
            if _select_int(database, "SELECT 1 FROM message_retry WHERE status = ? AND place IS NULL LIMIT 1", _DEAD):
                return 0
            return _select_int(
                database, "SELECT min(retry_time) FROM message_retry WHERE status = ? AND place IS NULL", _RETRYING
            )

    def enqueue_due_retries(self, now_ms: int, limit: int) -> dict[RetryQueue, int]:
        """Add due retries to the retry queues, the longest due first, and new dead letters to the dead-letter queues.

        Args:
            now_ms: current time.
            limit: maximum number of each kind.

        Returns:
            Number of entered messages by queue.
        """
        entered: dict[RetryQueue, int] = {}
        with self._retries.transaction() as database:
            for status, until in ((RetryStatus.DEAD, _EVER), (RetryStatus.RETRYING, now_ms)):
                rows = database.execute(
                    "SELECT id, app FROM message_retry WHERE status = ? AND retry_time <= ? AND place IS NULL"
                    " ORDER BY retry_time, id LIMIT ?",
                    (status, until, limit),
                ).fetchall()
                for number, app in rows:
                    queue = RetryQueue(app, status)
                    entered[queue] = entered.get(queue, 0) + 1
                    database.execute(
                        "UPDATE message_retry SET place = ? WHERE id = ?",
                        (_next_queue_position(database, queue), number),
                    )
        return entered

    def queue_offset_range(self, queue: RetryQueue) -> range:
        """Return the range of offsets of a queue, from the first message that is still in it."""
        with self._retries.transaction() as database:
            following = (
                _select_int(database, "SELECT following FROM retry_queue WHERE app = ? AND status = ?", *queue) or 0
            )
            first = _select_int(
                database, "SELECT min(place) FROM message_retry WHERE app = ? AND status = ? AND place >= 0", *queue
            )
        return range(following if first is None else first, following)

    def get(self, queue: RetryQueue, queue_offset: int, max_messages: int) -> list[Retry]:
        """Return messages of a retry or dead-letter queue, from an offset on."""
        condition = "app = ? AND status = ? AND place >= ? ORDER BY place LIMIT ?"
        return self._retries.select_retries(condition, (*queue, queue_offset, max_messages))

    def acknowledge(self, app: str, queue_offset: int) -> list[Retry]:
        """Record that an application has consumed all retries before an offset; return the newly recorded ones."""
        condition = "app = ? AND status = ? AND place < ? ORDER BY place"
        done = self._retries.select_retries(condition, (app, RetryStatus.RETRYING, queue_offset))
        for retry in done:
            self._retries.mark_consumed(retry.id)
        return done

    def find(self, app: str, journal_offset: int) -> Retry | None:
        """Return an application's retry of the message at a journal offset, or None."""
        return next(iter(self._retries.select_retries("app = ? AND journal_offset = ?", (app, journal_offset))), None)

    def drop(self, queue: RetryQueue) -> None:
        """Delete the messages of a queue, and those that would be added to it later."""
        rows = self._retries.select_retries("app = ? AND status = ?", tuple(queue))
        self._retries.delete([retry.id for retry in rows])

    def take_failed_offsets(self, consumed_queue: ConsumedQueue, start: int, end: int) -> set[int]:
        """Return the queue offsets in a range at which an application failed messages; later calls omit these.

        Args:
            consumed_queue: application and queue.
            start: queue offset of the first message.
            end: queue offset after the last message.
        """
        where = "topic = ? AND app = ? AND queue_id = ? AND queue_offset >= ? AND queue_offset < ? AND is_passed = 0"
        with self._retries.transaction() as database:
            rows = database.execute(
                f"SELECT queue_offset FROM message_retry WHERE {where}", (*consumed_queue, start, end)
            )
            failed = {queue_offset for (queue_offset,) in rows.fetchall()}
            if failed:
                database.execute(f"UPDATE message_retry SET is_passed = 1 WHERE {where}", (*consumed_queue, start, end))
        return failed


_EVER = (1 << 63) - 1
_DEAD, _RETRYING = RetryStatus.DEAD, RetryStatus.RETRYING


def _select_int(database: sqlite3.Connection, sql: str, *values: object) -> int | None:
    row = database.execute(sql, values).fetchone()
    return None if row is None or row[0] is None else int(row[0])


def _next_queue_position(database: sqlite3.Connection, queue: RetryQueue) -> int:
    place = _select_int(database, "SELECT following FROM retry_queue WHERE app = ? AND status = ?", *queue) or 0
    database.execute(
        "INSERT INTO retry_queue (app, status, following) VALUES (?, ?, ?)"
        " ON CONFLICT (app, status) DO UPDATE SET following = excluded.following",
        (*queue, place + 1),
    )
    return place
