"""Reads a JMQ store's retry store: `retry/retry.db`, an SQLite database in which the broker keeps failed messages.

JMQ keeps them in a database of its own, with the columns of `message_retry` below; its broker_lite uses SQLite. The
file may be in use: it is opened for reading only, and nothing is written beside it. If that is not possible, as for a
store that was copied while its broker was running, a private copy is read.

Its content is not trusted. The number of rows, the size of a copy and the time are limited, texts are cut by SQLite,
and rows that no broker writes are counted and left out.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pyarrow.fs as pafs

from commitlake.connectors.formats.engine.files import resolve_filesystem
from commitlake.connectors.formats.engine.row_batch import MAX_TIMESTAMP_MS
from commitlake.connectors.formats.retries import RETRY_ROWS, StoredRetries
from commitlake.schemas.store_files import UnsafeFileError, files_in, open_file

FOLDER = "retry"
FILE_NAME = "retry.db"
MAX_ROWS = 1_000_000
"""Largest number of messages that are read."""
MAX_COPY_BYTES = 4 << 30
"""Largest size of a file that is copied."""
MAX_VALUE_BYTES = 16 << 20
"""Largest size of a value in the database."""
MAX_TEXT_BYTES = 512 << 20
"""Largest size in memory of all texts that are read."""
MAX_SECONDS = 30.0
RETRYING, DEAD = 1, -2
"""Values of the column `status`; JMQ calls -2 expired."""
_STEPS = 10_000  # of SQLite's machine, between two looks at the clock
_MAX_TEXT = 255
_MAX_INT32 = (1 << 31) - 2
_QUESTION = (
    f"SELECT substr(topic, 1, {_MAX_TEXT + 1}), queue_id, queue_offset, journal_offset, "
    f"substr(app, 1, {_MAX_TEXT + 1}), status, retry_count, retry_time, update_time FROM message_retry "
    f"WHERE status IN ({RETRYING}, {DEAD}) LIMIT {MAX_ROWS + 1}"
)


def read_retry_store(root: str, broker: str) -> StoredRetries:
    """Return the messages that wait in a store's retry store, and its dead letters; none if it has no retry store.

    Args:
        root: path or URI of the store's folder.
        broker: the store's name.

    Raises:
        UnsafeFileError: if a file of it is a link or not regular.
    """
    path = f"{root}/{FOLDER}/{FILE_NAME}"
    try:
        with _opened(root) as database:
            rows = [] if database is None else _rows(database)
    except UnsafeFileError:
        raise
    except (sqlite3.Error, UnicodeDecodeError, OSError, pa.ArrowException, OverflowError) as error:
        # UnicodeDecodeError: `sqlite3` decodes SQLite's own messages strictly, and they contain names of the file.
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        problem = f"{path}: cannot read the retry store: {reason}; retries and dead letters are as of the run before"
        return StoredRetries(is_read=False, problems=[problem])
    problems = []
    if len(rows) > MAX_ROWS:
        rows = rows[:MAX_ROWS]
        problems.append(f"{path}: has more than {MAX_ROWS:,} messages: the others are left out")
    good = [row for row in map(_checked, rows) if row is not None]
    if len(good) < len(rows):
        problems.append(f"{path}: {len(rows) - len(good):,} rows of message_retry are not as a broker writes them")
    return StoredRetries(_table(broker, good), problems=problems)


@contextmanager
def _opened(root: str) -> Iterator[sqlite3.Connection | None]:
    """Open the database; yield None if there is none."""
    if "://" in root:
        with tempfile.TemporaryDirectory(prefix="commitlake-retries-") as copies:
            if not _downloaded(root, Path(copies)):
                yield None
                return
            with closing(_connect(Path(copies) / FILE_NAME, "mode=rw")) as database:
                yield database
        return
    folder = Path(root) / FOLDER
    names = files_in(folder, lambda name: name in _FILES, below=Path(root))
    sizes = {name: (folder / name).lstat().st_size for name in names}
    if FILE_NAME not in sizes:
        yield None
        return
    _check_journal(sizes.get(_JOURNAL))
    if _SHARED in sizes or not sizes.get(_WAL):
        # A broker's lock file is there, or no transaction waits to be moved to the database.
        how = "mode=ro&readonly_shm=1" if _SHARED in sizes else "mode=ro&immutable=1"
        with closing(_connect(folder / FILE_NAME, how)) as database:
            if _can_read(database):
                yield database
                return
    with tempfile.TemporaryDirectory(prefix="commitlake-retries-") as copies:
        for name in (_WAL, FILE_NAME):
            if name in sizes:
                _copy(folder / name, Path(root), Path(copies) / name)
        with closing(_connect(Path(copies) / FILE_NAME, "mode=rw")) as database:
            yield database


_WAL, _SHARED, _JOURNAL = (f"{FILE_NAME}{suffix}" for suffix in ("-wal", "-shm", "-journal"))
_FILES = frozenset({FILE_NAME, _WAL, _SHARED, _JOURNAL})


def _check_journal(size: int | None) -> None:
    """Refuse to roll back a transaction, because a rollback journal can name files that SQLite then deletes."""
    if size:
        raise OSError(f"expected no unfinished transaction in {_JOURNAL}, found {size:,} bytes")


def _copy(source: Path, root: Path, target: Path) -> None:
    with os.fdopen(open_file(source, below=root), "rb") as file, target.open("wb") as copy:
        if (size := os.fstat(file.fileno()).st_size) > MAX_COPY_BYTES:
            raise OSError(f"expected at most {MAX_COPY_BYTES:,} bytes, found {size:,}")
        shutil.copyfileobj(file, copy, 1 << 20)


def _downloaded(root: str, folder: Path) -> bool:
    """Copy the database's files from another filesystem; return whether there is one."""
    filesystem, remote = resolve_filesystem(f"{root}/{FOLDER}")
    names = [_JOURNAL, _WAL, FILE_NAME]
    found = filesystem.get_file_info([f"{remote}/{name}" for name in names])
    if found[-1].type != pafs.FileType.File:
        return False
    _check_journal(found[0].size)
    for name, info in zip(names, found, strict=True):
        if info.type != pafs.FileType.File or name == _JOURNAL:
            continue
        if (info.size or 0) > MAX_COPY_BYTES:
            raise OSError(f"{name}: expected at most {MAX_COPY_BYTES:,} bytes, found {info.size:,}")
        with filesystem.open_input_stream(info.path) as source, (folder / name).open("wb") as copy:
            shutil.copyfileobj(source, copy, 1 << 20)
    return True


