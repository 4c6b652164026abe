"""The Spark source `indexfile`, as Spark calls it."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from pyspark.sql.datasource import EqualTo, InputPartition, LessThan

from commitlake.connectors.sources.indexfile import (
    IndexFileDataSource,
    PushdownIndexFileDataSource,
    PushdownIndexFileReader,
)
from commitlake.schemas.tables.columns import Columns
from commitlake.schemas.tables.index_entries import INDEX_ENTRIES, INDEX_HEADERS, INDEX_SLOTS
from commitlake.schemas.tables.spark_schemas import spark_schema
from tests.support.indexed_stores import write_indexed_store


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_indexed_store(tmp_path_factory.mktemp("source") / "store", count=100)


@pytest.mark.parametrize(
    ("content", "table"), [("entries", INDEX_ENTRIES), ("slots", INDEX_SLOTS), ("headers", INDEX_HEADERS)]
)
def test_the_option_content_selects_the_columns(store: Path, content: str, table: Columns) -> None:
    source = IndexFileDataSource({"path": str(store), "content": content, "mode": "PERMISSIVE"})
    assert source.schema() == spark_schema(table)


def test_partitions_are_read_after_pickling(store: Path) -> None:
    source = IndexFileDataSource({"path": str(store), "columns": "entry"})
    reader = pickle.loads(pickle.dumps(source.reader(source.schema())))
    partitions = pickle.loads(pickle.dumps(reader.partitions()))
    rows = [row for partition in partitions for batch in reader.read(partition) for row in batch.to_pylist()]
    assert len(rows) == 400
    assert list(reader.read(InputPartition(0))) == []  # Spark's, for a read without partitions


def test_predicates_skip_brokers_and_entries(store: Path) -> None:
    source = PushdownIndexFileDataSource({"path": str(store)})
    reader = source.reader(source.schema())
    assert isinstance(reader, PushdownIndexFileReader)
    reader.pushFilters([LessThan(("physical_offset",), 1000)])
    rows = [row for partition in reader.partitions() for batch in reader.read(partition) for row in batch.to_pylist()]
    assert 0 < len(rows) < 40
    reader.pushFilters([EqualTo(("broker",), "another")])
    assert reader.partitions() == []
