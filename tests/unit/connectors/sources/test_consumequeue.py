"""The Spark source `consumequeue`, as Spark calls it."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual, InputPartition

from commitlake.connectors.sources.consumequeue import (
    ConsumeQueueDataSource,
    PushdownConsumeQueueDataSource,
    PushdownQueueReader,
    QueuePartition,
)
from commitlake.schemas.errors import UsageError
from tests.support.indexed_stores import RARE, write_indexed_store


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_indexed_store(tmp_path_factory.mktemp("source") / "store", count=100)


def test_partitions_are_read_after_pickling(store: Path) -> None:
    source = ConsumeQueueDataSource({"path": str(store), "columns": "topic,physical_offset"})
    reader = pickle.loads(pickle.dumps(source.reader(source.schema())))
    partitions = pickle.loads(pickle.dumps(reader.partitions()))
    rows = [row for partition in partitions for batch in reader.read(partition) for row in batch.to_pylist()]
    assert len(rows) == 100
    assert set(rows[0]) == {"topic", "physical_offset"}
    assert list(reader.read(InputPartition(0))) == []  # Spark's, for a read without partitions


def test_predicates_skip_folders_and_entries(store: Path) -> None:
    source = PushdownConsumeQueueDataSource({"path": str(store)})
    reader = source.reader(source.schema())
    assert isinstance(reader, PushdownQueueReader)
    filters = [EqualTo(("topic",), RARE), GreaterThanOrEqual(("physical_offset",), 10_000)]
    assert list(reader.pushFilters(filters)) == filters
    partitions = reader.partitions()
    assert all(isinstance(partition, QueuePartition) for partition in partitions)
    assert {part.queue.topic for partition in partitions for part in partition.parts} == {RARE}
    rows = [row for partition in partitions for batch in reader.read(partition) for row in batch.to_pylist()]
    assert rows
    assert min(row["physical_offset"] for row in rows) >= 10_000


def test_brokers_that_are_not_wanted_are_not_read(store: Path) -> None:
    reader = PushdownConsumeQueueDataSource({"path": str(store)}).reader(
        ConsumeQueueDataSource({"path": str(store)}).schema()
    )
    assert isinstance(reader, PushdownQueueReader)
    reader.pushFilters([EqualTo(("broker",), "another")])
    assert reader.partitions() == []


def test_unknown_columns_are_errors(store: Path) -> None:
    with pytest.raises(UsageError, match=r"option columns: expected some of broker, topic, .* found 'tags'"):
        ConsumeQueueDataSource({"path": str(store), "columns": "tags"}).schema()
