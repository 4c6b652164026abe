"""Small stores with queues and IndexFiles, and what the sources of both read of them, without Spark."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from commitlake.connectors.formats.index_entries.entry_options import (
    IndexContent,
    parse_index_options,
    parse_queue_options,
)
from commitlake.connectors.formats.index_entries.index_parts import plan_index_files
from commitlake.connectors.formats.index_entries.index_rows import read_index_parts
from commitlake.connectors.formats.index_entries.queue_parts import plan_queues
from commitlake.connectors.formats.index_entries.queue_rows import read_queue_parts
from commitlake.schemas.tables.index_entries import INDEX_ENTRIES, INDEX_HEADERS, INDEX_SLOTS, QUEUE_ENTRIES
from tests.indexed_stores import write_indexed_store
from tests.jmq_stores import write_jmq_store

Rows = list[dict[str, Any]]
Read = Callable[..., Rows]
_TABLES = {
    IndexContent.ENTRIES: INDEX_ENTRIES,
    IndexContent.SLOTS: INDEX_SLOTS,
    IndexContent.HEADERS: INDEX_HEADERS,
}


@pytest.fixture(scope="session")
def plain_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A RocketMQ store that nobody changes."""
    return write_indexed_store(tmp_path_factory.mktemp("plain") / "store", count=330)


@pytest.fixture(scope="session")
def plain_jmq_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A JMQ store that nobody changes."""
    return write_jmq_store(tmp_path_factory.mktemp("jmq") / "store", count=330)


@pytest.fixture
def store(plain_store: Path, tmp_path: Path) -> Path:
    """A copy of the RocketMQ store, to damage."""
    return shutil.copytree(plain_store, tmp_path / "store")


@pytest.fixture
def jmq_store(plain_jmq_store: Path, tmp_path: Path) -> Path:
    """A copy of the JMQ store, to damage."""
    return shutil.copytree(plain_jmq_store, tmp_path / "jmq")


def _given(root: Path, options: dict[str, object]) -> dict[str, str]:
    return {"path": str(root), **{name: str(value) for name, value in options.items()}}


@pytest.fixture
def read_queues() -> Read:
    """A function from a store and options to the rows of `consumequeue`."""

    def read(root: Path, table: StructType = QUEUE_ENTRIES, **given: object) -> Rows:
        options = parse_queue_options(_given(root, given))
        schema, filters = to_arrow_schema(table, timezone="UTC"), options.narrowing.filters
        return [
            row
            for parts in plan_queues(options, options.narrowing)
            for batch in read_queue_parts(parts, schema, filters, options.mode)
            for row in batch.to_pylist()
        ]

    return read


@pytest.fixture
def read_index() -> Read:
    """A function from a store and options to the rows of `indexfile`."""

    def read(root: Path, **given: object) -> Rows:
        options = parse_index_options(_given(root, given))
        schema, narrowing = to_arrow_schema(_TABLES[options.content], timezone="UTC"), options.read.narrowing
        return [
            row
            for parts in plan_index_files(options, narrowing)
            for batch in read_index_parts(parts, schema, narrowing.filters, options)
            for row in batch.to_pylist()
        ]

    return read
