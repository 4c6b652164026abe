"""Writes a run's data file of `profiles` piece by piece, with a row group for each piece."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq

from commitlake.connectors.lake.data_files import DataFile, open_table_file
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.row_sums import SummedWriter
from commitlake.connectors.lake.statistics import file_statistics
from commitlake.pipelines.quality.wire import PROFILES_SCHEMA, to_profiles


class ProfilesFile:
    """Open file of profiles; see `open_profiles_file`."""

    def __init__(self, name: str, run_id: str, writer: pq.ParquetWriter) -> None:
        self._name, self._run_id, self._writer = name, run_id, writer
        self._rows = 0
        self._written: DataFile | None = None

    def add(self, profile: pa.Table) -> None:
        """Write windows of the run, as a table of `PROFILE`."""
        self._writer.write_table(to_profiles(profile, self._run_id))
        self._rows += profile.num_rows

    def end(self, size: int, metadata: pq.FileMetaData) -> None:
        """Record size and metadata of the finished file."""
        self._written = DataFile(self._name, None, size, self._rows, file_statistics(metadata))

    @property
    def written(self) -> DataFile:
        """The data file, once it is complete."""
        assert self._written is not None
        return self._written


def profiles_file(run_id: str) -> str:
    """Return the name of a commit's data file, in the folder of the table."""
    return f"part-{run_id}.zstd.parquet"


@contextmanager
def open_profiles_file(lake: Lake, run_id: str) -> Iterator[ProfilesFile]:
    """Open the file. It exists once the context ends without an error, and belongs to no table before the commit.

    the lake.

    Raises:
        S3Error: if an object store refuses it.
    """
    name = profiles_file(run_id)
    collected: list[pq.FileMetaData] = []
    with open_table_file(lake.uri("profiles"), name, lake.s3) as output:
        with SummedWriter(
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
            file = ProfilesFile(name, run_id, writer)
            yield file
        size = output.tell()
    file.end(size, collected[0])
