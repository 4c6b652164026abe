"""Merging changes no row, keeps the order, and is safe with concurrent commits."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from commitlake.connectors.lake.archive_commits import read_last_commit
from commitlake.connectors.lake.delta_log.file_actions import TableFile, read_table_files
from commitlake.connectors.lake.delta_log.versions import added_versions
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.runtime.local_runner import ProcessRunner, ThreadRunner
from commitlake.connectors.runtime.runner import Runner
from commitlake.pipelines.maintenance import compaction, sorted_file_merge
from commitlake.pipelines.maintenance.compaction import compact_table, plan_bins, plan_compaction
from commitlake.pipelines.maintenance.file_replacement import ConcurrentMaintenanceError, replace_table_files
from commitlake.schemas.tables.lake_tables import LAKE_TABLES
from tests.support.lakes import GrowingLake, data_files, prepared_lake, rows_of, shop_messages

SORT_COLUMNS = LAKE_TABLES["messages"].sort_columns
MIB = 1 << 20


@pytest.fixture
def growing(tmp_path: Path) -> GrowingLake:
    """A lake of six runs over two days."""
    return prepared_lake(tmp_path, _archive_six_times)


def _archive_six_times(growing: GrowingLake) -> None:
    for seed in range(6):
        growing.write(shop_messages(60, days=2, seed=seed))
        growing.archive()


def compact_all(growing: GrowingLake, target_bytes: int = 128 * MIB) -> compaction.Compaction:
    """Merge all files that can be merged."""
    return compact_table(
        growing.lake, "messages", plan_compaction(growing.lake, "messages", target_bytes), SORT_COLUMNS
    )


def test_merging_keeps_the_rows_and_leaves_few_files(growing: GrowingLake) -> None:
    before, files = rows_of(growing.lake.uri("messages")), data_files(growing.lake.uri("messages"))
    assert len(files) == 12
    done = compact_all(growing)
    assert (done.merged, done.written, done.unsorted) == (12, 2, 0)
    assert rows_of(growing.lake.uri("messages")) == before
    assert len(data_files(growing.lake.uri("messages"))) == 2
    assert plan_compaction(growing.lake, "messages", 128 * MIB) == []


@pytest.mark.parametrize("runner", [ThreadRunner(2), ProcessRunner(2)], ids=["threads", "processes"])
def test_tasks_of_any_runner_merge_the_same_and_report_progress(growing: GrowingLake, runner: Runner) -> None:
    uri, told = growing.lake.uri("messages"), list[int]()
    before, bins = rows_of(uri), plan_compaction(growing.lake, "messages", 128 * MIB)
    done = compact_table(growing.lake, "messages", bins, SORT_COLUMNS, told.append, runner)
    assert (done.merged, done.written, done.unsorted) == (12, 2, 0)
    assert rows_of(uri) == before
    assert sorted(told) == sorted(found.size for found in bins)


def test_a_merged_file_is_sorted_and_written_as_the_archive_writes(growing: GrowingLake) -> None:
    (old,) = (
        pq.ParquetFile(f"{growing.lake.uri('messages')}/{path}")
        for path in data_files(growing.lake.uri("messages"))[:1]
    )
    compact_all(growing)
    for path in data_files(growing.lake.uri("messages")):
        with pq.ParquetFile(f"{growing.lake.uri('messages')}/{path}") as file:
            keys = file.read(list(SORT_COLUMNS)).to_pylist()
            assert keys == sorted(keys, key=lambda row: [row[name] for name in SORT_COLUMNS])
            assert file.schema_arrow.equals(old.schema_arrow)
            for number in range(file.metadata.num_columns):
                column, was = file.metadata.row_group(0).column(number), old.metadata.row_group(0).column(number)
                assert (column.compression, set(column.encodings)) == (was.compression, set(was.encodings))


def test_statistics_let_readers_skip_files(growing: GrowingLake) -> None:
    compact_all(growing)
    for action in pa.table(DeltaTable(growing.lake.uri("messages")).get_add_actions()).to_pylist():
        assert action["num_records"] == 180
        assert (action["min"]["topic"], action["max"]["topic"]) == ("topic-00", "topic-04")
        assert action["min"]["store_timestamp"] <= action["max"]["store_timestamp"]


def test_the_archive_continues_after_a_merge_and_followers_see_no_change(growing: GrowingLake) -> None:
    last, version = read_last_commit(growing.lake), DeltaTable(growing.lake.uri("messages")).version()
    compact_all(growing)
    assert read_last_commit(growing.lake) == last
    versions = list(added_versions(growing.lake.uri("messages"), version))
    assert len(versions) == 2
    assert all(not found.files and not found.removed for found in versions)
    growing.write(shop_messages(20, seed=9))
    assert growing.archive().sequence == 7
    assert len(rows_of(growing.lake.uri("messages"))) == 380


def test_a_large_file_is_not_merged(growing: GrowingLake) -> None:
    smallest = min(file.size for file in read_table_files(DeltaTable(growing.lake.uri("messages"))))
    assert plan_compaction(growing.lake, "messages", smallest * 2) == []
    assert plan_compaction(growing.lake, "messages", smallest * 20) != []


def file_of(number: int, size: int = 10, day: str | None = "2026-11-20", rows: int = 5) -> TableFile:
    """Return a file as a log might name it."""
    partition: dict[str, str | None] = {} if day is None else {"store_date": day}
    return TableFile(f"file-{number}", partition, size, rows, 1_700_000_000_000 + number)


def test_a_bin_has_neighbouring_files_up_to_the_target_size() -> None:
    bins = plan_bins([file_of(number) for number in (3, 0, 2, 1, 4)], 30)
    assert [[file.path for file in found.files] for found in bins] == [
        ["file-0", "file-1", "file-2"],
        ["file-3", "file-4"],
    ]


def test_files_of_different_dates_or_months_are_not_merged() -> None:
    days = [file_of(0), file_of(1), file_of(2, day="2026-11-21"), file_of(3, day="2026-11-21")]
    assert len(plan_bins(days, 1000)) == 2
    month_ms = 32 * 86_400_000
    months = [file_of(number * month_ms, day=None) for number in range(3)]
    assert plan_bins(months, 1000) == []
    assert len(plan_bins([*months, file_of(1, day=None)], 1000)) == 1


def test_files_that_cannot_be_merged_are_left_out() -> None:
    unknown = TableFile("unknown", {}, 10, None, 0)
    deleted = TableFile("deleted", {}, 10, 5, 0, has_deletions=True)
    assert plan_bins([file_of(0), unknown, deleted], 1000) == []


def test_a_file_in_another_order_is_not_changed(growing: GrowingLake) -> None:
    rows = DeltaTable(growing.lake.uri("messages")).to_pyarrow_table()
    write_deltalake(growing.lake.uri("messages"), rows.take(list(range(len(rows) - 1, -1, -1))), mode="append")
    before = rows_of(growing.lake.uri("messages"))
    done = compact_all(growing)
    assert (done.merged, done.unsorted) == (12, 2)
    assert rows_of(growing.lake.uri("messages")) == before


def test_a_column_added_later_is_null_in_older_rows(tmp_path: Path) -> None:
    uri = str(tmp_path / "table")
    write_deltalake(uri, pa.table({"name": ["b", "c"]}), mode="append")
    write_deltalake(
        uri, pa.table({"name": ["a"], "count": pa.array([1], pa.int32())}), mode="append", schema_mode="merge"
    )
    before = rows_of(uri)
    assert (
        compact_table(
            Lake(str(tmp_path)), "table", plan_compaction(Lake(str(tmp_path)), "table", MIB), ("name",)
        ).merged
        == 2
    )
    assert rows_of(uri) == before
    assert len(data_files(uri)) == 1


def test_rows_without_a_date_and_without_values_are_merged(tmp_path: Path) -> None:
    uri = str(tmp_path / "table")
    schema = pa.schema([("store_date", pa.date32()), ("topic", pa.string()), ("first_bytes", pa.binary())])
    for topics in (["a", None], ["b", "é"]):
        rows = pa.table([pa.nulls(2, pa.date32()), pa.array(topics), pa.array([b"\xff", None])], schema=schema)
        write_deltalake(uri, rows.sort_by([("topic", "ascending")]), mode="append", partition_by=["store_date"])
    before = rows_of(uri)
    lake = Lake(str(tmp_path))
    done = compact_table(lake, "table", plan_compaction(lake, "table", MIB), ())
    assert (done.merged, done.written) == (2, 1)
    assert rows_of(uri) == before


@pytest.mark.some_cases(1)
@pytest.mark.parametrize("batch_bytes", [1, 1 << 12, 64 << 20])
def test_any_size_of_batch_gives_the_same(
    growing: GrowingLake, monkeypatch: pytest.MonkeyPatch, batch_bytes: int
) -> None:
    monkeypatch.setattr(sorted_file_merge, "_BATCH_BYTES", batch_bytes)
    monkeypatch.setattr(sorted_file_merge, "_SMALLEST_BATCH", 3)
    before = rows_of(growing.lake.uri("messages"))
    compact_all(growing)
    assert rows_of(growing.lake.uri("messages")) == before


# --- look-ups ---


def groups_with(uri: str, topic: str) -> tuple[int, int, int]:
    """Count row groups that may hold a topic by their statistics, the rows of these, and all rows."""
    groups = rows = total = 0
    for path in data_files(uri):
        with pq.ParquetFile(f"{uri}/{path}") as file:
            names = [file.metadata.schema.column(number).path for number in range(file.metadata.num_columns)]
            for number in range(file.metadata.num_row_groups):
                group = file.metadata.row_group(number)
                statistics = group.column(names.index("topic")).statistics
                total += group.num_rows
                if statistics.min <= topic <= statistics.max:
                    groups, rows = groups + 1, rows + group.num_rows
    return groups, rows, total


@pytest.mark.long("needs many rows, and changes only with how files are written")
def test_a_look_up_by_topic_reads_few_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorted_file_merge, "_CHUNK_ROWS", 100)
    monkeypatch.setattr(compaction, "_ROW_GROUP_ROWS", 200)
    growing = GrowingLake(tmp_path)
    for seed in range(20):
        growing.write(shop_messages(400, topics=20, seed=seed))
        growing.archive()
    before = groups_with(growing.lake.uri("messages"), "topic-07")
    compact_all(growing)
    after = groups_with(growing.lake.uri("messages"), "topic-07")
    assert before == (20, 8000, 8000)  # a row group of every file, which is all there are
    assert after[0] <= 3
    assert after[1] <= 600
    assert after[2] == 8000


# --- at the same time ---


def test_a_second_merge_of_the_same_files_is_refused(growing: GrowingLake) -> None:
    uri = growing.lake.uri("messages")
    before, bins = rows_of(uri), plan_compaction(growing.lake, "messages", 128 * MIB)
    files = read_table_files(DeltaTable(uri))
    compact_table(growing.lake, "messages", bins, SORT_COLUMNS)
    with pytest.raises(ConcurrentMaintenanceError, match="replaced"):
        replace_table_files(growing.lake, "messages", files[:2], [], changes_data=False, note={})
    with pytest.raises(ConcurrentMaintenanceError):
        compact_table(growing.lake, "messages", bins, SORT_COLUMNS)
    assert rows_of(uri) == before


def test_a_merge_concurrent_with_deltalakes_optimize_fails_and_keeps_rows(
    growing: GrowingLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = growing.lake.uri("messages")
    before, bins = rows_of(uri), plan_compaction(growing.lake, "messages", 128 * MIB)
    DeltaTable(uri).optimize.compact()
    with pytest.raises(ConcurrentMaintenanceError, match="replaced"):
        compact_table(growing.lake, "messages", bins, SORT_COLUMNS)
    assert rows_of(uri) == before


@pytest.mark.parametrize("archives", [10, pytest.param(30, marks=pytest.mark.long("the same race more often"))])
def test_concurrent_merges_and_archive_runs_lose_no_row(tmp_path: Path, archives: int) -> None:
    growing = GrowingLake(tmp_path)
    growing.write(shop_messages(40))
    growing.archive()
    stop = threading.Event()
    outcomes: list[str] = []
    errors: list[BaseException] = []

    def maintain() -> None:
        try:
            while not stop.is_set():
                try:
                    outcomes.append(f"merged {compact_all(growing).merged > 0}")
                except ConcurrentMaintenanceError:
                    outcomes.append("refused")
        except BaseException as error:  # noqa: BLE001 (raised in the test's own thread)
            errors.append(error)

    threads = [threading.Thread(target=maintain) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for seed in range(1, archives + 1):
            growing.write(shop_messages(40, seed=seed))
            growing.archive()
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert errors == []
    assert "merged True" in outcomes
    compact_all(growing)
    rows = rows_of(growing.lake.uri("messages"))
    offsets = [row["physical_offset"] for row in rows]
    assert len(offsets) == len(set(offsets)) == growing.count == (archives + 1) * 40
    last = read_last_commit(growing.lake)
    assert last is not None
    assert last.sequence == archives + 1


def test_the_commit_metadata_names_the_action(growing: GrowingLake) -> None:
    compact_all(growing)
    (entry,) = DeltaTable(growing.lake.uri("messages")).history(1)
    note: dict[str, Any] = json.loads(entry["userMetadata"])
    exchange = note["commitlake.maintain"].pop("id")
    assert len(exchange) == 32
    assert note == {"commitlake.maintain": {"action": "compact"}}


def test_an_exchange_with_a_lost_answer_succeeds(growing: GrowingLake, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, calls = DeltaTable.create_write_transaction, []

    def commit_and_lose_the_answer(table: DeltaTable, *arguments: Any, **named: Any) -> None:
        calls.append(table.version())
        whole(table, *arguments, **named)
        raise CommitFailedError("version already exists")  # the second try of an object store's client finds the first

    uri = growing.lake.uri("messages")
    before, version = rows_of(uri), DeltaTable(uri).version()
    (first, *_) = plan_compaction(growing.lake, "messages", 128 * MIB)
    with monkeypatch.context() as patched:
        patched.setattr(DeltaTable, "create_write_transaction", commit_and_lose_the_answer)
        done = compact_table(growing.lake, "messages", [first], SORT_COLUMNS)
    assert (done.merged, calls) == (len(first.files), [version])
    assert DeltaTable(uri).version() == version + 1
    assert rows_of(uri) == before
