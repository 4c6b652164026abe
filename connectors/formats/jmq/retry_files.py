"""Reads a JMQ store's retry store: `retry/retry.db`, an SQLite database in which the broker keeps failed messages.

JMQ keeps them in a database of its own, with the columns of `message_retry` below; its broker_lite uses SQLite. The
file may be in use: it is opened for reading only, and nothing is written beside it. If that is not possible, as for a
store that was copied while its broker was running, a private copy is read.

Its content is not trusted. The size of a copy is limited, `retry_database` limits how much is read from it, and rows
that no broker writes are counted and left out.
"""

from __future__ import annotations

import inspect
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs

from commitlake.connectors.formats.jmq import retry_database
from commitlake.connectors.formats.jmq.retry_database import (
    CANNOT_OPEN,
    DEAD,
    MAX_ROWS,
    MAX_SECONDS,
    MAX_TEXT,
    read_rows,
)
from commitlake.connectors.log_format.recorded_deliveries import RETRY_ROWS, StoredRetries
from commitlake.connectors.reading.decoding.row_batch import MAX_TIMESTAMP_MS
from commitlake.connectors.reading.files.shipped_stores import resolve_filesystem
from commitlake.connectors.storage.uris import is_uri
from commitlake.schemas.safe_store_files import UnsafeFileError, files_in, open_file, open_parent

FOLDER = "retry"
FILE_NAME = "retry.db"
MAX_COPY_BYTES = 4 << 30
"""Largest size of a file that is copied."""
_MAX_INT32 = (1 << 31) - 2


def read_retry_store(root: str, broker: str) -> StoredRetries:
    """Return a JMQ store's messages that wait for a retry, and its dead letters; none if it has no retry store.

    Args:
        root: path or URI of the store's folder.
        broker: the store's name.

    Raises:
        UnsafeFileError: if a file of it is a link or not regular.
    """
    path = f"{root}/{FOLDER}/{FILE_NAME}"
    try:
        rows = _read_database(root)
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
    good = [row for row in map(_parse_row, rows) if row is not None]
    if len(good) < len(rows):
        problems.append(f"{path}: {len(rows) - len(good):,} rows of message_retry are not as a broker writes them")
    return StoredRetries(_retry_table(broker, good), problems=problems)


def _read_database(root: str) -> Sequence[Sequence[object]]:
    """Return the rows of a retry store's database; no rows if there is no database."""
    if is_uri(root):
        with tempfile.TemporaryDirectory(prefix="commitlake-retries-") as copies:
            return _read_copied_database(copies) if _download_database(root, Path(copies)) else ()
    folder = Path(root) / FOLDER
    names = files_in(folder, lambda name: name in _FILES, trusted_root=Path(root))
    sizes = {name: (folder / name).lstat().st_size for name in names}
    if FILE_NAME not in sizes:
        return ()
    _refuse_rollback_journal(sizes.get(_JOURNAL))
    rows: Sequence[Sequence[object]] | None = None
    file = _file_identity(folder / FILE_NAME, Path(root))
    if _SHARED in sizes:  # a broker's lock file
        # A process of its own: the shared memory of a truncated file ends the process that maps it.
        rows = _read_rows_in_process(folder / FILE_NAME, "mode=ro&readonly_shm=1", file)
    elif not sizes.get(_WAL):  # no transaction waits to be moved to the database
        rows = read_rows(folder / FILE_NAME, "mode=ro&immutable=1", file, none_if_unreadable=True)
    if rows is not None:
        return rows
    with tempfile.TemporaryDirectory(prefix="commitlake-retries-") as copies:
        # The log of transactions first: what a broker moves to the database between the two copies is then in both.
        for name in (_WAL, FILE_NAME):
            if name in sizes:
                _copy_file(folder / name, Path(root), Path(copies) / name)
        return _read_copied_database(copies)


def _file_identity(path: Path, root: Path) -> tuple[int, int]:
    """Return device and inode of a file, without following links and without opening it.

    Closing a file of a database would release the locks of all of a process's connections to it.
    """
    with open_parent(path, root) as folder:
        status = os.stat(path.name, dir_fd=folder, follow_symlinks=False)
    return status.st_dev, status.st_ino


def _read_copied_database(folder: str) -> Sequence[Sequence[object]]:
    return read_rows(Path(folder) / FILE_NAME, "mode=rw") or ()


