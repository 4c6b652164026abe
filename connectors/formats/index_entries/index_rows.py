"""Entries, slots and headers of IndexFiles as Arrow batches, on a worker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from commitlake.connectors.formats.index_entries.entry_columns import (
    join_short_batches,
    make_bad_range_batch,
    make_entry_batch,
    to_timestamp_column,
)
from commitlake.connectors.formats.index_entries.entry_damage import BadEntries, DamageCounter
from commitlake.connectors.formats.index_entries.entry_options import IndexContent, IndexFileOptions
from commitlake.connectors.formats.index_entries.entry_windows import EntryRange, EntryWindow, walk_entries
from commitlake.connectors.formats.index_entries.index_file_parts import IndexPart, written_end
from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.reading.errors import StoreError
from commitlake.connectors.reading.files.index_files import MissingObjectError
from commitlake.connectors.reading.options import Mode
from commitlake.connectors.reading.read_request import Filters
from commitlake.schemas.layouts.rocketmq.indexfile import ENTRY, SLOT
from commitlake.schemas.safe_store_files import UnsafeFileError

_ENTRY_DTYPE = np.dtype(ENTRY.numpy_fields)
_SLOT_DTYPE = np.dtype(SLOT.numpy_fields)


def read_index_parts(
    parts: Sequence[IndexPart], schema: pa.Schema, filters: Filters, options: IndexFileOptions
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one partition of IndexFiles as Arrow batches.

    Args:
        parts: the parts of one partition, from `plan_index_files`.
        schema: the columns that are wanted, of one of the tables of `schemas.tables.index_entries`.
        filters: the filters for records; only the physical offsets are used.
        options: the kind of the rows, the wanted keys, and the handling of bad ranges.

    Raises:
        CommitLogError: in mode FAILFAST, for the first bad range.
        StoreError: if there is a link in place of a file, or a copy was changed.
    """
    damage = DamageCounter(options.mode)
    reader = _IndexRowReader(schema, filters, options, damage)
    yield from join_short_batches(batch for part in parts for batch in reader.read_part(part))
    damage.log_counts()


