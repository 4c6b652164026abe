"""Writing and deleting the rows of a version's data files in HBase, over one connection or in tasks of a runner."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from commitlake.connectors.hbase.client import Client
from commitlake.connectors.hbase.options import HBaseOptions
from commitlake.connectors.hbase.writer import delete_entries_by_key, delete_messages, write_messages
from commitlake.connectors.lake.delta_log.versions import AddedFile, AddedVersion
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.runtime.runner import Runner, divide_tasks
from commitlake.schemas.tables.messages import MESSAGES, STORE_DATE

PIECE_ROWS = 100_000
"""Target number of rows in one piece of work; a piece has whole row groups."""

Offsets = npt.NDArray[np.int64]
_PLACE = ["broker", "physical_offset"]
_KEYS = ["unique_key", "keys"]
_KEY_COLUMNS = [*_PLACE, "topic", "store_timestamp", *_KEYS]


@dataclass(frozen=True, slots=True)
class DataFileShare:
    """Share of a data file for one task: every `parts`-th row group, beginning with row group `part`."""

    name: str
    store_date: str | None
    part: int
    parts: int


@dataclass(frozen=True)
class RowWritingTask:
    """A task that writes the rows of data files to HBase, or deletes them there.

    Attributes:
        options: where HBase is.
        salts: the table's number of salts.
        lake: the lake with the rows; each process finds the credentials of its object store itself.
        delete: whether to delete the rows.
        kept: rows that are not deleted: physical offsets by broker, in order.
        bare: rows of `kept` that no longer have keys, so that their index entries by key are deleted.
    """

    options: HBaseOptions
    salts: int
    lake: Lake
    delete: bool = False
    kept: Mapping[str, Offsets] | None = None
    bare: Mapping[str, Offsets] | None = None

    def to_deletion_except(self, kept_rows: KeptRows) -> RowWritingTask:
        """Return a task that deletes this task's rows, except those that the version of `messages` has added again."""
        return replace(self, delete=True, kept=kept_rows.all, bare=kept_rows.bare)

    def open_filesystem(self) -> pafs.FileSystem:
        """Return a filesystem whose root is the folder of `messages`, with current credentials."""
        return self.lake.open_folder("messages")

    def process_file_shares(self, pieces: Iterable[DataFileShare]) -> int:
        """Write or delete the rows of pieces of data files, over one connection, and return the number of rows."""
        files = self.open_filesystem()
        with Client(self.options) as client:
            batches = (batch for piece in pieces for batch in self._read_batches(piece, files))
            if self.delete:
                return delete_messages(client, (self._rows_to_delete(client, batch) for batch in batches), self.salts)
            return write_messages(client, batches, self.salts)

    def _read_batches(self, piece: DataFileShare, filesystem: Any) -> Iterator[pa.RecordBatch]:
        # A file does not contain the partition column. Reading by row groups limits the memory used for a file.
        with (
            filesystem.open_input_file(piece.name) as source,
            pq.ParquetFile(source, page_checksum_verification=True) as parquet,
        ):
            stored = set(parquet.schema_arrow.names)
            wanted = _KEY_COLUMNS if self.delete else MESSAGES.names
            columns = [name for name in wanted if name in stored]
            groups = list(range(piece.part, parquet.num_row_groups, piece.parts))
            for batch in parquet.iter_batches(self.options.batch_rows, groups, columns) if groups else ():
                if self.delete or STORE_DATE.name in stored:
                    yield batch
                else:
                    dates = pa.repeat(pa.scalar(piece.store_date, pa.string()), batch.num_rows)
                    yield batch.append_column(STORE_DATE.name, dates.cast(pa.date32()))

    def _rows_to_delete(self, client: Client, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows to delete: those of the batch that the same version of `messages` has not added again.

        Before that, delete the index entries of kept rows that lost their keys.
        """
        if not self.kept:
            return batch
        places = list(zip(*(batch.column(name).to_pylist() for name in _PLACE), strict=True))
        if self.bare:
            is_bare = [_contains_offset(self.bare.get(broker), offset) for broker, offset in places]
            if any(is_bare):
                delete_entries_by_key(client, batch.filter(pa.array(is_bare, pa.bool_())), self.salts)
        return batch.filter(
            pa.array([not _contains_offset(self.kept.get(broker), offset) for broker, offset in places], pa.bool_())
        )


def _contains_offset(offsets: Offsets | None, offset: int) -> bool:
    if offsets is None:
        return False
    place = int(np.searchsorted(offsets, offset))
    return place < len(offsets) and int(offsets[place]) == offset


def divide_into_file_shares(files: Sequence[AddedFile]) -> list[DataFileShare]:
    """Divide data files into pieces of about `PIECE_ROWS` rows."""
    pieces = []
    for file in files:
        parts = max(1, -(-(file.rows or 1) // PIECE_ROWS))
        pieces += [DataFileShare(file.name, file.store_date, part, parts) for part in range(parts)]
    return pieces


@dataclass(frozen=True, slots=True)
class KeptRows:
    """Rows that a version of `messages` removed and added again, as sorted physical offsets by broker.

    Attributes:
        all: offsets of all such rows.
        bare: offsets of the rows without any key.
    """

    all: Mapping[str, Offsets]
    bare: Mapping[str, Offsets]


def find_kept_rows(row_update: RowWritingTask, version: AddedVersion) -> KeptRows:
    """Return the rows that a version may have removed and added again; none if it removed no files.

    Needs eight bytes for each row that a DELETE, an UPDATE or an erasure has rewritten.
    """
    if not version.removed:
        return KeptRows({}, {})
    kept: dict[str, list[Offsets]] = {}
    bare: dict[str, list[Offsets]] = {}
    files = row_update.open_filesystem()
    for file in version.files:
        with files.open_input_file(file.name) as source:
            rows = pq.read_table(source, columns=[*_PLACE, *_KEYS], page_checksum_verification=True)
        brokers = rows.column("broker").cast(pa.string())  # some writers produce string views, which lack comparisons
        has_keys = pc.or_(*(pc.is_valid(rows.column(name)) for name in _KEYS))
        for broker in pc.unique(brokers).to_pylist():
            is_own = pc.equal(brokers, broker)
            for places, chosen in ((kept, is_own), (bare, pc.and_not(is_own, has_keys))):
                places.setdefault(broker, []).append(rows.column("physical_offset").filter(chosen).to_numpy())
    return KeptRows(_join_and_sort_offsets(kept), _join_and_sort_offsets(bare))


def _join_and_sort_offsets(offset_parts: Mapping[str, Sequence[Offsets]]) -> Mapping[str, Offsets]:
    return {broker: np.sort(np.concatenate(found)) for broker, found in offset_parts.items()}


def process_files(row_update: RowWritingTask, files: Sequence[AddedFile]) -> int:
    """Write or delete the rows of data files in this process, over one connection, and return the number of rows."""
    return row_update.process_file_shares(divide_into_file_shares(files)) if files else 0


def process_files_in_tasks(runner: Runner, row_update: RowWritingTask, files: Sequence[AddedFile]) -> int:
    """Write or delete the rows of data files in tasks, `connections` at a time, and return the number of rows.

    Raises:
        HBaseError: if a task fails.
    """
    groups = divide_tasks(divide_into_file_shares(files), row_update.options.connections or 2 * runner.cores)
    return sum(rows for _, rows in runner.run(row_update.process_file_shares, groups))
