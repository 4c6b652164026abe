"""Published Iceberg tables have the rows of their Delta tables, after each kind of change, for several readers."""

from __future__ import annotations

import datetime
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from duckdb_extensions import import_extension
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import StaticTable, Table

from commitlake.connectors.iceberg.metadata_folder import MetadataFolder
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.storage.adapter_choice import open_lake_storage
from commitlake.jobs.erase import command as erase
from commitlake.jobs.maintain import command as maintain
from commitlake.pipelines.maintenance.log_cleanup import vacuum
from commitlake.pipelines.publish.iceberg import VERSION, Publication, PublicationError, publish_table
from commitlake.schemas.errors import ExitCode
from tests.support.erased_lakes import KEY, MARK, archive, shop_messages, traces, write_lake
from tests.support.lakes import GrowingLake

NOW = datetime.datetime.now(datetime.UTC)
TABLES = ("messages", "message_keys", "edges", "topic_minutes")


@pytest.fixture
def growing(tmp_path: Path) -> GrowingLake:
    """A lake of two runs of 50 messages."""
    return write_lake(tmp_path / "a folder")


@pytest.fixture(scope="module")
def reader() -> duckdb.DuckDBPyConnection:
    """An engine with its own readers of Delta and Iceberg."""
    for name in ("avro", "iceberg", "delta"):
        import_extension(name)
    return duckdb.connect()


def catalog(lake: Lake, table: str) -> MetadataFolder:
    return MetadataFolder(open_lake_storage(lake.root), f"file://{lake.root}", table)


def publish(lake: Lake, table: str = "messages", now: datetime.datetime = NOW) -> Publication:
    return publish_table(lake, table, f"file://{lake.root}", catalog(lake, table), now)


def published(lake: Lake, table: str = "messages") -> Table:
    return StaticTable.from_metadata(f"file://{lake.root}/_iceberg/{table}")


def versions(lake: Lake, table: str = "messages") -> list[int]:
    """Return the versions of Delta that the snapshots of a published table show."""
    return [
        int(shot.summary.additional_properties[VERSION]) for shot in published(lake, table).snapshots() if shot.summary
    ]


def digest(reader: duckdb.DuckDBPyConnection, source: str) -> Any:
    """Return the number of rows, and a sum of their hashes."""
    return reader.execute(f"SELECT count(*), sum(hash(row)) FROM (SELECT * FROM {source}) row").fetchone()


def check_readers(reader: duckdb.DuckDBPyConnection, lake: Lake, tables: Sequence[str] = TABLES) -> None:
    """Check that readers find the same rows in the Delta and in the Iceberg table."""
    for table in tables:
        delta = f"delta_scan('{lake.uri(table)}')"
        assert digest(reader, f"iceberg_scan('{lake.root}/_iceberg/{table}')") == digest(reader, delta), table
        rows = published(lake, table).scan().to_arrow()
        assert rows.num_rows == DeltaTable(lake.uri(table)).count()


def test_every_change_of_a_lake_is_published(growing: GrowingLake, reader: duckdb.DuckDBPyConnection) -> None:
    lake = growing.lake
    for table in TABLES:
        assert publish(lake, table).snapshots == 1
    check_readers(reader, lake)

    growing.write(shop_messages(50, secrets=(), first=100))
    archive(growing)
    for table in TABLES:
        assert publish(lake, table).snapshots == 1
    check_readers(reader, lake)

    assert maintain.main(["--lake", lake.root, "--quiet"]) == ExitCode.OK
    assert publish(lake).snapshots == 1
    for table in TABLES[1:]:
        publish(lake, table)
    check_readers(reader, lake)

    assert erase.main(["--lake", lake.root, "--key", KEY, "--reason", "asked", "--yes", "--quiet"]) == ExitCode.OK
    for table in TABLES:
        publish(lake, table)
    check_readers(reader, lake)
    assert MARK not in repr(published(lake).scan().to_arrow().to_pylist())


def test_a_snapshot_shows_what_its_version_of_delta_has(
    growing: GrowingLake, reader: duckdb.DuckDBPyConnection
) -> None:
    """Several versions between two runs are several snapshots, also those whose files were compacted since."""
    lake = growing.lake
    publish(lake)
    for first in (100, 150):
        growing.write(shop_messages(50, secrets=(), first=first))
        archive(growing)
    assert maintain.main(["--lake", lake.root, "--quiet"]) == ExitCode.OK
    first_version, newest = versions(lake)[0], DeltaTable(lake.uri("messages")).version()
    assert publish(lake).snapshots == newest - first_version
    assert publish(lake).snapshots == 0
    table = published(lake)
    assert versions(lake) == list(range(first_version, newest + 1))
    for snapshot, version in zip(table.snapshots(), versions(lake), strict=True):
        rows = table.scan(snapshot_id=snapshot.snapshot_id).to_arrow()
        expected = DeltaTable(lake.uri("messages"), version=version)
        assert rows.num_rows == expected.count()
        assert sorted(rows["msg_id"].to_pylist()) == sorted(
            pa.table(expected.to_pyarrow_table(columns=["msg_id"]))["msg_id"].to_pylist()
        )
    check_readers(reader, lake, ["messages"])


