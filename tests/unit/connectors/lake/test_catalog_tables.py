"""Tests of the tables of a lake, as a catalog describes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from commitlake.connectors.lake.catalog_tables import catalog_tables
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.paths import LakeError
from commitlake.schemas.tables.lake_tables import LAKE_TABLES
from tests.support.lakes import GrowingLake, shop_messages


def test_the_tables_that_are_there_are_described(tmp_path: Path) -> None:
    growing = GrowingLake(tmp_path)
    growing.write(shop_messages(3))
    growing.archive()
    tables = {table.name: table for table in catalog_tables(growing.lake)}
    assert {"messages", "archive_runs"} <= set(tables) <= set(LAKE_TABLES)
    assert "evidence" not in tables
    assert tables["messages"].comment == "Table with one row per message"
    assert {column["name"]: column.get("partition_index") for column in tables["messages"].columns}["store_date"] == 0
    assert all(table.comment and table.columns for table in tables.values())


def test_a_folder_without_messages_is_no_lake(tmp_path: Path) -> None:
    with pytest.raises(LakeError):
        catalog_tables(Lake(str(tmp_path / "lake")))
