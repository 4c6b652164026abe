"""A folder as the catalog of one Iceberg table: its versions, and writers at the same time."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table import StaticTable, Table
from pyiceberg.types import LongType, NestedField

from commitlake.connectors.iceberg.metadata_folder import KEPT_VERSIONS, MetadataFolder
from commitlake.connectors.storage.adapter_choice import open_lake_storage

SCHEMA = Schema(NestedField(1, "number", LongType(), required=False))


def folder(root: Path) -> MetadataFolder:
    return MetadataFolder(open_lake_storage(str(root)), f"file://{root}", "numbers")


def create(root: Path) -> Table:
    return folder(root).create(SCHEMA, UNPARTITIONED_PARTITION_SPEC, {})


def set_property(table: Table, value: str) -> None:
    with table.transaction() as transaction:
        transaction.set_properties({"key": value})


def test_there_is_no_table_before_it_is_created(tmp_path: Path) -> None:
    assert folder(tmp_path).find() is None


def test_each_commit_is_a_version_that_readers_find(tmp_path: Path) -> None:
    table = create(tmp_path)
    set_property(table, "a value")
    found = folder(tmp_path).find()
    assert found is not None
    assert found.metadata == table.metadata
    reader = StaticTable.from_metadata(f"file://{tmp_path}/_iceberg/numbers")
    assert reader.properties["key"] == "a value"
    assert reader.metadata_location.endswith("/v2.metadata.json")


def test_of_two_writers_one_is_refused(tmp_path: Path) -> None:
    create(tmp_path)
    one, two = folder(tmp_path).find(), folder(tmp_path).find()
    assert one is not None
    assert two is not None
    set_property(one, "one")
    with pytest.raises(CommitFailedException, match="another process has written version 2"):
        set_property(two, "two")
    found = folder(tmp_path).find()
    assert found is not None
    assert found.properties["key"] == "one"


def test_old_versions_are_deleted(tmp_path: Path) -> None:
    table = create(tmp_path)
    for number in range(KEPT_VERSIONS + 3):
        set_property(table, str(number))
    names = {path.name for path in (tmp_path / "_iceberg" / "numbers" / "metadata").glob("*.json")}
    newest = KEPT_VERSIONS + 4
    assert names == {f"v{number}.metadata.json" for number in range(newest - KEPT_VERSIONS + 1, newest + 1)}


def test_a_table_whose_lake_was_moved_is_created_again_after_its_versions(tmp_path: Path) -> None:
    create(tmp_path / "old")
    (tmp_path / "old").rename(tmp_path / "new")
    assert folder(tmp_path / "new").find() is None
    assert create(tmp_path / "new").metadata_location.endswith("/v2.metadata.json")


def test_foreign_files_are_ignored(tmp_path: Path) -> None:
    create(tmp_path)
    (tmp_path / "_iceberg" / "numbers" / "metadata" / "v2-copy.metadata.json").write_text("{}")
    found = folder(tmp_path).find()
    assert found is not None
    assert found.metadata_location.endswith("/v1.metadata.json")
