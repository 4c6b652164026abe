"""OPTIMIZE: merges many small data files into few, in the table's sort order, with one commit for each merge.

The commits are marked as changing no data. Readers that follow the table by version see nothing new, and the archive's
progress, which is in the metadata of its own commits, is not affected. Only a merge that also combines rows is marked
as a change of data. If a run is killed, the table is in its state before or after a merge, and VACUUM later deletes any
file that no version refers to.

Files are merged that are small, of one partition, and adjacent in time, up to a target size. A merged file covers a
range of time and is sorted by topic and queue. A look-up by time skips whole files; a look-up by topic and queue skips
row groups within each file.
"""

from __future__ import annotations

import datetime
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq

from commitlake.connectors.lake.delta_log.file_actions import TableFile, read_table_files
from commitlake.connectors.lake.delta_log.row_sum_changes import read_footer_sum
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.paths import check_table_links
from commitlake.connectors.lake.rows.data_files import NO_DATE, open_table_file
from commitlake.connectors.lake.rows.row_sums import RowSumWriter
from commitlake.connectors.lake.rows.statistics import file_statistics
from commitlake.connectors.runtime.local_runner import HERE
from commitlake.connectors.runtime.runner import Runner
from commitlake.pipelines.edges.progress import OPEN_PREFIX, is_open_steps_file
from commitlake.pipelines.maintenance.file_replacement import ConcurrentMaintenanceError, replace_table_files
from commitlake.pipelines.maintenance.sorted_file_merge import SortedFileMerge, UnsortedFileError, open_merge

_MAX_ROWS = 4 << 20  # their sort keys are held in memory
_MAX_FILES = 512  # files that are open at the same time
_NO_TIME = datetime.datetime.min.replace(tzinfo=datetime.UTC)
_ROW_GROUP_ROWS = 1 << 17
_ROW_GROUP_BYTES = 32 << 20  # size in memory
_PAGE_BYTES = 256 << 10  # size of the parts that a look-up can skip by the page index
Join = Callable[[Iterator[pa.Table]], Iterator[pa.Table]]


@dataclass(frozen=True, slots=True)
class CompactionBin:
    """Group of small data files that a compaction merges into one."""

    files: tuple[TableFile, ...]

    @property
    def size(self) -> int:
        """Total size of the files in bytes."""
        return sum(file.size for file in self.files)

    @property
    def row_count(self) -> int:
        """Total number of rows."""
        return sum(file.rows or 0 for file in self.files)


def plan_bins(files: Sequence[TableFile], target_bytes: int) -> list[CompactionBin]:
    """Choose small data files, and group them so that each group can be merged into one file.

    After the merge, planning again gives no bins, or one with leftover files.

    Args:
        files: data files of the table.
        target_bytes: target size; files of at least half of it are not merged.
    """
    groups: dict[tuple[str, ...], list[TableFile]] = defaultdict(list)
    for file in files:
        if file.size < target_bytes // 2 and not file.has_deletions and file.rows is not None:
            groups[_merge_group_key(file)].append(file)
    return [found for name in sorted(groups) for found in _fill_compaction_bins(groups[name], target_bytes)]


def _merge_group_key(file: TableFile) -> tuple[str, ...]:
    """Return a key that is equal for files that may be merged: their partition, or else their month.

    Files of different months stay apart, so that old rows can be dropped as whole files.
    """
    if any(value is not None for value in file.partition.values()):
        return tuple(f"{name}={value}" for name, value in sorted(file.partition.items()))
    return (f"{file.date:%Y-%m}",)


def _fill_compaction_bins(files: list[TableFile], target_bytes: int) -> list[CompactionBin]:
    bins: list[list[TableFile]] = [[]]
    size = rows = 0
    for file in sorted(files, key=lambda file: (file.first_time or _NO_TIME, file.modified_ms, file.path)):
        size, rows = size + file.size, rows + (file.rows or 0)
        if bins[-1] and (size > target_bytes or rows > _MAX_ROWS or len(bins[-1]) == _MAX_FILES):
            bins.append([])
            size, rows = file.size, file.rows or 0
        bins[-1].append(file)
    return [CompactionBin(tuple(found)) for found in bins if len(found) > 1]


@dataclass(frozen=True, slots=True)
class Compaction:
    """Number and size of the files that a compaction merged and wrote.

    Attributes:
        merged: number of files that were merged and left the table.
        written: number of files that replaced them.
        bytes_before: size of the merged files.
        bytes_after: size of the new files.
        unsorted: number of files that were not merged, because another program wrote them in another order.
    """

    merged: int = 0
    written: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    unsorted: int = 0


def plan_compaction(lake: Lake, table: str, target_bytes: int) -> list[CompactionBin]:
    """Return the groups of small files to merge in a table, without files that the next run replaces anyway."""
    files = read_table_files(lake.table(table))
    return plan_bins([file for file in files if not is_open_steps_file(file.path)], target_bytes)