class _IndexRowReader:
    def __init__(self, schema: pa.Schema, filters: Filters, options: IndexFileOptions, damage: DamageCounter) -> None:
        self._schema = schema
        self._filters = filters
        self._content = options.content
        self._hashes = None if options.key_hashes is None else np.array(sorted(options.key_hashes), np.int32)
        self._damage = damage

    def read_part(self, part: IndexPart) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one part of an IndexFile."""
        if part.bad is not None:
            yield from self._make_bad_range_rows(part, [part.bad])
        elif self._content is IndexContent.HEADERS:
            yield self._header_row(part)
        else:
            yield from self._read_windows(part)

    def _header_row(self, part: IndexPart) -> pa.RecordBatch:
        header, geometry = part.file.header, part.file.geometry
        assert header is not None
        times = {
            name: to_timestamp_column(np.array([value]))
            for name, value in header._asdict().items()
            if name.endswith("_timestamp")
        }
        columns = {**header._asdict(), **times, "slots": geometry.slots, "entries": geometry.entries}
        return make_entry_batch(self._schema, 1, columns | self._file_columns(part))

    def _read_windows(self, part: IndexPart) -> Iterator[pa.RecordBatch]:
        try:
            file = part.file.store.open_files().open(part.file.path, part.end)
        except (FileNotFoundError, MissingObjectError):
            yield from self._make_bad_range_rows(part, [part.file.store.make_missing_range(part.start, part.end)])
            return
        except UnsafeFileError as error:
            raise StoreError(str(error)) from None
        wanted, rows = (
            (_slot_range(part), self._slot_rows)
            if self._content is IndexContent.SLOTS
            else (_entry_range(part), self._entry_rows)
        )
        try:
            for window in walk_entries(file, wanted):
                yield from self._make_bad_range_rows(part, window.bad)
                yield rows(part, window)
        finally:
            file.close()

    def _make_bad_range_rows(self, part: IndexPart, bad_ranges: Sequence[BadEntries]) -> Iterator[pa.RecordBatch]:
        values = [self._damage.count_bad_range(part.file.location, bad) for bad in bad_ranges]
        if values and self._damage.mode is Mode.PERMISSIVE:
            yield make_bad_range_batch(self._schema, values, self._file_columns(part))

    def _file_columns(self, part: IndexPart) -> dict[str, Any]:
        return {"broker": part.file.store.broker, "file": part.file.name}

    def _slot_rows(self, part: IndexPart, window: EntryWindow) -> pa.RecordBatch:
        newest = window.entries["newest_entry"]
        used = newest != 0 if window.sound is None else window.sound & (newest != 0)
        first = (window.start - part.file.geometry.slot_position(0)) // SLOT.size
        columns = {"slot": first + np.flatnonzero(used), "newest_entry": newest[used]}
        return make_entry_batch(self._schema, int(np.count_nonzero(used)), columns | self._file_columns(part))

    def _entry_rows(self, part: IndexPart, window: EntryWindow) -> pa.RecordBatch:
        file, kept = part.file, self._wanted_entry_mask(window)
        numbers = _compute_entry_number(part, window.start) + np.flatnonzero(kept)
        entries = window.entries[kept]
        hashes = entries["key_hash"].astype(np.int32)
        columns = {
            "entry": numbers,
            "slot": hashes % file.geometry.slots,
            "key_hash": hashes,
            "physical_offset": entries["physical_offset"],
            "previous_entry": entries["previous_entry"],
        }
        if file.header is not None:
            milliseconds = file.header.begin_timestamp + 1000 * entries["time_diff"].astype(np.int64)
            columns["store_timestamp"] = to_timestamp_column(milliseconds)
        return make_entry_batch(self._schema, len(entries), columns | self._file_columns(part))

    def _wanted_entry_mask(self, window: EntryWindow) -> Array:
        """Return a mask of the entries that the filters by offset and by key let through."""
        low, high = self._filters.min_offset, self._filters.end_offset
        kept = np.ones(len(window.entries), np.bool_) if window.sound is None else window.sound.copy()
        offsets = window.entries["physical_offset"].astype(np.int64)
        if low is not None:
            kept &= offsets >= low
        if high is not None:
            kept &= offsets < high
        if self._hashes is not None:
            kept &= np.isin(window.entries["key_hash"].astype(np.int32), self._hashes)
        return kept


def _compute_entry_number(part: IndexPart, position: int) -> int:
    return (position - part.file.geometry.entry_position(0)) // ENTRY.size


def _entry_range(part: IndexPart) -> EntryRange:
    def sound_entry_mask(start: int, entries: Array) -> Array:
        numbers = np.arange(len(entries)) + _compute_entry_number(part, start)
        previous = entries["previous_entry"]
        sound: Array = (entries["key_hash"] >= 0) & (entries["physical_offset"] >= 0) & (entries["time_diff"] >= 0)
        sound &= (previous >= 0) & (previous < numbers)
        # An entry of zeros passes the rules above, but no broker writes one.
        sound &= entries.view(np.uint8).reshape(len(entries), ENTRY.size).any(axis=1)
        return sound

    return EntryRange(
        dtype=_ENTRY_DTYPE,
        start=part.start,
        end=part.end,
        file_end=part.file.geometry.file_size,
        written_end=written_end(part.file),
        is_sound=sound_entry_mask,
        expected="an entry with numbers of at least 0, which links to an older one",
    )


def _slot_range(part: IndexPart) -> EntryRange:
    entries = part.file.geometry.entries

    def sound_slot_mask(_: int, slots: Array) -> Array:
        newest = slots["newest_entry"]
        sound: Array = (newest >= 0) & (newest < entries)
        return sound

    return EntryRange(
        dtype=_SLOT_DTYPE,
        start=part.start,
        end=part.end,
        file_end=part.file.geometry.entry_position(0),
        written_end=part.end,
        is_sound=sound_slot_mask,
        expected=f"the number of an entry, 0 to {entries - 1}",
        are_zeros_sound=True,
    )
