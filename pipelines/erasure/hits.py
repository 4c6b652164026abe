"""Finds the data files of a table that have rows of given messages, and these rows.

The table's log has the smallest and largest offset and broker of each file. Only files whose bounds match are opened,
and only these two columns are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from commitlake.connectors.arrays import Array
from commitlake.connectors.lake.erasures import ErasedPlaces
from commitlake.connectors.lake.file_actions import file_actions
from commitlake.pipelines.erasure.errors import ErasureError
from commitlake.pipelines.maintenance.table_files import TableFile, folder_of, read_table_files
from commitlake.pipelines.masking.erased_rows import CHANGED_COLUMNS, are_erased

_PLACE = ["broker", "physical_offset"]


@dataclass(frozen=True, slots=True)
class FileHits:
    """A data file with rows of the messages.

    Attributes:
        file: the file.
        groups: by index of a row group, the indexes of rows in it.
    """

    file: TableFile
    groups: Mapping[int, Array]

    @property
    def rows(self) -> int:
        """Number of rows."""
        return sum(map(len, self.groups.values()))


def find_hits(table: DeltaTable, places: ErasedPlaces, prefixes: Sequence[str] = ("",)) -> Iterator[FileHits]:
    """Find the data files of a table that have rows of the given messages.

    Args:
        table: has the columns `broker` and `physical_offset`.
        prefixes: prefixes of the names of these columns; a row may refer to several messages.

    Raises:
        ErasureError: if a file has a deletion vector.
    """
    folder = folder_of(table.table_uri)
    actions = file_actions(table).to_pylist()
    for action, file in zip(actions, read_table_files(table), strict=True):
        if not any(_may_hold(action, places, prefix) for prefix in prefixes):
            continue
        if file.has_deletions:
            raise ErasureError(
                f"{table.table_uri}: the data file {unquote(file.path)} has a deletion vector, expected none. Another "
                "program wrote it. Run REORG TABLE … APPLY (PURGE) with that program, then erase again"
            )
        groups = {}
        with folder.open_input_file(unquote(file.path)) as source, _open(source) as parquet:
            for group in range(parquet.num_row_groups):
                names = [f"{prefix}{name}" for prefix in prefixes for name in _PLACE]
                rows = parquet.read_row_group(group, names, use_threads=False)
                if rows.num_rows and len(found := np.flatnonzero(names_erased(rows, places, prefixes))):
                    groups[group] = found
        if groups:
            yield FileHits(file, groups)


def names_erased(rows: pa.Table, places: ErasedPlaces, prefixes: Sequence[str] = ("",)) -> Array:
    """Return which rows refer to any of the given messages.

    Args:
        rows: rows with the columns of a broker and an offset for each prefix.
        prefixes: as for `find_hits`.
    """
    rows = rows.combine_chunks()
    found = np.zeros(rows.num_rows, bool)
    for prefix in prefixes if rows.num_rows else ():
        columns = (rows.column(f"{prefix}{name}").chunk(0) for name in _PLACE)
        found |= places.ids_of_rows(*columns) >= 0
    return found


def unerased(table: DeltaTable, hits: FileHits) -> FileHits:
    """Return the rows of a data file of `messages` that are not erased yet."""
    groups = {}
    with folder_of(table.table_uri).open_input_file(unquote(hits.file.path)) as source, _open(source) as parquet:
        for group, rows in hits.groups.items():
            columns = parquet.read_row_group(group, list(CHANGED_COLUMNS), use_threads=False).combine_chunks()
            is_left = ~are_erased(columns.take(pa.array(rows)))
            if is_left.any():
                groups[group] = rows[is_left]
    return FileHits(hits.file, groups)


def read_hits(table: DeltaTable, hits: FileHits, schema: pa.Schema) -> pa.Table:
    """Read the found rows of a data file; a column that the file does not have is null."""
    with folder_of(table.table_uri).open_input_file(unquote(hits.file.path)) as source, _open(source) as parquet:
        there = [name for name in schema.names if name in parquet.schema_arrow.names]
        parts = [
            parquet.read_row_group(group, there, use_threads=False).combine_chunks().take(pa.array(rows))
            for group, rows in hits.groups.items()
        ]
    found = pa.concat_tables(parts)
    columns = [
        found.column(field.name).cast(field.type) if field.name in there else pa.nulls(len(found), field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def _open(source: pa.NativeFile) -> pq.ParquetFile:
    return pq.ParquetFile(source, page_checksum_verification=True)


def _may_hold(action: Mapping[str, Any], places: ErasedPlaces, prefix: str) -> bool:
    least: dict[str, Any] = {name: (action.get("min") or {}).get(f"{prefix}{name}") for name in _PLACE}
    greatest: dict[str, Any] = {name: (action.get("max") or {}).get(f"{prefix}{name}") for name in _PLACE}
    first, last = least["physical_offset"], greatest["physical_offset"]
    for broker, found in places.brokers.items():
        is_known = least.get("broker") is not None and greatest.get("broker") is not None
        if is_known and not least["broker"] <= broker <= greatest["broker"]:
            continue
        if first is None or last is None or places.of_range(broker, first, last + 1):
            return bool(len(found.offsets))
    return False
