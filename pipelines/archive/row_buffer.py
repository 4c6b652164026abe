"""Buffer of rows to be written to data files: joined, with references to their bodies, grouped by date.

Rows are kept until there are enough for a file, or until they take up `PART_BYTES`. That size, not the log, bounds a
task's memory.

Messages that were erased before, and later copies of erased ones, are erased on arrival. A message is archived again
after a repair restored an earlier version of the lake. It is archived in its erased form, and the run's profile counts
it in this form. Its rows in `erasures`, with the event `again` or `copy`, are in a data file that the run's commit
names, like those of the tables that follow `messages`.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from commitlake.connectors.lake.erasures import ErasedMessages, parse_erased_messages
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.manifest import ManifestRow
from commitlake.connectors.lake.rows.data_files import CloseLater, DataFile, sort_rows, write_data_file
from commitlake.connectors.lake.rows.small_table_files import write_plain_file
from commitlake.connectors.numpy_arrays import Array
from commitlake.pipelines.archive.body_packs import NewBodyPack, date_of_day
from commitlake.pipelines.edges.row_lookup import may_need_edges
from commitlake.pipelines.masking.copies_of_erased import LaterCopies
from commitlake.pipelines.masking.erased_rows import erase_rows
from commitlake.pipelines.masking.erasure_rows import ErasureWriter, make_erasure_rows
from commitlake.pipelines.message_keys.key_files import KeyWriter
from commitlake.pipelines.quality.profile import profile_rows
from commitlake.pipelines.quality.profile_merging import merge_profiles
from commitlake.pipelines.topic_minutes.minute_counts import MinutesFiles
from commitlake.schemas.tables.erasures import ErasureEvent
from commitlake.schemas.tables.messages import BODY_PLACE, BODY_REF, MESSAGES, STORE_DATE

PART_BYTES = 64 << 20
_DAY_US = 86_400_000_000
_NO_DAY = -1
_FILE_COLUMNS = [field.name for field in MESSAGES if field.name != STORE_DATE.name]
_NONE = np.empty(0, np.int64)


class RowBuffer:
    """Collects a task's rows for the table `messages`, and writes them to files whose names start with `name`.

    Args:
        lake: the lake.
        name: prefix of the file names.
        minutes: counts the rows that are written.
        profiled: True to compute a profile of the rows.
        erased: erases rows that were erased before; None if there are none.
        keys: writes the keys of the rows that are written; None for none.

    Attributes:
        profile: profile of the written rows; None if not wanted.
    """

    def __init__(
        self,
        lake: Lake,
        name: str,
        minutes: MinutesFiles,
        close_later: CloseLater,
        *,
        profiled: bool,
        erased: ErasureOnArrival | None = None,
        keys: KeyWriter | None = None,
    ) -> None:
        self.profile: pa.Table | None = merge_profiles([]) if profiled else None
        self._lake = lake
        self._name = name
        self._minutes = minutes
        self._close_later = close_later
        self._erased = erased
        self._keys = keys
        self._tables: list[pa.Table] = []
        self._bytes = 0
        self._files = 0

    def add_rows(self, tables: list[pa.Table], packs: Sequence[NewBodyPack]) -> Iterator[ManifestRow]:
        """Add the rows of one range of the log with their packs, and write files if there are enough rows.

        Args:
            tables: rows of the range. The list is emptied, because there is no memory for two copies.
            packs: packs of the range.

        Yields:
            A row for each file that was written.
        """
        rows = join_rows(tables)
        # The caller's list is emptied, so that the parts are freed before the joined rows are used.
        tables.clear()
        rows = rows.append_column(BODY_REF.name, _body_refs(rows.num_rows, packs))
        parts = max(1, -(-rows.nbytes // PART_BYTES))
        length = max(1, -(-rows.num_rows // parts))
        for first in range(0, rows.num_rows, length):
            part = rows.slice(first, length)
            if self._bytes + part.nbytes > PART_BYTES:
                yield from self.write_files()
            self._tables.append(part)
            self._bytes += part.nbytes

    def write_files(self) -> Iterator[ManifestRow]:
        """Write all buffered rows to data files, one for each date, and yield their manifest rows."""
        if not self._tables:
            return
        rows = join_rows(self._tables)
        self._tables, self._bytes = [], 0
        days = _days_of_store_times(rows)
        for day in np.unique(days).tolist():
            chosen = np.flatnonzero(days == day)
            part = rows if len(chosen) == len(days) else rows.take(pa.array(chosen))
            date = date_of_day(day)
            name = f"{self._name}-{self._files:03d}.zstd.parquet"
            text, later = date.isoformat() if date else None, self._close_later
            part = sort_rows(part.select(_FILE_COLUMNS))
            # Before all else, so that profile, minutes and keys never see data of an erased message.
            if self._erased is not None:
                part = self._erased.erase(part)
            if self.profile is not None:
                self.profile = merge_profiles([self.profile, profile_rows(part)])
            self._minutes.add_messages(part)
            if self._keys is not None:
                self._keys.add_messages(part)
            has_roles = may_need_edges(part)
            file = write_data_file(part, self._lake, text, name, close_later=later)
            yield ManifestRow.from_data_file(file, "messages", may_have_roles=has_roles)
        self._files += 1


def _days_of_store_times(rows: pa.Table) -> Array:
    times = rows.column("store_timestamp").chunk(0).cast(pa.int64())
    days: Array = times.fill_null(_NO_DAY * _DAY_US).to_numpy() // _DAY_US
    return days


def join_rows(tables: Sequence[pa.Table]) -> pa.Table:
    """Concatenate tables into one, with each column in a single chunk and with shared dictionaries."""
    return pa.concat_tables(tables).unify_dictionaries().combine_chunks()


def _body_refs(row_count: int, packs: Sequence[NewBodyPack]) -> pa.Array:
    # Every row is in exactly one pack, so each place of these arrays is filled.
    codes = np.empty(row_count, np.int32)
    frame_offsets = np.empty(row_count, np.int64)
    frame_lengths, offsets, lengths = (np.empty(row_count, np.int32) for _ in range(3))
    for code, pack in enumerate(packs):
        codes[pack.rows] = code
        frame_offsets[pack.rows] = pack.refs.frame_offsets
        frame_lengths[pack.rows] = pack.refs.frame_lengths
        offsets[pack.rows] = pack.refs.offsets
        lengths[pack.rows] = pack.refs.lengths
    names = pa.DictionaryArray.from_arrays(codes, pa.array([pack.pack for pack in packs], pa.string()))
    places = [names, *(pa.array(values) for values in (frame_offsets, frame_lengths, offsets, lengths))]
    return pa.StructArray.from_arrays(places, names=BODY_PLACE.names)


class ErasureOnArrival:
    """Erases data in new rows of messages that were erased before, or that are copies of erased messages.

    Args:
        lake: the lake.
        name: name of the file.
        places: places of messages that were erased before.
        copies: recognises later copies.
        parser_version: version of CommitLake.
    """

    def __init__(self, lake: Lake, name: str, places: ErasedMessages, copies: LaterCopies, parser_version: str) -> None:
        self._lake = lake
        self._name = name
        self._places = places
        self._copies = copies
        self._writer = ErasureWriter(time.time_ns() // 1000, f"{socket.gethostname()} {os.getpid()}", parser_version)
        self._rows: list[pa.Table] = []

    def erase(self, rows: pa.Table) -> pa.Table:
        """Return the same rows in the same order, without the data of erased messages and of their copies."""
        if self._places:
            rows = self._erase_rows(rows, self._places, ErasureEvent.AGAIN)
        if self._copies:
            rows = rows.combine_chunks()
            found = (
                self._copies.find_copied_erasures(rows.num_rows, lambda name: rows.column(name).chunk(0))
                if rows.num_rows
                else _NONE
            )
            copies = np.flatnonzero(found)
            if len(copies):
                rows = self._erase_rows(rows, self._erased_copies(rows, copies, found[copies]), ErasureEvent.COPY)
        return rows

    def _erase_rows(self, rows: pa.Table, erased_messages: ErasedMessages, event: ErasureEvent) -> pa.Table:
        after, hits = erase_rows(rows, erased_messages)
        if len(hits):
            numbers = pa.array(hits)
            before = rows.combine_chunks().take(numbers).combine_chunks()
            columns = (before.column(name).combine_chunks() for name in ("broker", "physical_offset"))
            codes = erased_messages.find_row_erasure_indexes(*columns).tolist()
            ids, erasures = (
                [erased_messages.ids[code] for code in codes],
                [erased_messages.numbers[code] for code in codes],
            )
            erased = after.take(numbers).combine_chunks()
            self._rows.append(make_erasure_rows(before, erased, ids, erasures, event, self._writer, is_counted=True))
        return after

    def _erased_copies(self, rows: pa.Table, copy_rows: Array, erasure_indexes: Array) -> ErasedMessages:
        named = rows.select(["broker", "physical_offset"]).take(pa.array(copy_rows))
        ids = [self._copies.ids[number] for number in erasure_indexes.tolist()]
        named = named.append_column("erasure_id", pa.array(ids)).append_column("number", pa.array(erasure_indexes))
        return parse_erased_messages(named, 0)

    def finish(self) -> list[DataFile]:
        """Write the rows of `erasures` to a file, which no table refers to until the commit."""
        if not self._rows:
            return []
        rows = pa.concat_tables(self._rows)
        return [write_plain_file(rows, self._lake, "erasures", f"{self._name}-000.zstd.parquet")]
