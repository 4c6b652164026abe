"""Schemas and data files of Delta tables, as Iceberg describes them. No data file is opened.

A manifest of Iceberg holds the smallest and largest values of columns, by which readers skip files. Here these are
numbers and times, and of texts only brokers, topics and groups: an erasure that rewrites data files would else leave
keys and ids in manifests.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable
from pyiceberg.conversions import to_bytes
from pyiceberg.expressions.literals import literal
from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    DateType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestamptzType,
)
from pyiceberg.utils.datetime import date_to_days

from commitlake.connectors.lake.delta_log.entries import parse_row_count
from commitlake.connectors.lake.delta_log.file_actions import read_file_actions
from commitlake.schemas.errors import CommitLakeError, ExitCode
from commitlake.schemas.times import epoch_us

_TEXTS = frozenset({"broker", "topic", "group"})
"""Columns of text whose bounds are in manifests."""
_FIRST_PARTITION_ID = 1000
_LESS_THAN_A_MS = datetime.timedelta(microseconds=999)
"""Delta's statistics have times in whole milliseconds, rounded down."""


class UnpublishableTableError(CommitLakeError):
    """A Delta table cannot be an Iceberg table with the same data files."""

    exit_code = ExitCode.REFUSED


def iceberg_schema(table: DeltaTable) -> Schema:
    """Return the columns of a Delta table as a schema of Iceberg, with the columns' comments.

    Raises:
        UnpublishableTableError: if Iceberg has no such type, or the files have other names than the columns.
    """
    if table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
        raise UnpublishableTableError(
            "its columns have other names in its data files (delta.columnMapping.mode), which Iceberg's metadata here "
            "does not describe"
        )
    columns = [_with_comment(column) for column in pa.schema(table.schema().to_arrow())]
    try:
        return assign_fresh_schema_ids(_pyarrow_to_schema_without_ids(pa.schema(columns)))
    except (TypeError, ValueError) as error:
        raise UnpublishableTableError(f"Iceberg cannot describe its columns: {str(error)[:200]}") from None


def _with_comment(column: pa.Field) -> pa.Field:
    comment = (column.metadata or {}).get(b"comment")
    return column if comment is None else column.with_metadata({b"doc": comment})


def partition_spec(table: DeltaTable, schema: Schema) -> PartitionSpec:
    """Return the partitions of a Delta table, which Iceberg calls identity partitions."""
    return PartitionSpec(
        *(
            PartitionField(schema.find_field(name).field_id, _FIRST_PARTITION_ID + index, IdentityTransform(), name)
            for index, name in enumerate(table.metadata().partition_columns)
        )
    )


@dataclass(frozen=True, slots=True)
class DataFiles:
    """Makes descriptions of the data files of one Delta table.

    Attributes:
        root_uri: URI of the table's folder.
        schema: schema of the Iceberg table.
        spec: its partitions.
        count_rows: reads the number of rows of a file, by its name, for files whose number the log does not state.
    """

    root_uri: str
    schema: Schema
    spec: PartitionSpec
    count_rows: Callable[[str], int]

    def describe_table(self, table: DeltaTable) -> dict[str, DataFile]:
        """Return the files of the open version of a Delta table, by their names, with bounds of their values.

        Raises:
            UnpublishableTableError: if rows of a file are deleted by a deletion vector.
        """
        bounded = [column for column in self.schema.fields if _has_bounds(column)]
        described = {}
        for action in read_file_actions(table).to_pylist():
            name = unquote(action["path"])
            if action.get("deletion_vector"):
                raise UnpublishableTableError(
                    f"rows of {name} are deleted by a deletion vector: set delta.enableDeletionVectors = false, and "
                    "run REORG TABLE … APPLY (PURGE)"
                )
            nulls = action.get("null_count") or {}
            described[name] = self._describe(
                name,
                action["size_bytes"],
                action.get("num_records"),
                action.get("partition") or {},
                null_value_counts={
                    column.field_id: nulls[column.name] for column in bounded if nulls.get(column.name) is not None
                },
                lower_bounds=_encode_bounds(bounded, action.get("min") or {}),
                upper_bounds=_encode_bounds(bounded, action.get("max") or {}, _LESS_THAN_A_MS),
            )
        return described

    def describe_added(self, name: str, action: Mapping[str, Any]) -> DataFile:
        """Return a file as an entry of the log adds it, without bounds.

        Args:
            name: name of the file, relative to the table's folder.
            action: the log's action `add`.
        """
        texts = action.get("partitionValues") or {}
        partition = {
            field.name: None if texts.get(field.name) in (None, "") else literal(texts[field.name]).to(kind).value
            for field, kind in self._partition_types()
        }
        return self._describe(name, action["size"], parse_row_count(action.get("stats")), partition)

    def _partition_types(self) -> list[tuple[PartitionField, PrimitiveType]]:
        types = [(field, self.schema.find_type(field.source_id)) for field in self.spec.fields]
        return [(field, kind) for field, kind in types if isinstance(kind, PrimitiveType)]

    def _describe(
        self, name: str, size: int, rows: int | None, partition: Mapping[str, Any], **statistics: Any
    ) -> DataFile:
        return DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=f"{self.root_uri}/{name}",
            file_format=FileFormat.PARQUET,
            partition=Record(*(_internal_value(partition.get(field.name)) for field in self.spec.fields)),
            record_count=self.count_rows(name) if rows is None else rows,
            file_size_in_bytes=size,
            spec_id=self.spec.spec_id,
            **statistics,
        )


def _has_bounds(column: NestedField) -> bool:
    kind = column.field_type
    return isinstance(kind, (IntegerType, LongType, DateType, TimestamptzType)) or (
        isinstance(kind, StringType) and column.name in _TEXTS
    )


def _encode_bounds(
    columns: Sequence[NestedField], values: Mapping[str, Any], later: datetime.timedelta = datetime.timedelta()
) -> dict[int, bytes]:
    """Return bounds by the columns' numbers, as manifests have them; none for columns whose bound the log lacks.

    Args:
        columns: the columns.
        values: their bounds, by the columns' names.
        later: what is added to times.
    """
    encoded = {}
    for column in columns:
        value = values.get(column.name)
        if value is not None:
            bound = value + later if isinstance(value, datetime.datetime) else value
            encoded[column.field_id] = to_bytes(cast("PrimitiveType", column.field_type), _internal_value(bound))
    return encoded


def _internal_value(value: Any) -> Any:
    """Return a value as Iceberg stores it: times as microseconds and dates as days since 1970."""
    if isinstance(value, datetime.datetime):
        return epoch_us(value)
    return date_to_days(value) if isinstance(value, datetime.date) else value
