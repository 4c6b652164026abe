"""Finds data files that do not match the table's log: missing, truncated, zeroed or changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from commitlake.connectors.lake.delta_log.file_actions import TableFile, read_file_actions, read_table_files
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.runtime.local_runner import HERE
from commitlake.connectors.runtime.runner import Runner
from commitlake.schemas.formatted_counts import format_count

_FILES, _DEEP_FILES = 100, 1
"""Number of files in one task."""
_Bounds = tuple[dict[str, Any], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class DataDamage:
    """Data file that is missing, unreadable, or other than the Delta log says.

    Attributes:
        file: the file as the log lists it.
        reason: a sentence on what was expected and what was found.
        bounds: minimum and maximum of its columns according to the log.
    """

    file: TableFile
    reason: str
    bounds: _Bounds

    def __str__(self) -> str:
        return f"{self.file.path}: {self.reason}"


def find_damaged_files(lake: Lake, table: str, *, is_deep: bool, runner: Runner = HERE) -> Iterator[DataDamage]:
    """Find the data files of a table that are missing, unreadable, or other than the Delta log says.

    Args:
        table: name of the table; a table that the lake lacks has no files.
        is_deep: True to read every page and check its checksum; otherwise only names, sizes and footers are checked.

    Yields:
        The damaged files, in the log's order if the runner keeps the order of tasks.
    """
    opened = lake.find(table)
    if opened is None:
        return
    actions = read_file_actions(opened).to_pylist()
    known = {action["path"]: (action.get("min") or {}, action.get("max") or {}) for action in actions}
    files = [(file, known[file.path]) for file in read_table_files(opened)]
    length = _DEEP_FILES if is_deep else _FILES
    groups = [files[first : first + length] for first in range(0, len(files), length)]
    for _, damages in runner.run(partial(_damages_of_files, lake, table, is_deep), groups, is_io_bound=not is_deep):
        yield from damages


def _damages_of_files(
    lake: Lake, table: str, is_deep: bool, files: Sequence[tuple[TableFile, _Bounds]]
) -> list[DataDamage]:
    folder = lake.open_folder(table)
    infos = folder.get_file_info([unquote(file.path) for file, _ in files])
    found = []
    for (file, bounds), info in zip(files, infos, strict=True):
        reason = _size_damage(file, info) or _content_damage(folder, file, bounds, is_deep=is_deep)
        if reason:
            found.append(DataDamage(file, reason, bounds))
    return found


def _size_damage(file: TableFile, info: pafs.FileInfo) -> str:
    if not info.is_file:
        return f"expected {file.size:,} bytes, found no such file"
    if info.size != file.size:
        return f"expected {file.size:,} bytes, found {info.size:,}"
    return ""


def _content_damage(files: pafs.FileSystem, file: TableFile, bounds: _Bounds, *, is_deep: bool) -> str:
    try:
        with (
            files.open_input_file(unquote(file.path)) as source,
            pq.ParquetFile(source, page_checksum_verification=True) as parquet,
        ):
            reason = _footer_damage(parquet.metadata, file, bounds)
            if is_deep and not reason:
                for group in range(parquet.num_row_groups):
                    for batch in parquet.iter_batches(row_groups=[group]):
                        batch.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        lines = str(error).splitlines() or ["no message"]
        return f"expected a whole Parquet file, found one that cannot be read: {lines[0]}"
    return reason


def _footer_damage(metadata: pq.FileMetaData, file: TableFile, bounds: _Bounds) -> str:
    if file.rows is not None and metadata.num_rows != file.rows:
        return f"expected {format_count(file.rows, 'row')}, found {metadata.num_rows:,}"
    for bound, choose, known in (("min", min, bounds[0]), ("max", max, bounds[1])):
        for name, value in _column_bounds(metadata, bound, choose).items():
            if isinstance(known.get(name), int) and known[name] != value:
                return f"expected {known[name]} as the {bound} of {name}, found {value} in the file's footer"
    return ""


def _column_bounds(metadata: pq.FileMetaData, statistic_name: str, choose_value: Any) -> dict[str, int]:
    """Return the minimum or maximum of each integer column, from the statistics of the row groups."""
    found: dict[str, int] = {}
    for group in range(metadata.num_row_groups):
        for number in range(metadata.num_columns):
            column = metadata.row_group(group).column(number)
            if column.statistics is None or not column.statistics.has_min_max:
                continue
            try:
                value = getattr(column.statistics, statistic_name)
            except OverflowError:  # a time beyond the range of Python's calendar; times are not compared
                continue
            if type(value) is int:
                name = column.path_in_schema
                found[name] = choose_value(found.get(name, value), value)
    return found
