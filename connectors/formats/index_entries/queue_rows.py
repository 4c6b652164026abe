"""Entries of queues as Arrow batches, on a worker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from commitlake.connectors.formats.index_entries.entry_columns import (
    join_short_batches,
    make_bad_range_batch,
    make_entry_batch,
    storable_time_mask,
    to_timestamp_column,
)
from commitlake.connectors.formats.index_entries.entry_damage import BadEntries, DamageCounter
from commitlake.connectors.formats.index_entries.entry_windows import EntryRange, EntryWindow, walk_entries
from commitlake.connectors.formats.index_entries.queue_file_parts import QueuePart
from commitlake.connectors.log_format.files import IndexedFile
from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.reading.errors import StoreError
from commitlake.connectors.reading.files.index_files import MissingObjectError
from commitlake.connectors.reading.options import Mode
from commitlake.connectors.reading.read_request import Filters
from commitlake.schemas.layouts.integer_parsing import INT32_MAX
from commitlake.schemas.safe_store_files import UnsafeFileError


def read_queue_parts(
    parts: Sequence[QueuePart], schema: pa.Schema, filters: Filters, mode: Mode
) -> Iterator[pa.RecordBatch]:
    """Yield the entries of one partition of queue files as Arrow batches.

    Args:
        parts: the parts of one partition, from `plan_queues`.
        schema: the columns that are wanted, of `schemas.tables.index_entries.QUEUE_ENTRIES`.
        filters: the filters for records; only the physical offsets are used, because all parts are of wanted queues.
        mode: the handling of bad ranges.

    Raises:
        CommitLogError: in mode FAILFAST, for the first bad range.
        StoreError: if there is a link in place of a file, or a copy was changed.
    """
    damage = DamageCounter(mode)
    yield from join_short_batches(
        batch for part in parts for batch in _QueueRowReader(part, schema, filters, damage).read_rows()
    )
    damage.log_counts()


class _QueueRowReader:
    def __init__(self, part: QueuePart, schema: pa.Schema, filters: Filters, damage: DamageCounter) -> None:
        self._part = part
        self._layout = part.queue.layout
        self._schema = schema
        self._filters = filters
        self._damage = damage

    def read_rows(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one part of a queue file."""
        part = self._part
        if part.bad is not None:
            yield from self._make_bad_range_rows([part.bad])
            return
        try:
            file = self._open_file()
        except (FileNotFoundError, MissingObjectError):
            yield from self._make_bad_range_rows([part.queue.store.make_missing_range(part.start, part.end)])
            return
        except UnsafeFileError as error:
            raise StoreError(str(error)) from None
        try:
            for window in walk_entries(file, self._entry_range()):
                yield from self._make_bad_range_rows(window.bad)
                yield self._make_rows(window)
        finally:
            file.close()

    def _open_file(self) -> IndexedFile:
        """Open the part's file; raise an error if the shipped copy now has fewer bytes than planned."""
        part = self._part
        files = part.queue.store.open_files()
        if part.queue.store.is_copy and not part.is_followed:  # in a file before others, zeros are missing entries
            unit = self._layout.entry_size
            data_end = -(-files.data_end(part.path) // unit) * unit
            if data_end < part.end:
                raise StoreError(
                    f"{part.location}: expected {part.end} bytes, found {data_end}: the copy was changed while it "
                    "was read; read it again"
                )
        return files.open(part.path, part.end)

    def _entry_range(self) -> EntryRange:
        part = self._part
        return EntryRange(
            dtype=self._layout.dtype,
            start=part.start,
            end=part.end,
            file_end=part.file_end,
            written_end=part.end if part.is_followed else 0,
            is_sound=lambda _, entries: self._sound_entry_mask(entries),
            expected=f"an entry of {self._layout.entry_size} bytes",
        )

    def _sound_entry_mask(self, entries: Array) -> Array:
        """Return a mask of the entries that a broker accepts as written, and whose values are possible."""
        sound = self._layout.is_written(entries)
        sound = sound & (entries["physical_offset"].astype(np.int64) >= 0) & (entries["size"] <= INT32_MAX)
        if "store_timestamp" in self._entry_fields:
            sound &= storable_time_mask(entries["store_timestamp"])
        return sound

    @property
    def _entry_fields(self) -> tuple[str, ...]:
        return self._layout.dtype.names or ()

    def _make_bad_range_rows(self, bad_ranges: Sequence[BadEntries]) -> Iterator[pa.RecordBatch]:
        values = [self._damage.count_bad_range(self._part.location, bad) for bad in bad_ranges]
        if values and self._damage.mode is Mode.PERMISSIVE:
            yield make_bad_range_batch(self._schema, values, self._queue_columns())

    def _queue_columns(self) -> dict[str, Any]:
        queue = self._part.queue
        topic = queue.topic.encode("utf-8", "replace").decode()
        return {"broker": queue.store.broker, "topic": topic, "queue_id": queue.queue_id}

    def _make_rows(self, window: EntryWindow) -> pa.RecordBatch:
        kept = self._wanted_entry_mask(window)
        entries = window.entries if kept is None else window.entries[kept]
        columns = self._queue_columns()
        for name in ("physical_offset", "size", "tags_code", "batch_size"):
            if name in self._entry_fields:
                columns[name] = entries[name]
        if "message_base_offset" in self._entry_fields:
            columns["queue_offset"] = entries["message_base_offset"]
            columns["store_timestamp"] = to_timestamp_column(entries["store_timestamp"])
        else:
            first = self._part.first_queue_offset + window.start // self._layout.entry_size
            # A ConsumeQueue does not store the queue offset. It is the place of the entry in the queue.
            numbers = np.arange(first, first + len(window.entries))
            columns["queue_offset"] = numbers if kept is None else numbers[kept]
        return make_entry_batch(self._schema, len(entries), columns)

    def _wanted_entry_mask(self, window: EntryWindow) -> Array | None:
        """Return a mask of the entries that the filters let through; None if all of them pass."""
        low, high = self._filters.min_offset, self._filters.end_offset
        masks = [] if window.sound is None else [window.sound]
        offsets = window.entries["physical_offset"].astype(np.int64)
        if low is not None:
            masks.append(offsets >= low)
        if high is not None:
            masks.append(offsets < high)
        if not self._layout.fills_gaps:
            masks.append(~self._layout.is_filler(window.entries))
        kept = np.logical_and.reduce(masks) if masks else None
        return None if kept is None or kept.all() else kept
