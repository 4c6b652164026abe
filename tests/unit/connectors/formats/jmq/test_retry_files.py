"""A retry store is read in each state that a broker leaves it in, without a change of its files."""

from __future__ import annotations

import inspect
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from commitlake.connectors.formats.jmq import retry_database, retry_files
from commitlake.connectors.formats.jmq.retry_files import read_retry_store
from commitlake.schemas.safe_store_files import UnsafeFileError
from tests.support.jmq_consumers import JmqShop
from tests.support.journal_stores import CLIENT
from tests.support.small_stores import STORED_MS, Clock

FAILED = [("orders", 0, 0, "mail", 1, False), ("orders", 0, 1, "mail", 1, False)]
DATABASE = Path("retry/retry.db")
COUNT = """
import sys
from commitlake.connectors.formats.jmq.retry_files import read_retry_store
stored = read_retry_store(sys.argv[1], "broker-a")
print(stored.rows.num_rows, stored.problems)
"""


@pytest.fixture
def shop(tmp_path: Path) -> JmqShop:
    """Four messages, two of which an application failed to consume."""
    shop = JmqShop(tmp_path, Clock())
    shop.send(0, 4)
    shop.consume("mail", 2, fails=lambda _: True)
    return shop


def found(store: Path) -> list[tuple[object, ...]]:
    stored = read_retry_store(str(store), "broker-a")
    assert (stored.is_read, stored.problems) == (True, [])
    names = ["topic", "queue_id", "queue_offset", "consumer_group", "attempt", "is_dead"]
    return [tuple(row.values()) for row in stored.rows.select(names).to_pylist()]


def contents(store: Path) -> dict[str, tuple[int, bytes]]:
    return {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in (store / "retry").iterdir()}


def problem(store: Path) -> str:
    stored = read_retry_store(str(store), "broker-a")
    assert (stored.is_read, stored.rows.num_rows) == (False, 0)
    return stored.problems[0]


def execute(store: Path, *statements: str) -> None:
    database = sqlite3.connect(store / DATABASE)
    for statement in statements:
        database.execute(statement)
    database.commit()
    database.close()


def test_times_and_attempts_are_those_of_the_broker(shop: JmqShop) -> None:
    shop.retry("mail", succeeds=False)
    rows = read_retry_store(str(shop.store), "broker-a").rows.to_pylist()
    failed = STORED_MS + 86_400_000
    assert [(row["attempt"], row["event_timestamp"].timestamp()) for row in rows] == [(2, failed / 1000)] * 2
    assert [row["due_timestamp"].timestamp() for row in rows] == [(failed + 3000) / 1000] * 2
    for _ in range(12):
        shop.retry("mail", succeeds=False)
    assert [row[-2:] for row in found(shop.store)] == [(4, True)] * 2
    assert read_retry_store(str(shop.store), "broker-a").rows.column("due_timestamp").null_count == 2


def test_nothing_changes_in_a_store_that_is_closed_open_or_copied(shop: JmqShop, tmp_path: Path) -> None:
    before = contents(shop.store)
    assert (found(shop.store), contents(shop.store)) == (FAILED, before)
    with shop.open() as (_, consuming):
        batch = consuming.take_batch("orders", "stock", 0, CLIENT, 1)
        assert batch is not None
        consuming.finish_batch(batch, {0: "no stock"})
        before = contents(shop.store)
        assert set(before) == {"retry.db", "retry.db-wal", "retry.db-shm"}
        # Connections of one process share their locks, so the broker needs a process of its own.
        count = subprocess.run([sys.executable, "-c", COUNT, shop.store], capture_output=True, text=True, check=True)
        assert count.stdout == "3 []\n"
        assert contents(shop.store) == before
        shutil.copytree(shop.store, tmp_path / "copy")
    (tmp_path / "copy" / "retry" / "retry.db-shm").unlink()
    before = contents(tmp_path / "copy")
    assert len(found(tmp_path / "copy")) == 3
    assert contents(tmp_path / "copy") == before


def test_a_store_without_a_retry_store_has_no_retries(tmp_path: Path) -> None:
    assert found(tmp_path) == []


def test_a_remote_store_is_read_from_a_copy(shop: JmqShop) -> None:
    assert read_retry_store(f"file://{shop.store}", "broker-a").rows.num_rows == 2
    shutil.rmtree(shop.store / "retry")
    assert read_retry_store(f"file://{shop.store}", "broker-a").rows.num_rows == 0


@pytest.mark.parametrize("name", ["retry.db", "retry.db-wal", "retry.db-shm"])
def test_links_are_refused(shop: JmqShop, name: str, tmp_path: Path) -> None:
    path = shop.store / "retry" / name
    if path.exists():
        path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UnsafeFileError):
        read_retry_store(str(shop.store), "broker-a")