def _read_rows_in_process(
    path: Path, uri_parameters: str, file_identity: tuple[int, int]
) -> Sequence[Sequence[object]] | None:
    """Read a database in a separate process, and return its rows."""
    command = [
        sys.executable,
        "-I",
        "-c",
        inspect.getsource(retry_database),
        str(path),
        uri_parameters,
        *map(str, file_identity),
    ]
    try:
        ended = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=2 * MAX_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise OSError(
            f"the process that reads the retry store did not finish within {2 * MAX_SECONDS:.0f} s: check the disk, "
            "then run the command again"
        ) from None
    if ended.returncode == CANNOT_OPEN:
        return None
    if ended.returncode < 0:
        name = signal.Signals(-ended.returncode).name
        raise OSError(
            f"the process that read the retry store was killed by {name}, perhaps because one of its files was "
            "truncated or replaced"
        )
    if ended.returncode:
        lines = ended.stderr.decode("utf-8", "replace").splitlines()
        raise OSError(lines[-1] if lines else f"the process that read it ended with code {ended.returncode}")
    rows: list[list[object]] = json.loads(ended.stdout)
    return rows


_WAL, _SHARED, _JOURNAL = (f"{FILE_NAME}{suffix}" for suffix in ("-wal", "-shm", "-journal"))
_FILES = frozenset({FILE_NAME, _WAL, _SHARED, _JOURNAL})


def _refuse_rollback_journal(journal_size: int | None) -> None:
    """Refuse a database that needs a rollback, because a rollback journal can name files that SQLite then deletes."""
    if journal_size:
        raise OSError(
            f"expected a retry store without an unfinished transaction, found one of {journal_size:,} bytes in "
            f"{_JOURNAL}"
        )


def _copy_file(source: Path, root: Path, target: Path) -> None:
    with os.fdopen(open_file(source, trusted_root=root), "rb") as file, target.open("wb") as copy:
        if (size := os.fstat(file.fileno()).st_size) > MAX_COPY_BYTES:
            raise OSError(f"{source}: expected a file of at most {MAX_COPY_BYTES:,} bytes, found {size:,}")
        shutil.copyfileobj(file, copy, 1 << 20)


def _download_database(root: str, folder: Path) -> bool:
    """Copy the database's files from another filesystem; return whether the database exists."""
    filesystem, remote = resolve_filesystem(f"{root}/{FOLDER}")
    names = [_JOURNAL, _WAL, FILE_NAME]
    found = filesystem.get_file_info([f"{remote}/{name}" for name in names])
    if found[-1].type != pafs.FileType.File:
        return False
    _refuse_rollback_journal(found[0].size)
    for name, info in zip(names, found, strict=True):
        if info.type != pafs.FileType.File or name == _JOURNAL:
            continue
        if (info.size or 0) > MAX_COPY_BYTES:
            raise OSError(f"{name}: expected a file of at most {MAX_COPY_BYTES:,} bytes, found {info.size:,}")
        with filesystem.open_input_stream(info.path) as source, (folder / name).open("wb") as copy:
            shutil.copyfileobj(source, copy, 1 << 20)
    return True


def _parse_row(row: Sequence[object]) -> tuple[str, int, int, int, str, int, int, int, int] | None:
    topic, queue_id, queue_offset, physical_offset, app, status, count, due, updated = row
    texts, numbers = (topic, app), (queue_id, queue_offset, physical_offset, status, count, due, updated)
    if not all(isinstance(text, str) and 0 < len(text) <= MAX_TEXT for text in texts):
        return None
    if not all(isinstance(number, int) for number in numbers):
        return None
    is_valid = 0 <= queue_id <= 255 and queue_offset >= 0 and physical_offset >= 0  # type: ignore[operator]
    # One less than the largest, because `attempt` is one more than the count.
    return tuple(row) if is_valid and 0 <= count <= _MAX_INT32 else None  # type: ignore[operator, return-value]


def _retry_table(broker: str, rows: Iterable[tuple[str, int, int, int, str, int, int, int, int]]) -> pa.Table:
    found = [
        {
            "broker": broker, "topic": topic, "queue_id": queue_id, "queue_offset": queue_offset,
            "physical_offset": physical_offset, "consumer_group": app, "attempt": count + 1, "is_dead": status == DEAD,
            "due_timestamp": None if status == DEAD else _to_microseconds(due),
            "event_timestamp": _to_microseconds(updated),
        }
        for topic, queue_id, queue_offset, physical_offset, app, status, count, due, updated in sorted(rows)
    ]  # fmt: skip
    return pa.Table.from_pylist(found, RETRY_ROWS)


def _to_microseconds(milliseconds: int) -> int | None:
    return milliseconds * 1000 if 0 <= milliseconds <= MAX_TIMESTAMP_MS else None
