"""Retry store: messages that an application failed to consume, and the times of their retries.

The first retry comes 1 s after the failure, the next 3 s after that has failed, then 9 s, 27 s and so on: 3^n. A
message whose attempts or time are used up is a dead letter; it stays here until it is revived or deleted. Consumed and
deleted retries stay as long as the journal has the message. JMQ keeps retries in a separate database, and has no topic
for dead letters; here both are in `retry/retry.db` (SQLite), with the whole record, so that a message can outlive its
journal file. The columns `place` and `is_passed` are described in `retry_queues`.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

from commitlake.broker_lite.errors import StoreFilesError
from commitlake.broker_lite.stores.engine.options import FlushMode
from commitlake.broker_lite.stores.jmq.options import JournalOptions
from commitlake.schemas.layouts.jmq.journal import JournalMessage, parse_message
from commitlake.schemas.safe_store_files import make_folders, open_file, open_or_create_file

FOLDER = "retry"
FILE_NAME = "retry.db"
VERSION = 2
_MAX_EXPONENT = 30
_MAX_REASON = 4000
_SCHEMA = """
CREATE TABLE message_retry (
    id INTEGER PRIMARY KEY,
    topic TEXT NOT NULL,
    app TEXT NOT NULL,
    queue_id INTEGER NOT NULL,
    queue_offset INTEGER NOT NULL,
    journal_offset INTEGER NOT NULL,
    business_id TEXT NOT NULL,
    status INTEGER NOT NULL,
    retry_count INTEGER NOT NULL,
    retry_time INTEGER NOT NULL,
    expire_time INTEGER NOT NULL,
    create_time INTEGER NOT NULL,
    update_time INTEGER NOT NULL,
    exception TEXT NOT NULL,
    data BLOB NOT NULL,
    place INTEGER,
    is_passed INTEGER NOT NULL DEFAULT 0,
    UNIQUE (topic, app, queue_id, queue_offset)
) STRICT;
CREATE INDEX message_retry_due ON message_retry (topic, app, status, retry_time);
CREATE INDEX message_retry_waiting ON message_retry (status, retry_time) WHERE place IS NULL;
CREATE INDEX message_retry_place ON message_retry (app, status, place);
CREATE INDEX message_retry_record ON message_retry (app, journal_offset);
CREATE TABLE retry_queue (
    app TEXT NOT NULL,
    status INTEGER NOT NULL,
    following INTEGER NOT NULL,
    PRIMARY KEY (app, status)
) STRICT;
"""
_SUPER_JOURNAL = bytes.fromhex("d9d505f920a163d7")
"""Last bytes of a rollback journal that names another file, which SQLite deletes after the rollback."""
_DAMAGES = (sqlite3.DatabaseError, UnicodeDecodeError, OverflowError)
"""Errors that a damaged or foreign database can cause; `sqlite3` decodes SQLite's own messages strictly."""
_COLUMNS = "id, app, status, retry_count, retry_time, expire_time, exception, data, place"


class RetryStatus(IntEnum):
    """Status of a message in the retry store."""

    RETRYING = 1
    SUCCEEDED = 0
    DELETED = -1
    DEAD = -2


class Retry(NamedTuple):
    """Message that one application failed to consume.

    Attributes:
        id: number of the row in the retry store.
        app: application.
        status: status of the message.
        failed_retries: number of failed retries; the failed first delivery does not count.
        retry_time: time of the next retry, ms.
        expire_time: time at which it becomes a dead letter, ms.
        exception: reason of the last failure.
        message: message as it is, or was, in the journal.
        place: offset in the application's retry or dead-letter queue; None if it was not entered there yet.
    """

    id: int
    app: str
    status: RetryStatus
    failed_retries: int
    retry_time: int
    expire_time: int
    exception: str
    message: JournalMessage
    place: int | None = None

    @property
    def attempt(self) -> int:
        """Number of the last or next delivery: 2 for the first retry."""
        return self.failed_retries + 2


def _read_schema_definitions(database: sqlite3.Connection) -> set[tuple[str, str | None]]:
    """Return name and SQL statement of each table, index, view and trigger of a database."""
    return set(database.execute("SELECT name, sql FROM sqlite_master"))


def _expected_schema_definitions() -> set[tuple[str, str | None]]:
    with closing(sqlite3.connect(":memory:")) as database:
        database.executescript(_SCHEMA)
        return _read_schema_definitions(database)


def retry_delay_ms(attempt: int) -> int:
    """Return the delay before a retry, ms: 3^n seconds, where n is 0 for the first retry."""
    return 1000 * int(3 ** min(attempt - 1, _MAX_EXPONENT))


def _exception_text(exception: str) -> str:
    """Return the reason of a failure in stored form: limited in length, as valid UTF-8."""
    return exception[:_MAX_REASON].encode("utf-8", "replace").decode()


