"""Data files of `message_keys`, from rows of `messages`: those that a task has in memory, or those of data files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from commitlake.connectors.lake.data_files import DataFile
from commitlake.connectors.lake.erasures import NOTHING_ERASED, ErasedPlaces
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.plain_files import write_plain_file
from commitlake.pipelines.message_keys.key_rows import COLUMNS, to_keys

MAX_ROWS = 1 << 18
"""Largest number of rows of `messages` whose keys go to one file, unless one data file has more: some 150 MiB of a
worker's memory."""
_MAX_BYTES = 32 << 20  # of the columns that keys are made of, likewise
_GROUP_ROWS = 1 << 16
_ENCODINGS = {
    "key_hash": "DELTA_BINARY_PACKED",
    "key": "PLAIN",
    "physical_offset": "DELTA_BINARY_PACKED",
    "store_timestamp": "DELTA_BINARY_PACKED",
}


@dataclass(frozen=True)
class PreparedKeys:
    """Keys of new data files of `messages`, which the tasks that wrote these files have written, too.

    Attributes:
        messages: names of the data files of `messages`.
        erasure: number of the newest erasure that was known; none of its messages, nor of earlier ones, are there.
        files: data files of `message_keys`, which no version refers to yet.
    """

    messages: frozenset[str]
    erasure: int
    files: list[DataFile]


class KeyWriter:
    """Writes the keys of a task's rows to files whose names begin with `name`.

    Args:
        lake: where the tables are.
        name: beginning of the file names.
        erased: messages whose keys are left out.
    """

    def __init__(self, lake: Lake, name: str, erased: ErasedPlaces = NOTHING_ERASED) -> None:
        self._lake = lake
        self._name = name
        self._erased = erased
        self._waiting: list[pa.Table] = []
        self._rows = 0
        self._bytes = 0
        self._written: list[DataFile] = []

    def add(self, messages: pa.Table) -> None:
        """Add the rows of a data file of `messages`."""
        rows = messages.select(COLUMNS)
        size = rows.nbytes
        if self._rows + rows.num_rows > MAX_ROWS or self._bytes + size > _MAX_BYTES:
            self._write()
        self._waiting.append(rows)
        self._rows += rows.num_rows
        self._bytes += size
        if self._bytes > _MAX_BYTES:  # the data file is written next, which needs the memory
            self._write()

    def finish(self) -> list[DataFile]:
        """Write the remaining keys and return all files; they are in no table until they are committed."""
        self._write()
        return self._written

    def _write(self) -> None:
        if not self._waiting:
            return
        parts, self._waiting, self._rows, self._bytes = self._waiting, [], 0, 0
        name = f"{self._name}-{len(self._written):03d}.zstd.parquet"
        file = write_keys(parts, self._erased, self._lake, name)
        if file is not None:
            self._written.append(file)


def write_keys(parts: Sequence[pa.Table], erased: ErasedPlaces, lake: Lake, name: str) -> DataFile | None:
    """Write the keys of messages to a file, if there are any; it is in no table until it is committed.

    Args:
        parts: rows of `messages` with the columns that `to_keys` needs.
        erased: messages whose keys are left out.
        name: name of the file.
    """
    rows = to_keys(erased.without(pa.concat_tables(parts)))
    if not rows.num_rows:
        return None
    return write_plain_file(rows, lake.uri("message_keys"), name, _ENCODINGS, _GROUP_ROWS, lake.s3, is_summed=False)
