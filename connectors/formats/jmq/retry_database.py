"""Reads the rows of a JMQ retry store's SQLite database, whose content is not trusted.

The size of values and texts, the number of rows and the time are limited. While a broker has the database open, SQLite
maps the broker's lock file; if another program truncates that file, the system kills the reading process. Such a
database is therefore read in a separate process, which runs the source text of this module. For that reason, the module
imports only the standard library.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import time
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import quote

MAX_ROWS = 1_000_000
"""Largest number of messages that are read."""
MAX_VALUE_BYTES = 16 << 20
"""Largest size of a value in the database."""
MAX_TEXT_BYTES = 512 << 20
"""Largest size in memory of all texts that are read."""
MAX_TEXT = 255
"""Longest text of a column; longer ones are cut to one character more."""
MAX_SECONDS = 30.0
RETRYING, DEAD = 1, -2
"""Values of the column `status`; JMQ calls -2 expired."""
CANNOT_OPEN = 75
"""Exit code of the process if the database cannot be read without changing its files."""
_OPEN_FILES = Path("/dev/fd")  # on Linux, /proc/self/fd
_STEPS = 10_000  # steps of SQLite's virtual machine between two checks of the time
_QUESTION = (
    f"SELECT substr(topic, 1, {MAX_TEXT + 1}), queue_id, queue_offset, journal_offset, "
    f"substr(app, 1, {MAX_TEXT + 1}), status, retry_count, retry_time, update_time FROM message_retry "
    f"WHERE status IN ({RETRYING}, {DEAD}) LIMIT {MAX_ROWS + 1}"
)


def read_rows(
    path: Path, uri_parameters: str, file_identity: tuple[int, int] | None = None, *, none_if_unreadable: bool = False
) -> list[tuple[object, ...]] | None:
    """Return the rows of failed messages, but at most `MAX_ROWS` + 1.

    One row more than allowed shows that there are too many.

    Args:
        path: path of the database.
        uri_parameters: parameters of SQLite's URI.
        file_identity: device and inode of the file that was checked, as SQLite follows links; None for our own copy.
        none_if_unreadable: whether to return None if SQLite cannot read the database in that way.

    Raises:
        sqlite3.Error: if it is not a database with such a table, a limit is exceeded, or another file was opened.
        UnicodeDecodeError: if SQLite's own message on it is not UTF-8.
    """
    with closing(_connect(path, uri_parameters)) as database:
        if file_identity is not None and not _is_file_open(file_identity):
            raise sqlite3.DatabaseError("the file was replaced by a link or another file while it was opened")
        return None if none_if_unreadable and not _can_read(database) else _select_rows(database)


def _connect(path: Path, uri_parameters: str) -> sqlite3.Connection:
    database = sqlite3.connect(f"file:{quote(str(path))}?{uri_parameters}", uri=True, timeout=5, isolation_level=None)
    end = time.monotonic() + MAX_SECONDS
    database.set_progress_handler(lambda: time.monotonic() > end, _STEPS)
    database.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
    database.text_factory = lambda data: data.decode("utf-8", "replace")
    return database


def _is_file_open(file_identity: tuple[int, int]) -> bool:
    """Return whether this process has a file open, given its device and inode."""
    for opened in _OPEN_FILES.iterdir():
        with suppress(OSError):  # the listing's own file
            status = opened.stat()
            if (status.st_dev, status.st_ino) == file_identity:
                return True
    return False


def _can_read(database: sqlite3.Connection) -> bool:
    """Return whether an SQLite database can be read without changing its files."""
    try:
        database.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError:
        return False
    return True


def _select_rows(database: sqlite3.Connection) -> list[tuple[object, ...]]:
    database.execute("PRAGMA trusted_schema=OFF")
    database.execute("PRAGMA query_only=ON")
    found = database.execute("SELECT type FROM sqlite_master WHERE name = 'message_retry'").fetchone()
    if found is None or found[0] != "table":
        raise sqlite3.DatabaseError("expected the table message_retry in the database, found no such table")
    columns = database.execute("SELECT name, hidden FROM pragma_table_xinfo('message_retry')")
    if computed := sorted(repr(name) for name, hidden in columns if hidden):
        raise sqlite3.DatabaseError(
            "expected only stored columns in the table message_retry, found the computed columns "
            f"{', '.join(computed[:3])}"
        )
    rows: list[tuple[object, ...]] = []
    size = 0
    for row in database.execute(_QUESTION):
        rows.append(row)
        size += sum(sys.getsizeof(value) for value in row if isinstance(value, str))
        if size > MAX_TEXT_BYTES:
            raise sqlite3.DataError(
                f"expected at most {MAX_TEXT_BYTES:,} bytes of text in the table message_retry, found more"
            )
    return rows


def main() -> int:
    """Print the rows of a database as JSON, given `read_rows`' arguments; an error goes to standard error."""
    try:
        rows = read_rows(Path(sys.argv[1]), sys.argv[2], (int(sys.argv[3]), int(sys.argv[4])), none_if_unreadable=True)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        print(str(error).splitlines()[0], file=sys.stderr)
        return 1
    if rows is None:
        return CANNOT_OPEN
    json.dump(rows, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