def _connect(path: Path, how: str) -> sqlite3.Connection:
    database = sqlite3.connect(f"file:{quote(str(path))}?{how}", uri=True, timeout=5, isolation_level=None)
    end = time.monotonic() + MAX_SECONDS
    database.set_progress_handler(lambda: time.monotonic() > end, _STEPS)
    database.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
    database.text_factory = lambda data: data.decode("utf-8", "replace")
    return database


def _can_read(database: sqlite3.Connection) -> bool:
    """Return whether a database can be read without changing its files."""
    try:
        database.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError:
        return False
    return True


def _rows(database: sqlite3.Connection) -> list[tuple[object, ...]]:
    database.execute("PRAGMA trusted_schema=OFF")
    database.execute("PRAGMA query_only=ON")
    found = database.execute("SELECT type FROM sqlite_master WHERE name = 'message_retry'").fetchone()
    if found is None or found[0] != "table":
        raise sqlite3.DatabaseError("expected a table message_retry, found none")
    columns = database.execute("SELECT name, hidden FROM pragma_table_xinfo('message_retry')")
    if computed := sorted(repr(name) for name, hidden in columns if hidden):
        raise sqlite3.DatabaseError(f"expected no computed columns in message_retry, found {', '.join(computed[:3])}")
    rows: list[tuple[object, ...]] = []
    size = 0
    for row in database.execute(_QUESTION):
        rows.append(row)
        size += sum(sys.getsizeof(value) for value in row if isinstance(value, str))
        if size > MAX_TEXT_BYTES:
            raise sqlite3.DataError(f"expected at most {MAX_TEXT_BYTES:,} bytes of texts in message_retry, found more")
    return rows


def _checked(row: tuple[object, ...]) -> tuple[str, int, int, int, str, int, int, int, int] | None:
    topic, queue_id, queue_offset, physical_offset, app, status, count, due, updated = row
    texts, numbers = (topic, app), (queue_id, queue_offset, physical_offset, status, count, due, updated)
    if not all(isinstance(text, str) and 0 < len(text) <= _MAX_TEXT for text in texts):
        return None
    if not all(isinstance(number, int) for number in numbers):
        return None
    is_valid = 0 <= queue_id <= 255 and queue_offset >= 0 and physical_offset >= 0  # type: ignore[operator]
    return row if is_valid and 0 <= count <= _MAX_INT32 else None  # type: ignore[operator, return-value]


def _table(broker: str, rows: Iterable[tuple[str, int, int, int, str, int, int, int, int]]) -> pa.Table:
    found = [
        {
            "broker": broker, "topic": topic, "queue_id": queue_id, "queue_offset": queue_offset,
            "physical_offset": physical_offset, "consumer_group": app, "attempt": count + 1, "is_dead": status == DEAD,
            "due_timestamp": None if status == DEAD else _micros(due), "event_timestamp": _micros(updated),
        }
        for topic, queue_id, queue_offset, physical_offset, app, status, count, due, updated in sorted(rows)
    ]  # fmt: skip
    return pa.Table.from_pylist(found, RETRY_ROWS)


def _micros(milliseconds: int) -> int | None:
    return milliseconds * 1000 if 0 <= milliseconds <= MAX_TIMESTAMP_MS else None
