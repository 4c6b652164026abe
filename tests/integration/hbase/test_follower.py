"""The projection against a real HBase: it equals `messages` row by row, for all kinds of versions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from commitlake.connectors.hbase.client import Client
from commitlake.connectors.hbase.errors import ConcurrentFollowError, HBaseError
from commitlake.connectors.hbase.options import HBaseOptions
from commitlake.connectors.hbase.progress import TableProgress, read_progress, write_progress
from commitlake.connectors.hbase.row_writing_tasks import RowWritingTask, process_files_in_tasks
from commitlake.connectors.hbase.table_update import follow_messages
from commitlake.connectors.hbase.tables import open_or_create_table
from commitlake.connectors.lake.delta_log.versions import files_of_table
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.spark.runner import SparkRunner
from tests.support.hbase_cells import all_cells, hbase_rows
from tests.support.hbase_tables import append, by_place, delta_rows, message_rows, rare_rows


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A lake whose table of messages has two versions, the rare ones among them."""
    path = tmp_path / "messages"
    append(path, message_rows(700))
    append(path, rare_rows())
    return Lake(str(tmp_path))


@pytest.fixture
def uri(lake: Lake) -> str:
    return lake.uri("messages")


def test_the_projection_equals_the_table_row_by_row(lake: Lake, uri: str, options: HBaseOptions) -> None:
    followed = follow_messages(None, lake, options)
    assert (followed.version, followed.versions, followed.rows) == (1, 1, 708)
    assert hbase_rows(options) == delta_rows(uri)


def test_each_version_is_followed_once(lake: Lake, uri: str, options: HBaseOptions) -> None:
    seen: list[tuple[int, int]] = []
    follow_messages(None, lake, options)
    append(uri, message_rows(10, first=700))
    append(uri, message_rows(5, first=710))
    followed = follow_messages(None, lake, options, on_version=lambda version, rows: seen.append((version, rows)))
    assert seen == [(2, 10), (3, 5)]
    assert (followed.version, followed.versions, followed.rows) == (3, 2, 15)
    assert follow_messages(None, lake, options).versions == 0
    assert hbase_rows(options) == delta_rows(uri)


def test_writing_a_version_again_changes_no_cell(lake: Lake, options: HBaseOptions) -> None:
    follow_messages(None, lake, options)
    before = all_cells(options)
    with Client(options) as client:
        done = read_progress(client)
        assert done is not None
        write_progress(client, done, TableProgress(done.followed, 0))
    assert follow_messages(None, lake, options).rows == 8
    assert all_cells(options) == before


def test_compacted_files_are_not_followed_again(lake: Lake, uri: str, options: HBaseOptions) -> None:
    follow_messages(None, lake, options)
    append(uri, message_rows(10, first=700))
    follow_messages(None, lake, options)
    DeltaTable(uri).optimize.compact()
    followed = follow_messages(None, lake, options)
    assert (followed.versions, followed.rows, followed.deleted) == (1, 0, 0)


def test_rows_deleted_by_a_version_are_deleted_with_their_entries(lake: Lake, uri: str, options: HBaseOptions) -> None:
    follow_messages(None, lake, options)
    table = DeltaTable(uri)
    table.delete("topic = 'orders'")  # rewrites files
    table.delete("store_date = '9999-12-31'")  # drops one
    followed = follow_messages(None, lake, options)
    assert followed.deleted == 708 - len(delta_rows(uri))
    assert hbase_rows(options) == delta_rows(uri)
    undisturbed = replace(options, table=options.table + "_anew")
    follow_messages(None, lake, undisturbed)
    assert all_cells(options) == all_cells(undisturbed)


def test_rows_deleted_after_a_killed_first_load_are_deleted(lake: Lake, uri: str, options: HBaseOptions) -> None:
    with Client(options) as client:  # what a run does before its first row, and then all of the rows
        open_or_create_table(client)
        write_progress(client, None, TableProgress(str(DeltaTable(uri).metadata().id), None, 1))
    follow_messages(None, lake, options)
    with Client(options) as client:
        done = read_progress(client)
        assert done is not None
        write_progress(client, done, TableProgress(done.followed, None, 1))
    DeltaTable(uri).delete("topic = 'orders'")
    follow_messages(None, lake, options)
    assert hbase_rows(options) == delta_rows(uri)


def test_a_first_run_needs_no_old_log(lake: Lake, uri: str, options: HBaseOptions) -> None:
    DeltaTable(uri).create_checkpoint()
    (Path(uri) / "_delta_log" / f"{0:020d}.json").unlink()
    follow_messages(None, lake, options)
    assert hbase_rows(options) == delta_rows(uri)