def compact_table(
    lake: Lake,
    table: str,
    bins: Sequence[CompactionBin],
    sort_columns: Sequence[str],
    advance: Callable[[int], None] = lambda _: None,
    runner: Runner = HERE,
    join_equal_rows: Join | None = None,
) -> Compaction:
    """Merge each group of files into one file, in parallel tasks, and commit each merge when it is done.

    Args:
        table: name of the table.
        bins: from `plan_compaction`.
        sort_columns: the order of the rows within a file; if empty, the rows of one file follow those of the next.
        advance: called with the number of bytes that were done.
        runner: what runs the tasks; on other machines they need the same folder.
        join_equal_rows: combines equal rows of a new file and keeps their order; it must be picklable.

    Raises:
        ConcurrentMaintenanceError: if another process has merged or removed some of the files meanwhile.
        UnsafeFileError: if the table's folder is a link or contains one.
    """
    if bins:
        check_table_links(lake.uri(table))
    done = Compaction()
    merge = partial(_merge_bin, lake, table, tuple(sort_columns), join_equal_rows)
    for number, (files, new, unsorted) in runner.run(merge, bins):
        part = Compaction(unsorted=unsorted)
        if new is not None:
            replace_table_files(
                lake, table, files, [new], changes_data=join_equal_rows is not None, note={"action": "compact"}
            )
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


def rewrite_file(lake: Lake, table: str, file: TableFile, change_rows: Join) -> TableFile:
    """Write the changed rows of a data file to a new file, which is not committed yet.

    Args:
        table: name of the table.
        change_rows: returns the rows to write for the rows of the file, in the same order; it may leave some out.

    Raises:
        ConcurrentMaintenanceError: if another process has deleted the file.
    """
    return _merge_files(lake, table, [file], (), change_rows)


def _merge_bin(
    lake: Lake, table: str, sort_columns: Sequence[str], join_equal_rows: Join | None, files_to_merge: CompactionBin
) -> tuple[Sequence[TableFile], TableFile | None, int]:
    """Merge the files of one group into one file, leaving out files that are not sorted.

    Returns the merged files, the new file (which no version refers to yet), and the number of files that were not
    sorted.
    """
    files = list(files_to_merge.files)
    unsorted = 0
    while len(files) > 1:
        try:
            return files, _merge_files(lake, table, files, sort_columns, join_equal_rows), unsorted
        except UnsortedFileError as error:
            # It stays as it is, and the others are merged without it.
            files.pop(error.number)
            unsorted += 1
    return files, None, unsorted


def _merge_files(
    lake: Lake, table: str, files: Sequence[TableFile], sort_columns: Sequence[str], join_equal_rows: Join | None
) -> TableFile:
    """Write the rows of several files to one new file, which is not committed yet."""
    partition = files[0].partition
    prefix = OPEN_PREFIX if is_open_steps_file(files[0].path) else ""
    name = f"{prefix}{uuid.uuid4()}.parquet"
    path = "/".join([*(f"{column}={value or NO_DATE}" for column, value in partition.items()), name])
    try:
        merge = open_merge(lake.open_folder(table), [file.path for file in files], sort_columns)
        with merge, open_table_file(lake, table, path) as output:
            batches = merge.iterate_batches()
            metadata = _write_merged_rows(
                merge, output, batches if join_equal_rows is None else join_equal_rows(batches)
            )
    except FileNotFoundError as error:
        raise ConcurrentMaintenanceError(
            f"{lake.uri(table)}: another process deleted a data file while it was merged: {error}. Run the command "
            "again"
        ) from None
    size = lake.open_folder(table).get_file_info(path).size
    # The newest one, because the age of a file without a date is that of its newest rows.
    arrived = max(file.modified_ms for file in files)
    return TableFile(path, partition, size, metadata.num_rows, arrived, statistics=file_statistics(metadata))


def _write_merged_rows(merge: SortedFileMerge, output: pa.NativeFile, batches: Iterator[pa.Table]) -> pq.FileMetaData:
    collected: list[pq.FileMetaData] = []
    is_summed = all(read_footer_sum(source.metadata) is not None for source in merge.sources)
    with (RowSumWriter if is_summed else pq.ParquetWriter)(
        output,
        merge.schema.remove_metadata(),
        compression="zstd",
        compression_level=1,
        use_dictionary=merge.dictionary_column_paths(),
        column_encoding=merge.column_encodings(),
        data_page_size=_PAGE_BYTES,
        write_statistics=[field.name for field in merge.schema if _has_statistics(field.type)],
        write_page_index=True,
        write_page_checksum=True,
        store_schema=False,
        metadata_collector=collected,
    ) as writer:
        for group in _collect_row_groups(batches):
            writer.write_table(group, row_group_size=max(1, len(group)))
    return collected[0]


def _has_statistics(data_type: pa.DataType) -> bool:
    # Delta's statistics are JSON, which cannot hold bytes.
    return not pa.types.is_nested(data_type) and not pa.types.is_binary(data_type)


def _collect_row_groups(batches: Iterator[pa.Table]) -> Iterator[pa.Table]:
    held: list[pa.Table] = []
    for batch in batches:
        rows = sum(map(len, held)) + len(batch)
        if held and (rows > _ROW_GROUP_ROWS or sum(part.nbytes for part in held) + batch.nbytes > _ROW_GROUP_BYTES):
            yield pa.concat_tables(held)
            held = []
        held.append(batch)
    if held:
        yield pa.concat_tables(held)