def _prepare_database_file(path: Path, root: Path) -> None:
    """Create the database file, and check the files that SQLite keeps beside it."""
    make_folders(path.parent, trusted_root=root)
    for suffix in ("-wal", "-shm", "-journal"):
        other = path.with_name(path.name + suffix)
        with suppress(FileNotFoundError), os.fdopen(open_file(other, os.O_RDWR), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(size - len(_SUPER_JOURNAL), 0))
            if suffix == "-journal" and file.read(len(_SUPER_JOURNAL)) == _SUPER_JOURNAL:
                raise StoreFilesError(
                    f"{other}: expected a rollback journal of only this database, found one that names a super-journal "
                    "of several"
                )
    os.close(open_or_create_file(path))  # SQLite creates its further files with the mode of this one


class RetryStore:
    """SQLite database of messages that applications failed to consume; several threads may use it."""

    def __init__(self, root: Path, options: JournalOptions, clock: Callable[[], int]) -> None:
        """Open the database, and create it if necessary.

        Raises:
            StoreFilesError: if the file is not a retry store.
            UnsafeFileError: if one of its files is a symbolic link or not a regular file.
        """
        self._options = options
        self._clock = clock
        self._guard = threading.RLock()
        self.path = root / FOLDER / FILE_NAME
        _prepare_database_file(self.path, root)
        self._database = sqlite3.connect(self.path, check_same_thread=False, isolation_level=None)
        try:
            self._prepare_database()
        except BaseException:
            self._database.close()
            raise

    def _prepare_database(self) -> None:
        try:
            self._database.execute("PRAGMA journal_mode=WAL")
            # With WAL and NORMAL, a crash of the machine can undo the last transactions, as it can undo messages in
            # ASYNC mode.
            level = "FULL" if self._options.flush_mode is FlushMode.SYNC else "NORMAL"
            self._database.execute(f"PRAGMA synchronous={level}")
            (version,) = self._database.execute("PRAGMA user_version").fetchone()
            tables = self._database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            if not version and not tables:
                self._database.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version={VERSION}; COMMIT;")
            elif version != VERSION:
                raise StoreFilesError(f"{self.path}: expected a retry store of version {VERSION}, found {version}")
            elif different := _read_schema_definitions(self._database) ^ _expected_schema_definitions():
                names = ", ".join(sorted({repr(name) for name, _ in different}))
                raise StoreFilesError(
                    f"{self.path}: expected the tables of a broker's retry store, found other definitions of {names}"
                )
        except _DAMAGES as error:
            raise StoreFilesError(f"{self.path}: the retry store cannot be opened: {error}") from error

    def close(self) -> None:
        """Close the database."""
        with self._guard:
            self._database.close()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Run the block as a database transaction; in SYNC mode, it is on disk afterwards."""
        with self._guard:
            try:
                # IMMEDIATE takes the lock for writing at once. A lock that is upgraded later could fail, with the block
                # half done.
                self._database.execute("BEGIN IMMEDIATE")
                try:
                    yield self._database
                except BaseException:
                    self._database.execute("ROLLBACK")
                    raise
                self._database.execute("COMMIT")
            except _DAMAGES as error:
                raise StoreFilesError(f"{self.path}: the retry store cannot be written: {error}") from error

    def add(self, app: str, failures: Sequence[tuple[JournalMessage, bytes, str]]) -> None:
        """Add messages whose first delivery has failed; those that it already contains stay as they are.

        Args:
            app: application that failed.
            failures: each message with its record and the reason.
        """
        now = self._clock()
        first, expires = now + retry_delay_ms(1), now + self._options.retry_expiry_ms
        with self.transaction() as database:
            for message, record, exception in failures:
                database.execute(
                    "INSERT INTO message_retry (topic, app, queue_id, queue_offset, journal_offset, business_id,"
                    " status, retry_count, retry_time, expire_time, create_time, update_time, exception, data)"
                    " VALUES (?, ?, ?, ?, ?, ?, ?, 0, ?, ?, ?, ?, ?, ?)"
                    " ON CONFLICT (topic, app, queue_id, queue_offset) DO UPDATE SET status = excluded.status,"
                    " retry_count = 0, retry_time = excluded.retry_time, expire_time = excluded.expire_time,"
                    " update_time = excluded.update_time, exception = excluded.exception, place = NULL, is_passed = 0"
                    f" WHERE status <> {RetryStatus.RETRYING:d}",
                    (
                        message.topic, app, message.queue_id, message.queue_offset, message.journal_offset,
                        message.business_id, RetryStatus.RETRYING, first, expires, now, now,
                        _exception_text(exception), record,
                    ),
                )  # fmt: skip

    def due_retries(self, topic: str, app: str, max_messages: int) -> list[Retry]:
        """Return the due retries of an application, the longest due first; the caller must lock them."""
        return self.select_retries(
            "topic = ? AND app = ? AND status = ? AND retry_time <= ? ORDER BY retry_time, id LIMIT ?",
            (topic, app, RetryStatus.RETRYING, self._clock(), max_messages),
        )

    def get(self, retry_id: int) -> Retry | None:
        """Return the retry with an id, or None."""
        return next(iter(self.select_retries("id = ?", (retry_id,))), None)

    def dead_letters(self, topic: str, app: str, max_messages: int = 100, after_id: int = 0) -> list[Retry]:
        """Return the dead letters of an application.

        Args:
            topic: topic of the messages.
            app: application.
            max_messages: maximum number of messages.
            after_id: `id` of the last one already seen.
        """
        return self.select_retries(
            "topic = ? AND app = ? AND status = ? AND id > ? ORDER BY id LIMIT ?",
            (topic, app, RetryStatus.DEAD, after_id, max_messages),
        )

    def next_due_ms(self, topic: str, app: str) -> int | None:
        """Return the time at which an application's next retry is due, or None if there is none."""
        with self._guard:
            row = self._database.execute(
                "SELECT min(retry_time) FROM message_retry WHERE topic = ? AND app = ? AND status = ?",
                (topic, app, RetryStatus.RETRYING),
            ).fetchone()
        return None if row[0] is None else int(row[0])

    def select_retries(self, sql_condition: str, values: tuple[object, ...]) -> list[Retry]:
        """Return the retries that match an SQL condition.

        Raises:
            StoreFilesError: if the database, or a record in it, is damaged.
        """
        with self._guard:
            try:
                rows = self._database.execute(f"SELECT {_COLUMNS} FROM message_retry WHERE {sql_condition}", values)
                return [self._retry_from_row(*row) for row in rows.fetchall()]
            except _DAMAGES as error:
                raise StoreFilesError(f"{self.path}: the retry store cannot be read: {error}") from error

    def _retry_from_row(
        self,
        retry_id: int,
        app: str,
        status: int,
        retry_count: int,
        due_ms: int,
        expiry_ms: int,
        exception: str,
        record: bytes,
        queue_offset: int | None,
    ) -> Retry:
        parsed = parse_message(record)
        if parsed is None:
            raise StoreFilesError(
                f"{self.path}: expected a complete record of a message in row {retry_id}, found {len(record)} bytes "
                "that are not"
            )
        return Retry(
            retry_id, app, RetryStatus(status), retry_count, due_ms, expiry_ms, exception, parsed[0], queue_offset
        )

    def mark_consumed(self, retry_id: int) -> None:
        """Record that a retry was consumed."""
        self._update_rows("status = ?, update_time = ?", (RetryStatus.SUCCEEDED, self._clock()), [retry_id])

    def record_failure(self, retry: Retry, failure_reason: str, max_attempts: int | None = None) -> RetryStatus:
        """Record that a retry has failed, and schedule the next one or make it a dead letter.

        Args:
            retry: retry as it was handed out; a second report for it has no effect.
            failure_reason: reason of the failure.
            max_attempts: maximum number of retries, if lower than in the store's options.
        """
        now, failed = self._clock(), retry.failed_retries + 1
        most = self._options.retry_max_attempts if max_attempts is None else max_attempts
        due = now + retry_delay_ms(failed + 1)
        is_dead = failed >= min(most, self._options.retry_max_attempts) or due > retry.expire_time
        status = RetryStatus.DEAD if is_dead else RetryStatus.RETRYING
        # Only if nobody has reported another failure of this retry since it was read.
        with self.transaction() as database:
            database.execute(
                "UPDATE message_retry SET status = ?, retry_count = ?, retry_time = ?, update_time = ?, exception = ?,"
                " place = NULL WHERE id = ? AND retry_count = ?",
                (status, failed, due, now, _exception_text(failure_reason), retry.id, retry.failed_retries),
            )
        return status

    def make_dead_letters(self, retry_ids: Iterable[int]) -> None:
        """Turn messages into dead letters without further retries."""
        self._update_rows("status = ?, update_time = ?, place = NULL", (RetryStatus.DEAD, self._clock()), retry_ids)

    def delete(self, retry_ids: Iterable[int]) -> None:
        """Mark failed messages as deleted, so that they are not retried; their rows stay."""
        self._update_rows("status = ?, update_time = ?", (RetryStatus.DELETED, self._clock()), retry_ids)

    def delete_finished_retries(self, journal_offset: int) -> None:
        """Delete the rows of consumed and deleted retries whose messages are before an offset of the journal.

        Such a message is no longer in the journal, so it cannot fail again. Dead letters stay.
        """
        ended = (RetryStatus.SUCCEEDED, RetryStatus.DELETED, journal_offset)
        with self.transaction() as database:
            database.execute("DELETE FROM message_retry WHERE status IN (?, ?) AND journal_offset < ?", ended)

    def _update_rows(self, assignments: str, values: tuple[object, ...], retry_ids: Iterable[int]) -> None:
        with self.transaction() as database:
            for number in retry_ids:
                database.execute(f"UPDATE message_retry SET {assignments} WHERE id = ?", (*values, number))