def test_a_version_missing_from_the_delta_log_is_an_error(lake: Lake, uri: str, options: HBaseOptions) -> None:
    follow_messages(None, lake, options)
    append(uri, message_rows(1, first=800))
    append(uri, message_rows(1, first=801))
    DeltaTable(uri).create_checkpoint()
    (Path(uri) / "_delta_log" / f"{2:020d}.json").unlink()
    with pytest.raises(HBaseError, match=r"version 2 of .* is no longer in its log.*Drop the HBase table"):
        follow_messages(None, lake, options)


def test_a_table_follows_one_lake_only(lake: Lake, options: HBaseOptions, tmp_path: Path) -> None:
    follow_messages(None, lake, options)
    append(tmp_path / "other" / "messages", message_rows(1))
    with pytest.raises(HBaseError, match="was loaded from another lake: expected the Delta table"):
        follow_messages(None, Lake(str(tmp_path / "other")), options)


def test_a_dropped_table_is_created_again(lake: Lake, uri: str, options: HBaseOptions) -> None:
    follow_messages(None, lake, options)
    with Client(options) as client:
        client._call_with_retries("disable", lambda thrift: thrift.disableTable(client._table))
        client._call_with_retries("drop", lambda thrift: thrift.deleteTable(client._table))
    assert follow_messages(None, lake, options).rows == 708
    assert hbase_rows(options) == delta_rows(uri)


def test_the_slower_of_two_concurrent_runs_fails(lake: Lake, uri: str, options: HBaseOptions) -> None:
    append(uri, message_rows(10, first=700))

    def other(version: int, rows: int) -> None:  # between two versions of ours, another run does the next one
        append(uri, message_rows(10, first=710))
        follow_messages(None, lake, options)

    follow_messages(None, lake, options)
    append(uri, message_rows(1, first=720))
    append(uri, message_rows(1, first=721))
    with pytest.raises(ConcurrentFollowError, match="another run writes to the HBase table"):
        follow_messages(None, lake, options, on_version=other)
    follow_messages(None, lake, options)
    assert hbase_rows(options) == delta_rows(uri)


def test_a_table_with_other_column_families_is_refused(lake: Lake, options: HBaseOptions) -> None:
    with Client(options) as client:
        client.create_table([{"name": b"theirs:"}])
    with pytest.raises(HBaseError, match="Expected a table with the column families m and p"):
        follow_messages(None, lake, options)


@pytest.mark.long("versions that Spark wrote are followed each time")
def test_following_by_spark_gives_the_same_cells(
    spark: SparkSession, lake: Lake, uri: str, options: HBaseOptions
) -> None:
    follow_messages(SparkRunner(spark), lake, options, rows_per_task=1)
    here = replace(options, table=options.table + "_here")
    follow_messages(None, lake, here)
    assert all_cells(options) == all_cells(here)
    DeltaTable(uri).delete("topic = 'orders'")
    follow_messages(SparkRunner(spark), lake, options, rows_per_task=1)
    assert hbase_rows(options) == delta_rows(uri)


@pytest.mark.long("versions of this package are followed each time; those of Spark have the same log")
def test_versions_written_by_spark_are_followed(spark: SparkSession, options: HBaseOptions, tmp_path: Path) -> None:
    append(tmp_path / "model", message_rows(300))
    lake = Lake(str(tmp_path))
    uri = lake.uri("messages")
    rows = spark.read.format("delta").load(str(tmp_path / "model"))
    rows.write.format("delta").partitionBy("store_date").save(uri)
    follow_messages(None, lake, options)
    spark.sql(f"DELETE FROM delta.`{uri}` WHERE topic = 'orders'")
    spark.sql(f"OPTIMIZE delta.`{uri}`")
    follow_messages(None, lake, options)
    expected = by_place(spark.read.format("delta").load(uri).toArrow().to_pylist())
    assert expected
    assert hbase_rows(options) == expected


@pytest.mark.long("errors of tasks are raised unchanged each time in spark/test_worker_errors.py")
def test_an_error_in_a_task_is_raised_unchanged(
    spark: SparkSession, lake: Lake, uri: str, options: HBaseOptions
) -> None:
    work = RowWritingTask(replace(options, port=1, connect_seconds=1), 4, lake)
    with pytest.raises(HBaseError, match=r"gave no answer to 'write' .* within 1 s: Could not connect"):
        process_files_in_tasks(SparkRunner(spark), work, files_of_table(uri, lake.table("messages")).files)
