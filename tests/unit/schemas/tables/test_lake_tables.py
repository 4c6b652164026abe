"""Tests that the list of a lake's tables agrees with the modules that write them."""

from __future__ import annotations

import pytest

from commitlake.connectors.lake.follower import FOLLOWING
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.snapshot_tables import SNAPSHOT_TABLES
from commitlake.pipelines.repair.delta_log import SCHEMAS
from commitlake.schemas.tables.lake_tables import LAKE_TABLES, Origin, tables_of


def test_tables_of_an_origin_match_the_list_of_its_writer() -> None:
    assert set(tables_of(Origin.COMMITS)) == set(FOLLOWING)
    assert set(tables_of(Origin.SNAPSHOTS)) == set(SNAPSHOT_TABLES)
    assert tables_of(Origin.ARCHIVE) == ("messages",)
    assert tables_of(*Origin) == tuple(LAKE_TABLES)


@pytest.mark.parametrize("name", LAKE_TABLES)
def test_a_table_has_a_path_in_the_lake_and_existing_sort_columns(name: str) -> None:
    assert Lake("/lake").uri(name) == f"/lake/{name}"
    if LAKE_TABLES[name].sort_columns:
        assert set(LAKE_TABLES[name].sort_columns) <= set(SCHEMAS[name].names)
