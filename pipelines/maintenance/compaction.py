"""OPTIMIZE: many small data files become few, in the order of the table; each merge is a commit of its own.

A commit that changes no data, and says so: who follows the table by version sees nothing new, and the archive's
progress, which stands in the metadata of its own commits, stays where it is. Only where rows are joined does it say
that data changes. Killed at any moment, the table is as it was or as it should be, and a file that no version names is
left for VACUUM.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from commitlake.connectors.lake.data_files import NO_DATE
from commitlake.connectors.lake.delta import delta_table
from commitlake.connectors.lake.statistics import file_statistics
from commitlake.connectors.runtime.local_runner import HERE
from commitlake.connectors.runtime.runner import Runner
from commitlake.connectors.whole_files import write_whole
from commitlake.pipelines.edges.progress import OPEN_PREFIX, is_open_file
from commitlake.pipelines.maintenance.bins import Bin, plan_bins
from commitlake.pipelines.maintenance.merging import Merge, UnsortedFileError, open_merge
from commitlake.pipelines.maintenance.table_files import (
    ConcurrentMaintenanceError,
    TableFile,
    exchange_files,
    folder_of,
    read_table_files,
)
from commitlake.schemas.store_files import make_folders

_ROW_GROUP_ROWS = 1 << 17
_ROW_GROUP_BYTES = 32 << 20  # in memory
_PAGE_BYTES = 256 << 10  # with the page index, what a look-up may pass over
Join = Callable[[Iterator[pa.Table]], Iterator[pa.Table]]


@dataclass(frozen=True, slots=True)
class Compaction:
    """What was merged.

    Attributes:
        merged: files that are no longer in the table.
        written: files that took their place.
        bytes_before: of the former.
        bytes_after: of the latter.
        unsorted: files that were left alone, because another program wrote them in another order.
    """

    merged: int = 0
    written: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    unsorted: int = 0


def plan_compaction(table_uri: str, target_bytes: int) -> list[Bin]:
    """What `compact` would merge; files that the next run replaces are left alone."""
    files = read_table_files(delta_table(table_uri))
    return plan_bins([file for file in files if not is_open_file(file.path)], target_bytes)


def compact(
    table_uri: str,
    bins: Sequence[Bin],
    sort_columns: Sequence[str],
    advance: Callable[[int], None] = lambda _: None,
    runner: Runner = HERE,
    join: Join | None = None,
) -> Compaction:
    """Merge files. Tasks merge; the commits are made here, one for each merge that is done.

    Args:
        table_uri: path or URI of the table.
        bins: from `plan_compaction`.
        sort_columns: the order of the table's rows within a file; none, where files just follow one another.
        advance: is told how many bytes more are done.
        runner: what runs the tasks; on other machines they need the same folder.
        join: makes fewer rows of those of a new file, in the same order; they say the same. Can be pickled.

    Raises:
        ConcurrentMaintenanceError: if somebody else has merged or removed some of them meanwhile.
    """
    done = Compaction()
    merge = partial(_merge_bin, table_uri, tuple(sort_columns), join)
    for number, (files, new, unsorted) in runner.run(merge, bins):
        part = Compaction(unsorted=unsorted)
        if new is not None:
            exchange_files(table_uri, files, [new], changes_data=join is not None, note={"action": "compact"})
            part = Compaction(len(files), 1, sum(file.size for file in files), new.size, unsorted)
        done = Compaction(
            done.merged + part.merged,
            done.written + part.written,
            done.bytes_before + part.bytes_before,
            done.bytes_after + part.bytes_after,
            done.unsorted + part.unsorted,
        )
        advance(bins[number].size)
    return done


def rewrite_file(table_uri: str, file: TableFile, change: Join) -> TableFile:
    """Write a data file's rows into a new one, changed on the way; no version names it yet.

    Args:
        table_uri: path or URI of the table.
        file: of the table.
        change: gives other rows for those of the file, in the same order; it may leave some out.

    Raises:
        ConcurrentMaintenanceError: if somebody else has deleted the file.
    """
    return _merge(table_uri, [file], (), change)


def _merge_bin(
    table_uri: str, sort_columns: Sequence[str], join: Join | None, found: Bin
) -> tuple[Sequence[TableFile], TableFile | None, int]:
    """Merge a bin: the files that were, the new one, which no version names yet, and how many stay out of it."""
    files = list(found.files)
    unsorted = 0
    while len(files) > 1:
        try:
            return files, _merge(table_uri, files, sort_columns, join), unsorted
        except UnsortedFileError as error:
            files.pop(error.number)
            unsorted += 1
    return files, None, unsorted


def _merge(table_uri: str, files: Sequence[TableFile], sort_columns: Sequence[str], join: Join | None) -> TableFile:
    """One file with the rows of all; no version names it yet."""
    partition = files[0].partition
    prefix = OPEN_PREFIX if is_open_file(files[0].path) else ""
    name = f"{prefix}{uuid.uuid4()}.parquet"
    path = "/".join([*(f"{column}={value or NO_DATE}" for column, value in partition.items()), name])
    try:
        merge = open_merge(folder_of(table_uri), [file.path for file in files], sort_columns)
        with merge, _open_new(table_uri, path) as output:
            batches = merge.batches()
            metadata = _write(merge, output, batches if join is None else join(batches))
    except FileNotFoundError as error:
        raise ConcurrentMaintenanceError(f"{table_uri}: a file went while it was merged: {error}") from None
    size = folder_of(table_uri).get_file_info(path).size
    arrived = max(file.modified_ms for file in files)
    return TableFile(path, partition, size, metadata.num_rows, arrived, statistics=file_statistics(metadata))


@contextmanager
def _open_new(table_uri: str, path: str) -> Iterator[BinaryIO]:
    if "://" in table_uri:
        with folder_of(table_uri).open_output_stream(path) as output:
            yield output
        return
    local = Path(table_uri) / path
    make_folders(local.parent, below=Path(table_uri))
    with write_whole(local) as output:
        yield output


def _write(merge: Merge, output: BinaryIO, batches: Iterator[pa.Table]) -> pq.FileMetaData:
    collected: list[pq.FileMetaData] = []
    with pq.ParquetWriter(
        output,
        merge.schema,
        compression="zstd",
        compression_level=1,
        use_dictionary=merge.dictionaries(),
        column_encoding=merge.encodings(),
        data_page_size=_PAGE_BYTES,
        write_statistics=[field.name for field in merge.schema if _has_statistics(field.type)],
        write_page_index=True,
        write_page_checksum=True,
        store_schema=False,
        metadata_collector=collected,
    ) as writer:
        for group in _row_groups(batches):
            writer.write_table(group, row_group_size=max(1, len(group)))
    return collected[0]


def _has_statistics(data_type: pa.DataType) -> bool:
    return not pa.types.is_nested(data_type) and not pa.types.is_binary(data_type)  # Delta has no word for bytes


def _row_groups(batches: Iterator[pa.Table]) -> Iterator[pa.Table]:
    held: list[pa.Table] = []
    for batch in batches:
        rows = sum(map(len, held)) + len(batch)
        if held and (rows > _ROW_GROUP_ROWS or sum(part.nbytes for part in held) + batch.nbytes > _ROW_GROUP_BYTES):
            yield pa.concat_tables(held)
            held = []
        held.append(batch)
    if held:
        yield pa.concat_tables(held)
