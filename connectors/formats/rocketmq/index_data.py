"""Columns from which a RocketMQ store's indexes are built, from its CommitLog, without a Python object per record.

The compiled code leaves irregular records to `parse_irregular_record`, whose rules are the broker's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from commitlake.connectors.formats.rocketmq.kernel import index_data as k
from commitlake.connectors.formats.rocketmq.kernel.records import COMMITLOG_PART_COUNT
from commitlake.connectors.log_format.indexes import IndexData
from commitlake.connectors.log_format.kernel import BadRange, WalkArguments
from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.reading.index_data.log_range_reader import SEED, topic_names
from commitlake.connectors.reading.kernel import record_walk as h
from commitlake.connectors.reading.kernel.buffers import make_interner
from commitlake.connectors.reading.kernel.memory_access import PADDING
from commitlake.connectors.reading.kernel.strings import TEXT_END
from commitlake.schemas.layouts.boltmq.dialect import DIALECT_BY_MAGIC, DIALECTS, ROCKETMQ, Dialect
from commitlake.schemas.layouts.integer_parsing import parse_int32
from commitlake.schemas.layouts.rocketmq import properties as props
from commitlake.schemas.layouts.rocketmq.batchconsumequeue import INNER_NUM
from commitlake.schemas.layouts.rocketmq.indexfile import TAGS_KEY_PREFIX, key_hash, tags_index_key
from commitlake.schemas.layouts.rocketmq.light_queues import light_queue_offsets
from commitlake.schemas.layouts.rocketmq.properties import MAX_SIZE
from commitlake.schemas.layouts.rocketmq.sysflag import TRANSACTION_MASK, TransactionType

_KEYS = 1 << 21
_STEP_ROWS = 1 << 14
_SHORT_STEP_ROWS = 1 << 8
_MAX_IRREGULAR_BYTES = 8 << 20
"""Properties of irregular records in one step. A record of 32 KB can be in 3,600 light queues, each a Python object."""
_MAX_OTHER_QUEUES = 1 << 18
"""Entries in light queues after which a chunk is full."""
_MAX_TOPIC_BYTES = 1 << 16
_TAGS_KEY = np.frombuffer(TAGS_KEY_PREFIX.encode(), np.uint8).copy()


@dataclass(frozen=True, slots=True)
class IrregularRecord:
    """Data for the index entries of one record, which Python computes because the compiled loop cannot handle it.

    Attributes:
        tags_code: code of the tags, even if the entry has a delivery time instead.
        delay_level: 0 for none.
        batch_size: 0 for none.
        tags_hash: -1 for none.
        key_hashes: in the broker's order.
        other_queues: names of the light queues that also have the record, and its queue offsets there.
    """

    tags_code: int
    delay_level: int
    batch_size: int
    tags_hash: int
    key_hashes: tuple[int, ...]
    other_queues: tuple[tuple[str, int], ...]


def parse_irregular_record(
    raw_topic: bytes, raw_properties: bytes, sys_flag: int, dialect: Dialect = ROCKETMQ
) -> IrregularRecord:
    """Return the data for the index entries of one record that the compiled loop cannot handle.

    Args:
        raw_topic: the topic as stored.
        raw_properties: the properties as stored.
        sys_flag: the sys_flag of the record.
        dialect: the dialect of the record.
    """
    topic = raw_topic.decode("utf-8", "replace")
    found = dict(props.parse_properties(raw_properties))
    tags = found.get(props.TAGS)
    indexed = dialect.has_key_index and sys_flag & TRANSACTION_MASK != TransactionType.ROLLBACK
    keys = [found[props.UNIQ_KEY]] if props.UNIQ_KEY in found else []
    keys += props.split_keys(found.get(props.KEYS, ""))
    return IrregularRecord(
        tags_code=dialect.tags_code(tags),
        delay_level=max(0, parse_int32(found.get(props.DELAY)) or 0) if topic == dialect.schedule_topic else 0,
        batch_size=max(0, parse_int32(found.get(INNER_NUM)) or 0),
        tags_hash=key_hash(topic, tags_index_key(tags)) if tags and indexed else -1,
        key_hashes=tuple(key_hash(topic, key) for key in keys) if indexed else (),
        other_queues=light_queue_offsets(topic, found),
    )


class CommitLogReader:
    """Reader of a range of a CommitLog that returns the data from which indexes are built as columns, in chunks."""

    def __init__(self, start: int, delay_levels_ms: Sequence[int], chunk_rows: int) -> None:
        """Start at the range's first byte, without records.

        Args:
            start: physical offset of the range's first byte.
            delay_levels_ms: the broker's messageDelayLevel.
            chunk_rows: the largest number of records in a chunk.
        """
        self._levels = np.array(delay_levels_ms, np.int64)
        self._rows = chunk_rows
        self._start = self._last_end = start
        self._parts = np.empty((COMMITLOG_PART_COUNT, _STEP_ROWS + 1), np.int64)
        self._clear_chunk()

    def _clear_chunk(self) -> None:
        # Untouched memory is not allocated, so only a full chunk takes the full size of the arrays.
        self._topics = make_interner()
        self._out = k.OutputArrays(
            used=np.zeros(3, np.int64),
            longs=np.empty((4, self._rows), np.int64),
            ints=np.empty((8, self._rows), np.int32),
            key_hashes=np.empty(_KEYS, np.int32),
            tags_key=_TAGS_KEY,
            irregular=np.empty((6, self._rows), np.int64),
            topic_hashes=np.empty(self._rows, np.uint64),
            topic_kinds=np.empty(self._rows, np.uint8),
        )
        self._committed = np.zeros(3, np.int64)
        self._bad: list[BadRange] = []
        self._irregular: dict[int, IrregularRecord] = {}
        self._other_queues = 0

    def locate_next_records(self, arguments: WalkArguments, state: Array, faults: Array) -> Array:
        """Return the positions of the next records in a window, and collect the data of these records."""
        before = state.copy()
        parts = self._read_records(arguments, state, faults, self._parts)
        # Each irregular record becomes Python objects. If the step has too many, it is repeated from the same state
        # with fewer records.
        if parts.shape[1] > _SHORT_STEP_ROWS and self._count_irregular_bytes > _MAX_IRREGULAR_BYTES:
            state[:] = before
            room = np.empty((COMMITLOG_PART_COUNT, _SHORT_STEP_ROWS + 1), np.int64)
            parts = self._read_records(arguments, state, faults, room)
        return parts

    def _read_records(self, arguments: WalkArguments, state: Array, faults: Array, parts_buffer: Array) -> Array:
        # A call whose result was not passed to `add_records`, such as one on a truncated window, leaves no trace.
        self._out.used[:] = self._committed
        k.read_index_data(*arguments, state, parts_buffer, faults, SEED, self._topics, self._out)
        parts: Array = parts_buffer[:, : state[h.RECORDS]]
        return parts

    @property
    def _count_irregular_bytes(self) -> int:
        return int(self._out.irregular[4, : self._out.used[k.ODD]].sum())

    def add_records(
        self, window: Array, record_parts: Array, window_offset: int, bad_ranges: Sequence[BadRange]
    ) -> None:
        """Add the records found by the last `locate_next_records` to the chunk, while their window is still open."""
        for row, topic, topic_length, properties, length, magic in self._out.irregular[
            :, : self._out.used[k.ODD]
        ].T.tolist():
            self._irregular[row] = record = parse_irregular_record(
                window[topic : topic + topic_length].tobytes(),
                window[properties : properties + length].tobytes(),
                int(self._out.ints[k.SYS_FLAG, row]),
                DIALECT_BY_MAGIC[magic],
            )
            self._other_queues += len(record.other_queues)
        self._out.used[k.ODD] = 0
        self._committed[:] = self._out.used
        self._bad += bad_ranges
        if record_parts.shape[1]:
            self._last_end = window_offset + int(record_parts[h.PROPERTIES, -1] + record_parts[h.PROPERTIES_LENGTH, -1])
        # A bad range may follow the last record of the step.
        if bad_ranges:
            self._last_end = max(self._last_end, bad_ranges[-1].end)

    def add_bad_range(self, bad_range: BadRange) -> None:
        """Add a bad range that is known before the log is read, such as a missing segment."""
        self._bad.append(bad_range)

    @property
    def is_full(self) -> bool:
        """True if the chunk may have no room for the next record."""
        free = len(self._topics.texts) - int(self._topics.counts[TEXT_END])
        return (
            # The properties of the next record have at most MAX_SIZE bytes, and every key takes one of them at least.
            int(self._committed[k.ROWS]) >= self._rows
            or self._other_queues > _MAX_OTHER_QUEUES
            or int(self._committed[k.KEYS]) + MAX_SIZE > _KEYS
            or free < _MAX_TOPIC_BYTES + 2 * PADDING
        )

    def finish_chunk(self, chunk_end: int | None = None) -> IndexData:
        """Return the records collected so far as a chunk; the next chunk begins at its end."""
        rows, keys = int(self._committed[k.ROWS]), int(self._committed[k.KEYS])
        longs, ints = self._out.longs[:, :rows], self._out.ints[:, :rows]
        topics = topic_names(self._topics)
        key_hashes, key_ends = self._out.key_hashes[:keys], ints[k.KEY_END]
        if self._irregular:
            key_hashes, key_ends = self._add_irregular_records(ints, longs, key_hashes)
        self._set_delivery_times(topics, ints, longs)
        facts = IndexData(
            start=self._start,
            end=self._last_end if chunk_end is None else chunk_end,
            topics=topics,
            physical_offset=longs[k.PHYSICAL_OFFSET],
            size=ints[k.SIZE],
            topic=ints[k.TOPIC],
            queue_id=ints[k.QUEUE_ID],
            queue_offset=longs[k.QUEUE_OFFSET],
            store_timestamp=longs[k.STORE_TIMESTAMP],
            tags_code=longs[k.TAGS_CODE],
            sys_flag=ints[k.SYS_FLAG],
            batch_size=ints[k.BATCH_SIZE],
            tags_hash=ints[k.TAGS_HASH],
            key_ends=key_ends,
            key_hashes=key_hashes,
            multi_dispatch={row: record.other_queues for row, record in self._irregular.items() if record.other_queues},
            bad=tuple(self._bad),
        )
        self._start = facts.end
        self._clear_chunk()
        return facts

    def _add_irregular_records(self, int_columns: Array, long_columns: Array, key_hashes: Array) -> tuple[Array, Array]:
        """Add the index data that Python has computed for records that the compiled loop cannot handle."""
        # The kernel writes no hashes for irregular rows, so the end of an irregular row's keys is the place where they
        # are inserted.
        counts = np.diff(int_columns[k.KEY_END], prepend=0)
        places: list[int] = []
        values: list[int] = []
        for row, record in self._irregular.items():
            long_columns[k.TAGS_CODE, row] = record.tags_code
            int_columns[k.DELAY_LEVEL, row], int_columns[k.BATCH_SIZE, row] = record.delay_level, record.batch_size
            int_columns[k.TAGS_HASH, row] = record.tags_hash
            places += [int(int_columns[k.KEY_END, row])] * len(record.key_hashes)
            values += record.key_hashes
            counts[row] = len(record.key_hashes)
        ends = np.cumsum(counts, dtype=np.int32)
        return np.insert(key_hashes, places, np.array(values, np.int32)), ends

    def _set_delivery_times(self, topics: Sequence[str], int_columns: Array, long_columns: Array) -> None:
        """Replace tags codes by delivery times for records in a schedule topic, as brokers do in queue entries."""
        for dialect in DIALECTS:
            if dialect.schedule_topic in topics:
                number = topics.index(dialect.schedule_topic)
                rows = np.flatnonzero((int_columns[k.TOPIC] == number) & (int_columns[k.DELAY_LEVEL] > 0))
                # As in the broker, a level above the highest one has the delay of the highest.
                levels = np.minimum(int_columns[k.DELAY_LEVEL, rows], len(self._levels))
                long_columns[k.TAGS_CODE, rows] = long_columns[k.STORE_TIMESTAMP, rows] + self._levels[levels - 1]
