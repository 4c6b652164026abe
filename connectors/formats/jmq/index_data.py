"""Columns from which a JMQ store's queue files are built, from its journal, without a Python object per record.

The compiled hop finds the records. The fields of a queue entry are at fixed positions in a record, so numpy reads them
for all records at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from commitlake.connectors.formats.jmq.compiled_loops import KERNEL
from commitlake.connectors.log_format.indexes import IndexData
from commitlake.connectors.log_format.kernel import BadRange, WalkArguments
from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.reading.files.segment_files import Window
from commitlake.connectors.reading.files.segment_windows import read_numbers_at
from commitlake.connectors.reading.index_data.log_range_reader import SEED, topic_names
from commitlake.connectors.reading.kernel import record_walk as h
from commitlake.connectors.reading.kernel.buffers import is_crowded_interner, make_interner
from commitlake.connectors.reading.kernel.columns import intern_spans
from commitlake.schemas.layouts.jmq.journal import HEAD

_STEP_ROWS = 2048
"""Number of records examined together; their topics, at most 255 bytes each, fit unless `is_crowded_interner`."""
_INT32 = np.iinfo(np.int32)


class JournalReader:
    """Reader of a range of a journal that returns the data from which indexes are built as columns, in chunks."""

    def __init__(self, start: int, chunk_rows: int) -> None:
        """Start at the range's first byte, without records.

        Args:
            start: journal offset of the range's first byte.
            chunk_rows: the largest number of records in a chunk.
        """
        self._kernel = KERNEL
        self._rows = chunk_rows
        self._start = self._last_end = start
        self._parts = np.empty((self._kernel.part_count, min(_STEP_ROWS, chunk_rows) + 1), np.int64)
        self._clear_chunk()

    def _clear_chunk(self) -> None:
        self._topics = make_interner()
        self._columns: list[dict[str, Array]] = []
        self._found = 0
        self._bad: list[BadRange] = []

    def locate_next_records(self, arguments: WalkArguments, state: Array, faults: Array) -> Array:
        """Return the positions of the next records in a window; pass them to `add_records` while it is open."""
        self._kernel.hop(*arguments, state, self._parts, faults)
        parts: Array = self._parts[:, : state[h.RECORDS]]
        return parts

    def add_records(
        self, window: Window, record_parts: Array, window_offset: int, bad_ranges: Sequence[BadRange]
    ) -> None:
        """Add the records found by the last `locate_next_records` to the chunk, before their window is reused."""
        self._bad += bad_ranges
        if record_parts.shape[1]:
            columns = self._make_columns(window, record_parts, window_offset)
            self._columns.append(columns)
            self._found += record_parts.shape[1]
            self._last_end = int(columns["physical_offset"][-1] + columns["size"][-1])
        if bad_ranges:
            self._last_end = max(self._last_end, bad_ranges[-1].end)

    def _make_columns(self, window: Window, record_parts: Array, window_offset: int) -> dict[str, Array]:
        starts = record_parts[h.START]
        topics = np.empty(len(starts), np.int32)
        intern_spans(window, record_parts[h.TOPIC], record_parts[h.TOPIC_LENGTH], SEED, self._topics, topics)
        received, stored = (read_numbers_at(window, starts + HEAD.offset_of(name), ">i4") for name in _DELAYS)
        store_times = self._kernel.store_times(window, record_parts)
        return {
            "physical_offset": window_offset + starts,
            "size": (record_parts[h.PROPERTIES] + record_parts[h.PROPERTIES_LENGTH] - starts).astype(np.int32),
            "topic": topics,
            "queue_id": self._kernel.queue_ids(window, record_parts).astype(np.int32),
            "queue_offset": self._kernel.queue_offsets(window, record_parts),
            "store_timestamp": store_times,
            # The broker limits a delay to an int. At the limits the true time is unknown.
            "is_dated": (stored > _INT32.min) & (stored < _INT32.max),
            "receive_timestamp": store_times - stored + received,
        }

    def add_bad_range(self, bad_range: BadRange) -> None:
        """Add a bad range that is known before the log is read, such as a missing segment."""
        self._bad.append(bad_range)

    @property
    def is_full(self) -> bool:
        """True if the chunk may have no room for the next records."""
        # Before the next step is read, there must be room for all of it, because a step is not divided.
        return self._found + self._parts.shape[1] - 1 > self._rows or is_crowded_interner(self._topics)

    def finish_chunk(self, chunk_end: int | None = None) -> IndexData:
        """Return the records collected so far as a chunk; the next chunk begins at its end."""
        columns = {name: self._join_column(name, kind) for name, kind in _KINDS.items()}
        nothing = np.zeros(self._found, np.int32)
        facts = IndexData(
            start=self._start,
            end=self._last_end if chunk_end is None else chunk_end,
            topics=topic_names(self._topics),
            tags_code=np.zeros(self._found, np.int64),
            sys_flag=nothing,  # journal records have no flag that excludes them from queues
            batch_size=nothing,
            tags_hash=np.full(self._found, -1, np.int32),
            key_ends=nothing,
            key_hashes=np.empty(0, np.int32),
            multi_dispatch={},
            bad=tuple(self._bad),
            **columns,
        )
        self._start = facts.end
        self._clear_chunk()
        return facts

    def _join_column(self, name: str, number_type: type[np.generic]) -> Array:
        return np.concatenate([np.empty(0, number_type), *(columns[name] for columns in self._columns)])


_DELAYS = ("receive_delay", "store_delay")
_KINDS: dict[str, type[np.generic]] = {
    "physical_offset": np.int64,
    "size": np.int32,
    "topic": np.int32,
    "queue_id": np.int32,
    "queue_offset": np.int64,
    "store_timestamp": np.int64,
    "is_dated": np.bool_,
    "receive_timestamp": np.int64,
}
