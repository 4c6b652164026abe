"""Files of profiles: those that tasks pass to the driver, and the run's data file of the table `profiles`.

A small profile is in its task's manifest, a large one in a file in `profiles/staged/RUN` of the lake, where no version
of the table refers to it. A run deletes these files after judging them; VACUUM deletes those of a killed run. Each
attempt of a task has its own file, and only the file named by the received manifest is read.

The run's data file is written piece by piece, with a row group for each piece.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.manifest import ManifestRow, TaskProfile
from commitlake.connectors.lake.rows.data_files import DataFile, open_table_file
from commitlake.connectors.lake.rows.row_sums import RowSumWriter
from commitlake.connectors.lake.rows.statistics import file_statistics
from commitlake.pipelines.quality.profile_columns import (
    PROFILES_SCHEMA,
    SCHEMA,
    ProfileError,
    parse_profile,
    serialize_profile,
    to_profiles,
)
from commitlake.pipelines.quality.profile_merging import merge_profiles
from commitlake.pipelines.quality.profile_partitions import (
    GROUP_ROWS,
    PartitionGroup,
    PartitionIndex,
    group_partitions,
    parse_partitions,
    partition_row_counts,
    select_group_rows,
    serialize_partitions,
)

STAGED = "staged"
_INLINE_BYTES = 16 << 10
_INLINE_ALL_BYTES = 32 << 20  # total of all tasks; profiles take four times as much in the driver's memory
_LEAST_ROW_BYTES = 8  # a checksum, which cannot be compressed
_READERS = 8


def max_inline_bytes(task_count: int) -> int:
    """Return the largest size, in bytes, of the message counts that a task may put into its manifest."""
    return min(_INLINE_BYTES, _INLINE_ALL_BYTES // max(task_count, 1))


def write_staged_profile(profile: pa.Table, lake: Lake, run_id: str, name: str, inline_limit_bytes: int) -> TaskProfile:
    """Return a task's message counts for its manifest: serialized or, if they are too large, written to a named file.

    Args:
        run_id: id of the archive run.
        name: name of the file, if one is written, without suffix.
        inline_limit_bytes: largest size in bytes of a profile in the manifest.
    """
    if (
        # A lower bound first: a large profile is not serialized only to be found too large.
        profile.num_rows * _LEAST_ROW_BYTES <= inline_limit_bytes
        and len(data := serialize_profile(profile)) <= inline_limit_bytes
    ):
        return TaskProfile(data)
    written, index = serialize_partitions(profile)
    path = f"{STAGED}/{run_id}/{name}.arrow"
    with open_table_file(lake, "profiles", path) as output:
        output.write(written)
    return TaskProfile(index.to_bytes(), path)


def merge_task_profiles(
    lake: Lake, manifest: Sequence[ManifestRow], max_windows: int = GROUP_ROWS
) -> Iterator[pa.Table]:
    """Merge the message counts of all tasks, and yield tables that each have all time windows of some topics.

    There is at least one table.

    Args:
        manifest: rows of all tasks.
        max_windows: number of windows of all tasks that are merged at once; one topic may have more.

    Raises:
        ProfileError: if a file is missing or damaged.
    """
    profiles = [row.task_profile for row in manifest if row.task_profile is not None]
    inline = [parse_profile(one.data) for one in profiles if not one.path]
    small = pa.concat_tables(inline) if inline else SCHEMA.empty_table()
    staged = [(one.path, PartitionIndex.from_bytes(one.data)) for one in profiles if one.path]
    if not staged and small.num_rows <= max_windows:
        yield merge_profiles([small])
        return
    counts = sum((index.row_counts for _, index in staged), partition_row_counts(small))
    with ThreadPoolExecutor(_READERS) as readers:
        for group in group_partitions(counts, max_windows):
            yield merge_profiles([select_group_rows(small, group), *_read_profile_group(readers, lake, staged, group)])


@contextmanager
def clean_up_staged_profiles(lake: Lake, run_id: str) -> Iterator[list[ManifestRow]]:
    """Delete the files of a run's message counts when the context ends; VACUUM deletes any that remain.

    Args:
        run_id: id of the archive run.

    Yields:
        A list for the manifest. If it is empty at the end, tasks may have staged any files.
    """
    manifest: list[ManifestRow] = []
    try:
        yield manifest
    finally:
        # Without a manifest nothing is known of what the tasks have staged.
        if not manifest or any(row.profile_path for row in manifest):
            _delete_folder(lake, f"{STAGED}/{run_id}")


def _delete_folder(lake: Lake, folder: str) -> None:
    if lake.s3 is None:
        shutil.rmtree(Path(lake.uri("profiles")) / folder, ignore_errors=True)
        return
    with suppress(Exception):  # an error here must not replace the run's own
        lake.open_folder("profiles").delete_dir(folder)


def _read_profile_group(
    readers: ThreadPoolExecutor, lake: Lake, staged_files: Sequence[tuple[str, PartitionIndex]], group: PartitionGroup
) -> list[pa.Table]:
    """Read the message counts in a group of partitions from all staged files, one table for each file."""
    if not staged_files:
        return []
    files = _StagedReader(lake, group)  # with current credentials
    return list(readers.map(files.read_group_rows, *zip(*staged_files, strict=True)))


class _StagedReader:
    """Reads the message counts in one group of partitions from staged files."""

    def __init__(self, lake: Lake, group: PartitionGroup) -> None:
        self._folder = lake.uri("profiles")
        self._files = lake.open_folder("profiles")
        self._group = group

    def read_group_rows(self, path: str, index: PartitionIndex) -> pa.Table:
        """Return the rows of the group of partitions in one staged file."""
        offset, length = index.byte_range(self._group)
        if not length:
            return SCHEMA.empty_table()
        try:
            with self._files.open_input_file(path) as source:
                there = max(0, source.size() - offset)
                data = source.read_at(min(length, there), offset) if there else b""
        except FileNotFoundError:
            raise ProfileError(
                f"{self._folder}/{path}: the file with counts that a task wrote was deleted before the run had read "
                "it. Run the command again"
            ) from None
        try:
            return parse_partitions(data, index, self._group)
        except ProfileError as error:
            raise ProfileError(
                f"{self._folder}/{path}: {error}. Nothing of this commit was archived; run the command again"
            ) from None


class ProfilesTableFile:
    """Writer of a run's data file of the table `profiles`."""

    def __init__(self, name: str, run_id: str, writer: pq.ParquetWriter) -> None:
        self._name, self._run_id, self._writer = name, run_id, writer
        self._rows = 0
        self._written: DataFile | None = None

    def add_windows(self, profile: pa.Table) -> None:
        """Write message counts to the file, given as a table of `PROFILE` with a row for each queue and time window."""
        self._writer.write_table(to_profiles(profile, self._run_id))
        self._rows += profile.num_rows

    def set_finished(self, size: int, metadata: pq.FileMetaData) -> None:
        """Record the size in bytes and the Parquet metadata of the finished file."""
        self._written = DataFile(self._name, None, size, self._rows, file_statistics(metadata))

    @property
    def data_file(self) -> DataFile:
        """The data file, once it is complete."""
        assert self._written is not None
        return self._written


def profiles_file_name(run_id: str) -> str:
    """Return the file name of a run's data file in the table `profiles`."""
    return f"part-{run_id}.zstd.parquet"


@contextmanager
def open_profiles_file(lake: Lake, run_id: str) -> Iterator[ProfilesTableFile]:
    """Open a run's new data file of `profiles`. It exists once the context ends, and is in the table after a commit."""
    name = profiles_file_name(run_id)
    collected: list[pq.FileMetaData] = []
    with open_table_file(lake, "profiles", name) as output:
        with RowSumWriter(
            output,
            PROFILES_SCHEMA,
            compression="zstd",
            store_schema=False,
            use_dictionary=PROFILES_SCHEMA.names,
            write_statistics=PROFILES_SCHEMA.names,
            write_page_index=True,
            write_page_checksum=True,
            metadata_collector=collected,
        ) as writer:
            file = ProfilesTableFile(name, run_id, writer)
            yield file
        size = output.tell()
    file.set_finished(size, collected[0])
