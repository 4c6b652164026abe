"""Descriptions of Delta tables' columns and files for Iceberg."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile
from pyiceberg.types import PrimitiveType

from commitlake.connectors.iceberg.delta_files import (
    DataFiles,
    UnpublishableTableError,
    iceberg_schema,
    partition_spec,
)

TIME = datetime.datetime(2026, 1, 6, 10, 0, 0, 123456, datetime.UTC)
ROWS = pa.table(
    {
        "topic": ["orders", "payments"],
        "key": ["order-1", "order-2"],
        "count": pa.array([3, 5], pa.int64()),
        "at": pa.array([TIME, TIME + datetime.timedelta(hours=1)], pa.timestamp("us", "UTC")),
        "tags": pa.array([["a"], []], pa.list_(pa.string())),
        "day": [datetime.date(2026, 1, 6)] * 2,
        "shop": ["a=b c", "a=b c"],
    }
)


@pytest.fixture
def table(tmp_path: Path) -> DeltaTable:
    """A table with columns of all kinds, and two partition columns."""
    write_deltalake(tmp_path, ROWS, partition_by=["day", "shop"])
    return DeltaTable(tmp_path)


def files_of(table: DeltaTable) -> DataFiles:
    schema = iceberg_schema(table)
    return DataFiles("file:///table", schema, partition_spec(table, schema), lambda _: 2)


def bounds(files: DataFiles, encoded: dict[int, bytes]) -> dict[str, Any]:
    found = {}
    for number, value in encoded.items():
        column = files.schema.find_field(number)
        assert isinstance(column.field_type, PrimitiveType)
        found[column.name] = from_bytes(column.field_type, value)
    return found


def test_columns_keep_their_names_types_and_comments(tmp_path: Path) -> None:
    field = pa.field("number", pa.int32(), metadata={"comment": "its comment"})
    write_deltalake(tmp_path, pa.table([pa.array([1], pa.int32())], schema=pa.schema([field])))
    (column,) = iceberg_schema(DeltaTable(tmp_path)).fields
    assert (column.name, str(column.field_type), column.doc) == ("number", "int", "its comment")


def test_a_file_has_bounds_of_numbers_times_and_topics(table: DeltaTable) -> None:
    files = files_of(table)
    ((name, file),) = files.describe_table(table).items()
    assert file.file_path == f"file:///table/{name}"
    assert file.record_count == 2
    least, greatest = bounds(files, file.lower_bounds), bounds(files, file.upper_bounds)
    assert least.keys() == greatest.keys() == {"topic", "count", "at"}
    assert (least["topic"], greatest["topic"], least["count"], greatest["count"]) == ("orders", "payments", 3, 5)
    micros = 1_000_000 * int(TIME.timestamp())
    assert least["at"] <= micros + 123_456
    assert greatest["at"] >= micros + 3_600_000_000 + 123_456  # Delta's statistics are in milliseconds


def test_partitions_are_values_of_iceberg(table: DeltaTable) -> None:
    (file,) = files_of(table).describe_table(table).values()
    day = (datetime.date(2026, 1, 6) - datetime.date(1970, 1, 1)).days
    assert [file.partition[0], file.partition[1]] == [day, "a=b c"]


def test_a_file_of_the_log_is_described_alike_without_bounds(table: DeltaTable) -> None:
    files = files_of(table)
    ((name, expected),) = files.describe_table(table).items()
    log = Path(table.table_uri.removeprefix("file://")) / "_delta_log" / f"{0:020d}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    (action,) = (each["add"] for each in actions if "add" in each)
    found = files.describe_added(name, action)
    assert shown(found) == shown(expected)
    assert not found.lower_bounds


def shown(file: DataFile) -> list[object]:
    return [file.file_path, file.record_count, file.file_size_in_bytes, file.partition[0], file.partition[1]]


def test_rows_are_counted_where_the_log_has_no_number(table: DeltaTable) -> None:
    action = {"size": 9, "partitionValues": {"day": "2026-01-06", "shop": None}}
    file = files_of(table).describe_added("name", action)
    assert file.record_count == 2
    assert file.partition[1] is None


def test_columns_with_other_names_in_files_are_refused(table: DeltaTable) -> None:
    log = Path(table.table_uri.removeprefix("file://")) / "_delta_log"
    actions = [json.loads(line) for line in (log / f"{0:020d}.json").read_text().splitlines()]
    (metadata,) = (action["metaData"] for action in actions if "metaData" in action)
    metadata["configuration"]["delta.columnMapping.mode"] = "name"
    (log / f"{1:020d}.json").write_text(json.dumps({"metaData": metadata}))
    with pytest.raises(UnpublishableTableError, match="other names in its data files"):
        iceberg_schema(DeltaTable(table.table_uri))
