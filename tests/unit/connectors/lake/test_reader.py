"""Opening and querying a lake without a JVM: recognising a lake, memory of sorts, messages of errors."""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from deltalake.schema import Schema
from deltalake.transaction import AddAction

from commitlake.connectors.lake import delta
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.paths import LakeError
from commitlake.connectors.lake.reader import QueryError, clean_engine_message, run_sql
from commitlake.schemas.errors import ExitCode

ROOT = Path(__file__).parents[4]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake with six rows in three files."""
    root = tmp_path_factory.mktemp("lake")
    for number in (3, 1, 2):
        moments = [datetime.datetime(2026, 11, number, hour, tzinfo=datetime.UTC) for hour in (23, 1)]
        rows = {"store_timestamp": pa.array(moments, pa.timestamp("us", "UTC")), "number": [2 * number, 2 * number - 1]}
        write_deltalake(str(root / "messages"), pa.table(rows), mode="append")
    return Lake(str(root))


@pytest.mark.parametrize("sorts_all", [False, True])
def test_a_query_returns_its_rows_in_order(lake: Lake, sorts_all: bool) -> None:
    sql = "SELECT number FROM messages ORDER BY store_timestamp"
    answer = run_sql(lake.table("messages"), "messages", sql, sorts_large_result=sorts_all)
    assert answer.read_all()["number"].to_pylist() == [1, 2, 3, 4, 5, 6]


def test_a_folder_without_a_lake_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="does not exist: expected the folder of a lake"):
        Lake(str(tmp_path / "nowhere")).table("messages")
    with pytest.raises(LakeError, match=r"is not a lake: expected a Delta table in .*/messages"):
        Lake(str(tmp_path)).table("messages")


def test_the_error_for_a_missing_table_differs_from_that_for_a_missing_lake(lake: Lake, tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="has no table 'quarantine' yet"):
        lake.table("quarantine")
    with pytest.raises(LakeError, match="is not a lake"):
        Lake(str(tmp_path)).table("quarantine")


def test_the_paths_of_each_version_are_checked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = str(tmp_path / "messages")
    write_deltalake(uri, pa.table({"number": [1]}))
    checked: list[str] = []
    check = delta._check_file_paths

    def count(place: str, table: DeltaTable) -> None:
        checked.append(place)
        check(place, table)

    monkeypatch.setattr(delta, "_check_file_paths", count)
    for _ in range(3):
        delta.open_delta_table(uri)
    assert checked == [uri]
    action = {
        "path": "../elsewhere.parquet",
        "partitionValues": {},
        "size": 9,
        "modificationTime": 0,
        "dataChange": True,
    }
    (tmp_path / "messages" / "_delta_log" / f"{1:020d}.json").write_text(json.dumps({"add": action}))
    for _ in range(2):
        with pytest.raises(LakeError, match=r"found '\.\./elsewhere\.parquet'"):
            delta.open_delta_table(uri)


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT nothing FROM messages", "No field named nothing"),
        ("SELECT number FROM messages WHERE (1 = 1", r"^Expected: \), found: EOF$"),
        ("SELECT 1 / (number - number) FROM messages", "Divide by zero"),
    ],
)
def test_a_query_that_fails_is_one_line_of_error(lake: Lake, sql: str, message: str) -> None:
    with pytest.raises(QueryError, match=message) as raised:
        run_sql(lake.table("messages"), "messages", sql).read_all()
    assert "\n" not in str(raised.value)


def test_a_panic_of_the_engine_is_a_query_error(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    class PanicException(BaseException):
        """The exception that a panic in Rust raises in Python."""

    def execute(*_: object) -> None:
        raise PanicException("index out of bounds\nnote: run with a backtrace")

    monkeypatch.setattr(QueryBuilder, "execute", execute)
    with pytest.raises(QueryError, match=r"^the query failed in the engine: index out of bounds$"):
        run_sql(lake.table("messages"), "messages", "SELECT 1")


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_is_not_treated_as_a_panic(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, stop: type[BaseException]
) -> None:
    def execute(*_: object) -> None:
        raise stop

    monkeypatch.setattr(QueryBuilder, "execute", execute)
    with pytest.raises(stop):
        run_sql(lake.table("messages"), "messages", "SELECT 1")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Schema error: No field named x.\nValid fields are a, b.", "No field named x."),
        ("  plain  ", "plain"),
        ("", "no message"),
    ],
)
def test_a_message_is_cleaned(text: str, expected: str) -> None:
    assert clean_engine_message(text) == expected


SORT = """
import resource, sys
from deltalake import DeltaTable
from commitlake.connectors.lake.reader import run_sql
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
sql = "SELECT * FROM messages ORDER BY number"
answer = run_sql(DeltaTable(sys.argv[1]), "messages", sql, sorts_all=True)
rows, last = 0, -1
for batch in answer:
    numbers = batch.column("number").to_pylist()
    assert numbers[0] >= last and numbers == sorted(numbers)
    rows, last = rows + len(numbers), numbers[-1]
print(rows, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def test_a_time_that_the_engine_cannot_represent_is_damage(tmp_path: Path) -> None:
    times = pa.array([2**63 - 1], pa.int64()).cast(pa.timestamp("us", "UTC"))
    path = tmp_path / "table" / "part.parquet"
    path.parent.mkdir()
    pq.write_table(pa.table({"at": times}), path)
    table = DeltaTable.create(path.parent, Schema.from_arrow(pa.schema([("at", times.type)])))
    file = AddAction(path.name, path.stat().st_size, {}, 0, True, json.dumps({"numRecords": 1}))
    table.create_write_transaction([file], mode="append", schema=table.schema())
    with pytest.raises(QueryError, match="can compute only times from 1677 to 2262") as raised:
        run_sql(DeltaTable(path.parent), "found", "SELECT date_trunc('day', at) FROM found").read_all()
    assert raised.value.exit_code == ExitCode.DAMAGE


@pytest.mark.long("1.6 GB of rows; another version of deltalake alone would sort them in another way")
def test_an_answer_larger_than_its_memory_is_sorted_on_disk(tmp_path: Path) -> None:
    """1.6 GB of rows in a table; the engine may keep 512 MiB of them."""
    rows, wide = 200_000, 1000
    for part in range(8):
        numbers = pa.array((np.arange(rows) * 7919 + part) % 1_000_003, pa.int64())
        # Rows that fill memory and are quick to make: each begins at another place of one long text.
        text = pc.utf8_rpad(pc.cast(pc.add(numbers, part), pa.string()), wide, "x")
        write_deltalake(str(tmp_path / "messages"), pa.table({"number": numbers, "text": text}), mode="append")
    command = [sys.executable, "-c", SORT, str(tmp_path / "messages")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=300)
    assert done.returncode == 0, done.stderr
    count, mebibytes = (int(word) for word in done.stdout.split())
    assert count == 8 * rows
    assert mebibytes < 1000
