"""Tests of the declarations of a lake's tables."""

from __future__ import annotations

import pytest

from commitlake.connectors.lake.lake import Lake
from commitlake.schemas.tables.lake_tables import LAKE_TABLES, RowOrigin, tables_with_origin


def test_each_table_has_an_origin() -> None:
    assert tables_with_origin(RowOrigin.ARCHIVE) == ("messages",)
    assert tables_with_origin(*RowOrigin) == tuple(LAKE_TABLES)


@pytest.mark.parametrize("name", LAKE_TABLES)
def test_a_table_has_a_path_in_the_lake_and_its_order_partitions_and_key_are_columns(name: str) -> None:
    assert Lake("/lake").uri(name) == f"/lake/{name}"
    declared = LAKE_TABLES[name]
    named = {*declared.sort_columns, *declared.partitions, *declared.key, *declared.query_order}
    assert declared.query_order
    assert named <= set(declared.columns.names)
