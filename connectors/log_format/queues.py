"""Queues of a log format: layouts of their entries, the entries themselves, and how their files are rebuilt."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from commitlake.connectors.numpy_arrays import Array
from commitlake.schemas.layouts.base import Layout
from commitlake.schemas.layouts.rocketmq.topics import LIGHT_PREFIX, Kind, kind_of

BEFORE_ALL, AFTER_ALL = -1, 1 << 63
"""Sort keys of entries without a record, and of entries that end the queue."""


@dataclass(frozen=True)
class QueueFormat:
    """Description of a format's queue files, by which records are looked up without a scan of the log.

    Attributes:
        name: the name of the queues in a plan.
        folder: their folder, beside the log.
        entry: the layout of an entry.
        offset_field: the entry's field with the physical offset of the record; `size` has the record's size.
        place_of: returns the sort key of an entry's bytes: its offset, BEFORE_ALL or AFTER_ALL.
        min_record_size: the smallest valid size.
        topics: matches the names that a topic can have.
        no_queues: prefix of the names of folders without queues of their own.
    """

    name: str
    folder: str
    entry: Layout
    offset_field: str
    place_of: Callable[[bytes], int]
    min_record_size: int
    topics: re.Pattern[str]
    no_queues: str | None = None


@dataclass(frozen=True, eq=False)
class QueueEntries:
    """Entries of one queue, as columns, in the order of the log.

    Attributes:
        topic: the topic, or the light queue's name.
        queue_id: the queue id.
        queue_offset: int64, queue offset of each entry.
        physical_offset: int64, bytes.
        size: int32, bytes.
        tags_code: int64.
        store_timestamp: int64, ms.
        batch_size: int32, see `IndexData`.
    """

    topic: str
    queue_id: int
    queue_offset: Array
    physical_offset: Array
    size: Array
    tags_code: Array
    store_timestamp: Array
    batch_size: Array

    def __len__(self) -> int:
        return len(self.queue_offset)

    def select_rows(self, rows: Array | slice) -> QueueEntries:
        """Return the entries that an index, a boolean mask or a slice selects."""
        return QueueEntries(
            self.topic,
            self.queue_id,
            self.queue_offset[rows],
            self.physical_offset[rows],
            self.size[rows],
            self.tags_code[rows],
            self.store_timestamp[rows],
            self.batch_size[rows],
        )


@dataclass(frozen=True)
class QueueLayout:
    """Entry layout and rules of one type of queue, such as ConsumeQueue.

    Attributes:
        folder: the folder of the queues, beside the log.
        topics: names of topics that have queues; None if every topic has.
        dtype: the dtype of an entry; it has the fields `physical_offset` and `size`, whatever the layout calls them.
        code_field: the field that is derived from a record's properties; None if there is none.
        default_file_size: size of a file, bytes.
        is_aligned: whether the name of each file is a multiple of the file size. Otherwise the name of the first file
            is a multiple of the entry size, and the others follow it.
        is_written: returns a mask of the entries that a broker accepts as written; the first other entry ends
            the queue.
        is_filler: returns a mask of the entries that stand for no message.
        refuses_other_names: whether a broker refuses a queue with a file whose name is not a number.
        fills_gaps: whether fillers stand for every message that the log has lost; else only before the first message.
        to_entries: converts columns to binary entries.
        words: describes an entry in words.
    """

    folder: str
    topics: re.Pattern[str] | None
    dtype: np.dtype[Any]
    code_field: str | None
    default_file_size: int
    is_aligned: bool
    is_written: Callable[[Array], Array]
    is_filler: Callable[[Array], Array]
    refuses_other_names: bool
    fills_gaps: bool
    to_entries: Callable[[QueueEntries], Array]
    words: Callable[[Any], str]

    @property
    def entry_size(self) -> int:
        """Size of an entry in bytes."""
        return self.dtype.itemsize

    def has_queues(self, topic: str) -> bool:
        """Return whether a topic of this name has queues; records of other topics are only in the log."""
        return self.topics is None or self.topics.fullmatch(topic) is not None

    def dangling_entry_mask(self, entries: Array) -> Array:
        """Return a mask of the entries that point to a record, as opposed to zeros and filler entries."""
        written = self.is_written(entries)
        return written & ~self.is_filler(entries) if self.fills_gaps else written

    def empty_entry_mask(self, entries: Array) -> Array:
        """Return a mask of the entries that point to no record: zeros, and filler entries."""
        any_bytes = entries.view(np.uint8).reshape(len(entries), self.entry_size).any(axis=1)
        empty: Array = ~any_bytes | self.is_filler(entries)
        return empty


def can_hold_batches(topic: str) -> bool:
    """Return whether a topic may have BatchConsumeQueues; light queues and the broker's own topics may not."""
    return kind_of(topic) is Kind.NORMAL and not topic.startswith(LIGHT_PREFIX)


@dataclass(frozen=True, slots=True)
class TopicKinds:
    """Queue types of a store's topics: ConsumeQueues or BatchConsumeQueues.

    Attributes:
        batch: Topics of BatchConsumeQueues.
        simple: Topics of ConsumeQueues.
    """

    batch: frozenset[str] = frozenset()
    simple: frozenset[str] = frozenset()

    def is_unknown(self, topic: str) -> bool:
        """Return whether neither topics.json nor a folder shows the queue type of a topic."""
        return topic not in self.batch and topic not in self.simple and can_hold_batches(topic)


class NewQueueFiles(Protocol):
    """Output files of one queue that is being rebuilt; positions are in bytes from the start of the queue.

    Attributes:
        start: byte position at which the first file begins.
    """

    start: int

    def clear(self) -> None:
        """Delete the files of the queue."""

    def write(self, position: int, data: memoryview) -> None:
        """Write bytes at a position of the queue, in as many files as needed."""

    def read(self, position: int, size: int) -> bytes:
        """Return bytes of the queue that were written before."""


@dataclass(frozen=True, slots=True)
class NewQueue:
    """Settings for rebuilding one queue.

    Attributes:
        file_size: size of each of its files, bytes.
        is_batch: whether it has the format's `batch_layout`.
        closes_head: whether the queue begins at 0 even if the log lacks its first messages.
        log_start: physical offset of the log's first byte.
    """

    file_size: int
    is_batch: bool
    closes_head: bool
    log_start: int


class QueueWriter(Protocol):
    """Writer that rebuilds the files of one queue as the broker would write them."""

    @property
    def skipped_count(self) -> int:
        """Number of records that got no entry, because their queue offsets are taken or impossible."""

    @property
    def shifted_count(self) -> int:
        """Number of entries at smaller queue offsets than their records state, as earlier messages are missing."""

    @property
    def lost_count(self) -> int:
        """Number of placeholder entries for messages that the log lacks."""

    def append_entries(self, entries: Array, queue_offsets: Array | None, first_queue_offset: int) -> None:
        """Append entries of the queue that is rebuilt, and skip those that the broker would not append.

        Args:
            entries: uint8[entries, bytes].
            queue_offsets: queue offsets of the entries.
            first_queue_offset: number of the first entry, if there are no numbers.
        """
