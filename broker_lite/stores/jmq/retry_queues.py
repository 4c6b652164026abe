"""An application's retries, and its dead letters, as queues: for consumers that know nothing but queues and offsets.

A retry whose time has come gets the next number of its application's queue of retries, and a dead letter that of the
queue of dead letters; both stand in `place`. No number is given twice, so a consumer that goes on where it was misses
nothing, also when the broker was killed meanwhile. A retry that fails leaves the queue, and comes again under another
number. Whoever says that he is done with everything before a number has consumed all of it that has not left.

`is_passed` tells whether the application has also gone past the first delivery of a message, which failed: only then is
the next delivery of the same message another one (see `take_failed`).
"""

from __future__ import annotations

import sqlite3
from typing import NamedTuple

from commitlake.broker_lite.stores.jmq.retry import Retry, RetryStatus, RetryStore
from commitlake.schemas.layouts.jmq.offsets import ConsumedQueue
from commitlake.schemas.layouts.rocketmq.topics import DLQ_PREFIX, RETRY_PREFIX


class RetryQueue(NamedTuple):
    """Whose queue, and of what: RETRYING or DEAD."""

    app: str
    status: RetryStatus


def topic_of(queue: RetryQueue) -> str:
    """The topic that shows a queue of the retry store."""
    return f"{DLQ_PREFIX if queue.status is RetryStatus.DEAD else RETRY_PREFIX}{queue.app}"


def retry_queue_of(topic: str) -> RetryQueue | None:
    """The queue of the retry store that a topic shows; None for a topic of the journal."""
    for prefix, status in ((RETRY_PREFIX, RetryStatus.RETRYING), (DLQ_PREFIX, RetryStatus.DEAD)):
        if topic.startswith(prefix):
            return RetryQueue(topic.removeprefix(prefix), status)
    return None


class RetryQueues:
    """The queues of a retry store; several threads may use it."""

    def __init__(self, retries: RetryStore) -> None:
        self._retries = retries

    def all(self) -> list[RetryQueue]:
        """The queues that have ever had a message."""
        with self._retries.transaction() as database:
            rows = database.execute("SELECT app, status FROM retry_queue").fetchall()
        return [RetryQueue(app, RetryStatus(status)) for app, status in rows]

    def next_due_ms(self) -> int | None:
        """When the next message is to be entered into a queue; None where none waits."""
        with self._retries.transaction() as database:
            if _first(database, "SELECT 1 FROM message_retry WHERE status = ? AND place IS NULL LIMIT 1", _DEAD):
                return 0
            return _first(
                database, "SELECT min(retry_time) FROM message_retry WHERE status = ? AND place IS NULL", _RETRYING
            )

    def enter_due(self, now_ms: int, limit: int) -> dict[RetryQueue, int]:
        """Enter the retries whose time has come, those due first coming first, and all dead letters.

        Args:
            now_ms: what was due by then.
            limit: how many of each kind at most.

        Returns:
            The queues that have got some, and how many.
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
                        "UPDATE message_retry SET place = ? WHERE id = ?", (_next_place(database, queue), number)
                    )
        return entered

    def bounds(self, queue: RetryQueue) -> range:
        """The numbers of a queue, from the first message that is still in it."""
        with self._retries.transaction() as database:
            following = _first(database, "SELECT following FROM retry_queue WHERE app = ? AND status = ?", *queue) or 0
            first = _first(
                database, "SELECT min(place) FROM message_retry WHERE app = ? AND status = ? AND place >= 0", *queue
            )
        return range(following if first is None else first, following)

    def get(self, queue: RetryQueue, place: int, max_messages: int) -> list[Retry]:
        """Messages of a queue, from a number on."""
        condition = "app = ? AND status = ? AND place >= ? ORDER BY place LIMIT ?"
        return self._retries.select(condition, (*queue, place, max_messages))

    def acknowledge(self, app: str, place: int) -> list[Retry]:
        """Note that an application has consumed all retries before a number; gives those that were not noted before."""
        condition = "app = ? AND status = ? AND place < ? ORDER BY place"
        done = self._retries.select(condition, (app, RetryStatus.RETRYING, place))
        for retry in done:
            self._retries.succeed(retry.id)
        return done

    def find(self, app: str, journal_offset: int) -> Retry | None:
        """What has become of an application's failure on the message of a record."""
        return next(iter(self._retries.select("app = ? AND journal_offset = ?", (app, journal_offset))), None)

    def drop(self, queue: RetryQueue) -> None:
        """Let the messages of a queue not come again, and those not that are still to be entered."""
        rows = self._retries.select("app = ? AND status = ?", tuple(queue))
        self._retries.delete([retry.id for retry in rows])

    def take_failed(self, place: ConsumedQueue, start: int, end: int) -> set[int]:
        """Which of the messages that an application goes past it has failed on, once for each time that it fails.

        Args:
            place: the application and its queue.
            start: queue offset of the first message.
            end: queue offset behind the last.
        """
        where = "topic = ? AND app = ? AND queue_id = ? AND queue_offset >= ? AND queue_offset < ? AND is_passed = 0"
        with self._retries.transaction() as database:
            rows = database.execute(f"SELECT queue_offset FROM message_retry WHERE {where}", (*place, start, end))
            failed = {queue_offset for (queue_offset,) in rows.fetchall()}
            if failed:
                database.execute(f"UPDATE message_retry SET is_passed = 1 WHERE {where}", (*place, start, end))
        return failed


_EVER = (1 << 63) - 1
_DEAD, _RETRYING = RetryStatus.DEAD, RetryStatus.RETRYING


def _first(database: sqlite3.Connection, question: str, *values: object) -> int | None:
    row = database.execute(question, values).fetchone()
    return None if row is None or row[0] is None else int(row[0])


def _next_place(database: sqlite3.Connection, queue: RetryQueue) -> int:
    place = _first(database, "SELECT following FROM retry_queue WHERE app = ? AND status = ?", *queue) or 0
    database.execute(
        "INSERT INTO retry_queue (app, status, following) VALUES (?, ?, ?)"
        " ON CONFLICT (app, status) DO UPDATE SET following = excluded.following",
        (*queue, place + 1),
    )
    return place