@pytest.mark.parametrize("name", ["retry", "retry/retry.db"])
def test_a_link_that_replaces_a_checked_file_is_not_read(
    shop: JmqShop, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(shop.store, tmp_path / "other")
    execute(tmp_path / "other", "UPDATE message_retry SET app = 'secret'")

    def check_and_replace(path: Path, root: Path) -> tuple[int, int]:
        file = before(path, root)
        (shop.store / name).rename(tmp_path / "away")
        (shop.store / name).symlink_to(tmp_path / "other" / name)
        return file

    before = retry_files._file_identity
    monkeypatch.setattr(retry_files, "_file_identity", check_and_replace)
    assert "the file was replaced by a link or another file while it was opened" in problem(shop.store)


ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n"
DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "cut": (lambda path: path.write_bytes(path.read_bytes()[:5000]), "malformed"),
    "other": (lambda path: path.write_bytes(b"no database" * 1000), "not a database"),
    "unfinished": (lambda path: path.with_name("retry.db-journal").write_bytes(b"x" * 600), "unfinished transaction"),
    "no table": (
        lambda path: execute(path.parent.parent, "DROP TABLE message_retry"),
        "expected the table message_retry",
    ),
    "a name that is not UTF-8": (
        lambda path: execute(
            path.parent.parent,
            "PRAGMA writable_schema=ON",
            "INSERT INTO sqlite_master VALUES ('table', CAST(x'ff' AS TEXT), 'x', 99, 'CREATE TABLE')",
        ),
        "can't decode byte 0xff",
    ),
    "computed columns": (
        lambda path: execute(
            path.parent.parent,
            "DROP TABLE message_retry",
            "CREATE TABLE message_retry (topic AS (hex(zeroblob(400000000))), app, queue_id, queue_offset, "
            "journal_offset, status, retry_count, retry_time, update_time)",
        ),
        "found the computed columns 'topic'",
    ),
    "a large value": (
        lambda path: execute(
            path.parent.parent,
            "UPDATE message_retry SET topic = printf('%.*c', 20000000, 'x') || queue_offset",
        ),
        "too big",
    ),
    "a view": (
        lambda path: execute(path.parent.parent, "DROP TABLE message_retry", f"CREATE VIEW message_retry AS {ENDLESS}"),
        "expected the table message_retry",
    ),
}


@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_database_is_a_problem_that_names_it(shop: JmqShop, how: str) -> None:
    harm, told = DAMAGES[how]
    harm(shop.store / DATABASE)
    assert problem(shop.store).startswith(f"{shop.store}/retry/retry.db: cannot read the retry store")
    assert told in problem(shop.store)


def test_time_and_number_of_rows_are_limited(shop: JmqShop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry_files, "MAX_ROWS", 1)
    stored = read_retry_store(str(shop.store), "broker-a")
    assert (stored.rows.num_rows, len(stored.problems)) == (1, 1)
    monkeypatch.setattr(retry_database, "MAX_TEXT_BYTES", 100)
    assert "at most 100 bytes of text" in problem(shop.store)
    monkeypatch.setattr(retry_database, "MAX_SECONDS", -1.0)
    monkeypatch.setattr(retry_database, "_STEPS", 1)
    assert "interrupted" in problem(shop.store)


def test_rows_that_no_broker_writes_are_left_out(shop: JmqShop) -> None:
    execute(
        shop.store, "UPDATE message_retry SET topic = printf('%.*c', 300, 'x') WHERE queue_offset = 0",
        "UPDATE message_retry SET update_time = 9223372036854775807 WHERE queue_offset = 1",
    )  # fmt: skip
    stored = read_retry_store(str(shop.store), "broker-a")
    assert stored.rows.column("event_timestamp").to_pylist() == [None]
    assert "1 rows of message_retry are not as a broker writes them" in stored.problems[0]


USE = """
import sqlite3, sys
database = sqlite3.connect(sys.argv[1])
database.execute("UPDATE message_retry SET retry_time = retry_time + 1")
database.commit()
print("open", flush=True)
sys.stdin.read()
"""
CUT = """def _select_rows(database):
    import os
    os.truncate(sys.argv[1] + "-shm", 0)
    return _rows_then(database)


def _rows_then("""


@pytest.fixture
def used(shop: JmqShop) -> Iterator[Path]:
    """A store whose retry store another process has open."""
    command = [sys.executable, "-c", USE, str(shop.store / DATABASE)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as user:
        assert user.stdout is not None
        assert user.stdout.readline() == b"open\n"
        yield shop.store
        user.kill()  # its own mapping may be cut


def test_a_lock_file_that_is_cut_while_it_is_read_is_a_problem(used: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = inspect.getsource(retry_database)
    assert found(used) == FAILED
    monkeypatch.setattr(inspect, "getsource", lambda _: source.replace("def _select_rows(", CUT, 1))
    assert "was killed by SIGBUS" in problem(used)


def test_no_answer_in_time_is_a_problem(used: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry_files, "MAX_SECONDS", 0.1)
    monkeypatch.setattr(inspect, "getsource", lambda _: "import time; time.sleep(60)")
    assert "did not finish within" in problem(used)
