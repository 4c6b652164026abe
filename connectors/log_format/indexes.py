"""Data in a log from which a broker builds its indexes, and results of look-ups in indexes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from commitlake.connectors.log_format.kernel import BadRange, WalkArguments
from commitlake.connectors.numpy_arrays import Array
from commitlake.schemas.layouts.rocketmq.sysflag import INNER_BATCH, TRANSACTION_MASK, TransactionType


@dataclass(frozen=True, eq=False)
class IndexData:
    """Columns of consecutive records, from which indexes are built, and the bad ranges between the records.

    Attributes:
        start: physical offset of the first byte that was read.
        end: physical offset after the last one.
        topics: names of the topics.
        physical_offset: int64, bytes.
        size: int32, bytes.
        topic: int32, index in `topics`.
        queue_id: int32.
        queue_offset: int64, number of the message in its queue.
        store_timestamp: int64, ms.
        tags_code: int64, the third field of the ConsumeQueue entry.
        sys_flag: int32.
        batch_size: int32, messages in an inner batch by its property INNER_NUM; 0 without this property.
        tags_hash: int32, the hash under which brokers since 5.5 index TAGS; -1 without tags.
        key_ends: int32, end of each record's part of `key_hashes`; the next record's part begins there.
        key_hashes: int32, index hashes of UNIQ_KEY and KEYS, in the order in which brokers enter them.
        multi_dispatch: for rows that are also in other queues: the names of these queues and the offsets there.
        bad: ranges that hold no intact record.
        is_dated: bool, whether `store_timestamp` is exact; None if it is for all records. JMQ stores it as a distance
            from the send time, limited to what fits in its field.
        receive_timestamp: int64, ms, if the format has it.
    """

    start: int
    end: int
    topics: Sequence[str]
    physical_offset: Array
    size: Array
    topic: Array
    queue_id: Array
    queue_offset: Array
    store_timestamp: Array
    tags_code: Array
    sys_flag: Array
    batch_size: Array
    tags_hash: Array
    key_ends: Array
    key_hashes: Array
    multi_dispatch: dict[int, tuple[tuple[str, int], ...]]
    bad: tuple[BadRange, ...]
    is_dated: Array | None = None
    receive_timestamp: Array | None = None

    @property
    def record_count(self) -> int:
        """Number of records."""
        return len(self.physical_offset)

    @property
    def queued_mask(self) -> Array:
        """Mask of the records with an entry in a ConsumeQueue; half and rolled-back messages have none."""
        kind = self.sys_flag & TRANSACTION_MASK
        queued: Array = (kind == TransactionType.NOT) | (kind == TransactionType.COMMIT)
        return queued

    @property
    def batch_mask(self) -> Array:
        """Mask of the records that are inner batches with an entry in a BatchConsumeQueue."""
        batch: Array = (self.sys_flag & INNER_BATCH) != 0
        return batch


class IndexDataReader(Protocol):
    """Reader of a range of a log that returns the data from which indexes are built as columns, in chunks."""

    def locate_next_records(self, arguments: WalkArguments, state: Array, faults: Array) -> Array:
        """Return the positions of the next records in a window; pass them to `add_records` while the window is open."""

    def add_records(
        self, window: Array, record_parts: Array, window_offset: int, bad_ranges: Sequence[BadRange]
    ) -> None:
        """Add the records found by the last `locate_next_records` to the chunk, while their window is open."""

    def add_bad_range(self, bad_range: BadRange) -> None:
        """Add a bad range that is known before the log is read, such as a missing segment."""

    @property
    def is_full(self) -> bool:
        """True if the chunk may have no room for the next record."""

    def finish_chunk(self, chunk_end: int | None = None) -> IndexData:
        """Return the records collected so far as a chunk; the next one begins at its end."""


class LogRange(Protocol):
    """Range of physical offsets of a log."""

    @property
    def start(self) -> int:
        """Physical offset of the first byte."""

    @property
    def end(self) -> int:
        """Physical offset after the last byte."""


class BadIndexError(Exception):
    """Error with the reason why an index cannot be used for a range; the plan of a read shows this reason."""


@dataclass
class IndexAnswer:
    """Result of an index for one range of the log: wanted records, and ranges that the index does not cover.

    Attributes:
        offsets: physical offsets of the wanted records, ascending.
        sizes: sizes of these records, bytes.
        unknown: ranges that the index does not cover, in order; each begins where a record should.
        queues: topic and queue id of each queue to which `queue_numbers` refer.
        queue_numbers: index in `queues` of each record's queue, if the index has it.
        queue_offsets: queue offset of each record, if the index has it.
    """

    offsets: Array
    sizes: Array
    unknown: list[tuple[int, int]]
    queues: tuple[tuple[str, int], ...] = ()
    queue_numbers: Array = field(default_factory=lambda: np.empty(0, np.int32))
    queue_offsets: Array = field(default_factory=lambda: np.empty(0, np.int64))

    def restrict_to_topics(self, topics: Collection[str]) -> IndexAnswer:
        """Return the result restricted to records of these topics, and to the ranges that the index does not cover."""
        return self.restrict_to_rows(np.array([topic in topics for topic, _ in self.queues], bool)[self.queue_numbers])

    def restrict_to_rows(self, rows: Array | slice) -> IndexAnswer:
        """Return the result restricted to the given records, and to the ranges that the index does not cover."""
        return replace(
            self,
            offsets=self.offsets[rows],
            sizes=self.sizes[rows],
            queue_numbers=self.queue_numbers[rows],
            queue_offsets=self.queue_offsets[rows],
        )


class KeyIndex(Protocol):
    """A search for keys in a store's index of keys.

    Attributes:
        name: the name of the index in a plan.
        notes: index files that are not used, and why.
    """

    name: str
    notes: list[str]

    def find_records(self, segment_range: LogRange) -> IndexAnswer:
        """Return the wanted records in a range of the log, and the ranges that the index does not cover.

        Raises:
            BadIndexError: if the index is not reliable there.
        """
        ...