def test_manifests_hold_no_value_that_an_erasure_deletes(growing: GrowingLake) -> None:
    for table in TABLES:
        publish(growing.lake, table)
    folder = Path(growing.lake.root) / "_iceberg"
    assert not traces(folder)
    assert not traces(folder, "order-1")


def test_readers_skip_files_by_bounds(growing: GrowingLake) -> None:
    lake = growing.lake
    publish(lake)
    offset = growing.count and DeltaTable(lake.uri("messages")).to_pyarrow_table()["physical_offset"][0].as_py()
    every, some = published(lake).scan(), published(lake).scan(row_filter=f"physical_offset == {offset}")
    assert len(list(every.plan_files())) == 2
    assert len(list(some.plan_files())) == 1
    assert some.to_arrow().num_rows == 1


def test_new_columns_are_added(growing: GrowingLake, reader: duckdb.DuckDBPyConnection) -> None:
    lake = growing.lake
    publish(lake)
    more = pa.table({"broker": ["b"], "physical_offset": [7], "store_date": [datetime.date(2026, 1, 1)], "new": ["x"]})
    write_deltalake(lake.uri("messages"), more, mode="append", schema_mode="merge")
    assert publish(lake).snapshots == 1
    assert published(lake).scan(row_filter="new == 'x'").to_arrow().num_rows == 1
    check_readers(reader, lake, ["messages"])


def test_snapshots_end_with_their_files(growing: GrowingLake, reader: duckdb.DuckDBPyConnection) -> None:
    lake = growing.lake
    publish(lake)
    assert maintain.main(["--lake", lake.root, "--quiet"]) == ExitCode.OK
    publish(lake)
    assert len(versions(lake)) == 2
    vacuum(lake, "messages", datetime.timedelta(), is_only_user=True)
    assert publish(lake).expired == 1
    assert len(versions(lake)) == 1
    check_readers(reader, lake, ["messages"])
    folder = Path(lake.root) / "_iceberg" / "messages" / "metadata"
    table = published(lake)
    (snapshot,) = table.snapshots()
    named = {snapshot.manifest_list, *(manifest.manifest_path for manifest in snapshot.manifests(table.io))}
    assert {path.name for path in folder.glob("*.avro")} == {location.rpartition("/")[2] for location in named}


def test_old_snapshots_and_versions_of_the_metadata_are_removed(growing: GrowingLake) -> None:
    lake = growing.lake
    publish(lake)
    growing.write(shop_messages(5, secrets=(), first=100))
    archive(growing)
    assert publish(lake, now=NOW + datetime.timedelta(days=8)).expired == 1
    assert len(versions(lake)) == 1


def test_a_log_without_the_versions_is_published_as_one_snapshot(
    growing: GrowingLake, reader: duckdb.DuckDBPyConnection
) -> None:
    lake = growing.lake
    publish(lake)
    for first in (100, 150):
        growing.write(shop_messages(50, secrets=(), first=first))
        archive(growing)
    table = lake.table("messages")
    table.create_checkpoint()
    lost = Path(lake.uri("messages")) / "_delta_log" / f"{table.version() - 1:020d}.json"
    lost.unlink()
    assert publish(lake).snapshots == 1
    assert publish(lake).snapshots == 0
    check_readers(reader, lake, ["messages"])


def test_a_moved_lake_is_published_anew(
    growing: GrowingLake, reader: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    publish(growing.lake)
    shutil.move(growing.lake.root, tmp_path / "moved")
    lake = Lake(str(tmp_path / "moved"))
    assert publish(lake).snapshots == 1
    check_readers(reader, lake, ["messages"])


def test_of_two_runs_at_the_same_time_one_starts_again(
    growing: GrowingLake, reader: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = growing.lake
    publish(lake)
    growing.write(shop_messages(50, secrets=(), first=100))
    archive(growing)
    commit, others = MetadataFolder.commit_table, iter([True])

    def commit_after_another(self: MetadataFolder, *arguments: Any) -> Any:
        if next(others, False):
            publish(lake)
        return commit(self, *arguments)

    monkeypatch.setattr(MetadataFolder, "commit_table", commit_after_another)
    assert publish(lake).snapshots == 0
    check_readers(reader, lake, ["messages"])


def test_a_run_that_is_always_late_says_so(growing: GrowingLake, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise CommitFailedException("another process")

    monkeypatch.setattr(MetadataFolder, "commit_table", refuse)
    with pytest.raises(PublicationError, match="first, 5 times"):
        publish(growing.lake)


def test_a_table_of_another_lake_is_refused(growing: GrowingLake, tmp_path: Path) -> None:
    publish(growing.lake)
    other = write_lake(tmp_path / "other", runs=1)
    with pytest.raises(PublicationError, match="another table"):
        publish_table(other.lake, "messages", f"file://{other.lake.root}", catalog(growing.lake, "messages"), NOW)


def test_a_snapshot_of_another_program_is_refused(growing: GrowingLake) -> None:
    publish(growing.lake)
    table = catalog(growing.lake, "messages").find()
    assert table is not None
    with table.transaction() as transaction, transaction.update_snapshot().fast_append():
        pass
    with pytest.raises(PublicationError, match="another program"):
        publish(growing.lake)
