"""Plan of one read: the ranges that are read, the ranges that are skipped, and the reasons.

A plan is made on the driver, from the options and the filters, in this order:

1. the stores and their snapshot;
2. segments outside the wanted offsets are skipped, and not opened;
3. if times are filtered, the bounds of the other segments' store times are found (`time_bounds`). Before a segment
   outside the wanted times is skipped, a few more of its records are read, because a clock may have been wrong;
4. in the remaining segments, keys are looked up in the IndexFiles (`rocketmq.key_index`), else topics and queues in the
   queues (`index_lookups`), segment by segment. If the index is unusable or slower, the segment is scanned.

A missing segment is skipped only if it could not contain wanted records. Damage in a skipped range does not fail the
read, because the range is not read.

For some questions the entries of a topic's queues are sufficient (`plan_entries`). They are a fiftieth of the log or
less: 20 bytes for each message. If a segment's queues account for all of its bytes, the entries of these topics are
returned as they are. Only the records of other wanted topics are read, and the bytes that no entry claims. A segment is
scanned if it can hold records stored after `until_ms`, because entries have no store times, or if its queues are
unusable.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np

from commitlake.connectors.log_format.indexes import BadIndexError, IndexAnswer
from commitlake.connectors.reading.errors import StoreError
from commitlake.connectors.reading.files.segment_files import OpenSegment
from commitlake.connectors.reading.index_lookups import QueueIndex, RecordIndex, make_index_splits
from commitlake.connectors.reading.options import Mode, ReadOptions
from commitlake.connectors.reading.read_request import Filters
from commitlake.connectors.reading.single_records import message_at
from commitlake.connectors.reading.snapshots import (
    Snapshot,
    StoreRange,
    check_snapshot_stores,
    divide_segment,
    segment_ranges,
    take_snapshot,
)
from commitlake.connectors.reading.splits import ListedSplit, Split
from commitlake.connectors.reading.stores import Store, find_stores
from commitlake.connectors.reading.time_bounds import time_bounds
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.formatted_counts import format_count

_KEY_INDEX = "IndexFile"


@dataclass(frozen=True)
class StoreIndexes:
    """Indexes that can be used for a read, best first, and the reasons why others cannot be used."""

    usable: tuple[RecordIndex, ...] = ()
    reasons: tuple[str, ...] = ()


def open_indexes(store: Store, store_range: StoreRange, options: ReadOptions, filters: Filters) -> StoreIndexes:
    """Open those indexes of a store that can serve a read; none if it selects neither topics nor queues."""
    by_queue = filters.topics is not None or filters.queue_ids is not None
    # The hashes of an IndexFile are of topic and key together, so a key without a topic cannot be looked up.
    by_key = filters.keys is not None and filters.topics is not None
    if not (by_queue or by_key):
        return StoreIndexes()
    if not options.use_indexes:
        return StoreIndexes(reasons=("the option useIndexes is false",))
    if store.is_remote:
        # The queues of a copy may be older than its log: if a broker has rewritten the end of its log after a power
        # failure, entries of other topics may cover wanted records until the queues are shipped. And the queues of all
        # topics are read for each segment, which can take more requests than a scan.
        return StoreIndexes(reasons=("indexes are only read from local disks",))
    folder = Path(store.root).parent
    usable: list[RecordIndex] = []
    reasons: list[str] = []
    if by_key and (reason := store.format.indexes.no_key_index_reason(store.segments)):
        reasons.append(f"{_KEY_INDEX}: {reason}")
    elif by_key:
        try:
            log = _SnapshotRecords(store, store_range, options.max_record_bytes)
            index = store.format.indexes.open_key_index(
                folder, filters.topics or (), filters.keys or (), log.message_at
            )
        except BadIndexError as unusable:
            reasons.append(f"{_KEY_INDEX}: {unusable}")
        else:
            usable.append(index)
            reasons += [f"{_KEY_INDEX}: {note}" for note in index.notes]
    if by_queue:
        queues = store.format.queues.lookup_queue_format
        try:
            usable.append(QueueIndex(folder, filters, options.max_record_bytes, queues))
        except BadIndexError as unusable:
            reasons.append(f"{queues.name}: {unusable}")
    return StoreIndexes(tuple(usable), tuple(reasons))


class _SnapshotRecords:
    """Access to single records, by their physical offsets, in the range of a store's log that a read covers."""

    def __init__(self, store: Store, store_range: StoreRange, max_record_bytes: int) -> None:
        self._wholes = segment_ranges(store, store_range)
        self._max_record_bytes = max_record_bytes

    def message_at(self, offset: int) -> Any:
        """Return the record at a physical offset; None if the read's range has no valid record there."""
        for whole in self._wholes:
            if whole.start <= offset < whole.end and not whole.missing:
                try:
                    with OpenSegment(whole.path) as file:
                        return message_at(file, whole, offset, self._max_record_bytes)
                except FileNotFoundError:
                    return None  # deleted since it was listed
        return None


logger = logging.getLogger(__name__)


class ReadMethod(StrEnum):
    """Way in which a read finds the wanted records of a segment: by a scan, by an index, or not at all."""

    SCAN = "scan"
    CONSUME_QUEUE = "ConsumeQueue"
    QUEUE_FILE = "queue file"
    INDEX_FILE = "IndexFile"
    SKIPPED_BY_OFFSET = "skipped by offset"
    SKIPPED_BY_TIME = "skipped by time"


_SKIPPED = (ReadMethod.SKIPPED_BY_OFFSET, ReadMethod.SKIPPED_BY_TIME)


@dataclass(frozen=True)
class SegmentPlan:
    """Plan for reading the wanted records in one segment's range.

    Attributes:
        whole: the range.
        way: how its records are found.
        splits: the splits that are read.
        reasons: why no index is used, if one was tried.
    """

    whole: Split
    way: ReadMethod
    splits: tuple[Split, ...] = ()
    reasons: tuple[str, ...] = ()

    @property
    def planned_bytes(self) -> int:
        """Size of the segment's splits in bytes."""
        return sum(split.size for split in self.splits)


@dataclass(frozen=True)
class StorePlan:
    """Plan for reading the wanted records of one store, segment by segment.

    Attributes:
        broker: the store's name.
        root: the store's `commitlog` folder.
        store_range: the store's range in the snapshot.
        segments: a plan for the range of each segment, including missing ones, in order.
    """

    broker: str
    root: str
    store_range: StoreRange
    segments: tuple[SegmentPlan, ...] = ()

    def count_segments(self, read_method: ReadMethod) -> int:
        """Return the number of segments that are read by the given method."""
        return sum(segment.way is read_method for segment in self.segments)

    @property
    def planned_segments(self) -> list[SegmentPlan]:
        """Segments that are not skipped."""
        return [segment for segment in self.segments if segment.way not in _SKIPPED]

    @property
    def splits(self) -> list[Split]:
        """All splits of the store."""
        return [split for segment in self.segments for split in segment.splits]

    @property
    def planned_bytes(self) -> int:
        """Size of the splits in bytes."""
        return sum(segment.planned_bytes for segment in self.segments)

    @property
    def record_count(self) -> int | None:
        """Number of records to be examined; None if only a scan would show it."""
        listed = [split.record_count for split in self.splits if isinstance(split, ListedSplit)]
        return sum(listed) if len(listed) == len(self.splits) else None

    @property
    def read_methods(self) -> list[ReadMethod]:
        """Methods by which the segments that are not skipped are read."""
        return [way for way in ReadMethod if way not in _SKIPPED and self.count_segments(way)]

    @property
    def no_index_reasons(self) -> dict[str, int]:
        """Reasons why no index was used, each with the number of segments to which it applies."""
        return dict(Counter(reason for segment in self.segments for reason in segment.reasons))

    def to_row(self) -> dict[str, object]:
        """Return a summary of the plan as a dictionary, to be shown as a row of a table."""
        return {
            "broker": self.broker,
            "path": self.root,
            "answered_by": [str(way) for way in self.read_methods],
            "segments": len(self.segments),
            "segments_planned": len(self.planned_segments),
            "segments_skipped_by_offset": self.count_segments(ReadMethod.SKIPPED_BY_OFFSET),
            "segments_skipped_by_time": self.count_segments(ReadMethod.SKIPPED_BY_TIME),
            "segments_missing": sum(segment.whole.missing for segment in self.planned_segments),
            "bytes": self.store_range.size,
            "bytes_planned": self.planned_bytes,
            "bytes_skipped": max(0, self.store_range.size - self.planned_bytes),
            "splits": len(self.splits),
            "records": self.record_count,
            "reasons": self.no_index_reasons,
        }

    def __str__(self) -> str:
        by_offset, by_time = (
            self.count_segments(ReadMethod.SKIPPED_BY_OFFSET),
            self.count_segments(ReadMethod.SKIPPED_BY_TIME),
        )
        parts = [
            f"{len(self.planned_segments)} of {format_count(len(self.segments), 'segment')}",
            f"{self.planned_bytes} of {self.store_range.size} bytes in {len(self.splits)} splits",
            f"by {' and '.join(self.read_methods) or 'nothing'}",
            f"skipped {by_offset} by offset, {by_time} by time",
        ]
        if self.record_count is not None:
            parts.append(format_count(self.record_count, "record"))
        if self.no_index_reasons:
            parts.append(
                "no index: " + ", ".join(f"{reason} ({count})" for reason, count in self.no_index_reasons.items())
            )
        return f"{self.broker}: {'; '.join(parts)}"


@dataclass(frozen=True)
class ReadPlan:
    """Plan of one read, which consists of a plan for each store."""

    snapshot: Snapshot
    stores: tuple[StorePlan, ...] = field(default_factory=tuple)

    @property
    def splits(self) -> list[Split]:
        """All splits, in order."""
        return [split for store in self.stores for split in store.splits]


def plan_read(options: ReadOptions, filters: Filters) -> ReadPlan:
    """Return the plan for a read of the stores that the options name.

    Args:
        filters: the filters from the options and from Spark.

    Raises:
        StoreError: if the path has no store, or a store of the snapshot is missing.
    """
    stores = find_stores(options.path, options.broker, formats=options.formats)
    if options.snapshot is None:
        # Only stores that the filter names: the end of each log is searched, which opens its newest segment.
        wanted = [store for store in stores if filters.brokers is None or store.broker in filters.brokers]
        until = filters.end_offset
        snapshot = take_snapshot(wanted, max_record_bytes=options.max_record_bytes, end_offset=until)
    else:
        snapshot = Snapshot.from_json(options.snapshot)
        check_snapshot_stores(stores, snapshot)
    return plan_snapshot(stores, snapshot, options, filters)


def refuse_incomplete_read(store_range: StoreRange, mode: Mode) -> None:
    """Refuse a read that would silently miss messages of a store.

    Raises:
        StoreError: if the store has others elsewhere, in mode FAILFAST.
    """
    if store_range.newer and mode is Mode.FAILFAST:
        raise StoreError(
            f"{'; '.join(store_range.newer)}. Mode PERMISSIVE or DROPMALFORMED reads the other records",
            exit_code=ExitCode.DAMAGE,
        )


def plan_snapshot(stores: Sequence[Store], snapshot: Snapshot, options: ReadOptions, filters: Filters) -> ReadPlan:
    """Return the plan for reading the ranges in a snapshot, for those stores that the snapshot contains."""
    planner = _Planner(options, filters, options.partition_bytes(snapshot.size))
    plans = [
        planner.plan_store(store, snapshot.ranges[store.broker]) for store in stores if store.broker in snapshot.ranges
    ]
    for plan in plans:
        logger.info("%s", plan)
    return ReadPlan(snapshot, tuple(plans))


class _Planner:
    """Planner that chooses how to read each segment of each store: by an index or by a scan."""

    def __init__(self, options: ReadOptions, filters: Filters, partition_bytes: int) -> None:
        self._options = options
        self._partition_bytes = partition_bytes
        self._filters = filters

    def plan_store(self, store: Store, store_range: StoreRange) -> StorePlan:
        """Return the plan for one store."""
        wholes = [whole for whole in segment_ranges(store, store_range) if whole.size]
        # Offsets first, which costs nothing; times are read from the files of the segments that are left.
        kept = [whole for whole in wholes if self._filters.may_match(whole)]
        ways = dict.fromkeys(wholes, ReadMethod.SKIPPED_BY_OFFSET)
        ways.update(dict.fromkeys(kept, ReadMethod.SKIPPED_BY_TIME))
        timely = set(self._splits_within_time(kept, store_range))
        # Opening an index lists folders, so it is left out if no segment is read at all.
        indexes = open_indexes(store, store_range, self._options, self._filters) if timely else StoreIndexes()
        plans = (
            self._plan_segment(whole, indexes) if whole in timely else SegmentPlan(whole, ways[whole])
            for whole in wholes
        )
        return StorePlan(store.broker, store.root, store_range, tuple(plans))

    def _splits_within_time(self, segment_splits: Sequence[Split], store_range: StoreRange) -> Iterator[Split]:
        begin, end = self._filters.min_store_timestamp, self._filters.end_store_timestamp
        if begin is None and end is None:
            yield from segment_splits
            return
        options = self._options
        found = time_bounds(
            segment_splits, store_range.last_record, options.clock_tolerance_ms, options.max_record_bytes, (begin, end)
        )
        for whole, bounds in zip(segment_splits, found, strict=True):
            if bounds.may_overlap(begin, end):
                yield whole

    def _plan_segment(self, segment_split: Split, indexes: StoreIndexes) -> SegmentPlan:
        reasons = list(indexes.reasons)
        max_record_bytes = self._options.max_record_bytes
        if not segment_split.missing:
            # Best first. An index that cannot serve this segment may serve the next one, so nothing is remembered.
            for index in indexes.usable:
                try:
                    splits = make_index_splits(
                        index.find_records(segment_split),
                        segment_split,
                        self._filters,
                        self._partition_bytes,
                        max_record_bytes,
                    )
                except BadIndexError as unusable:
                    reasons.append(f"{index.name}: {unusable}")
                else:
                    return SegmentPlan(segment_split, ReadMethod(index.name), tuple(splits), tuple(reasons))
        scanned = divide_segment(segment_split, self._partition_bytes, max_record_bytes, self._filters.end_offset)
        wanted = tuple(split for split in scanned if self._filters.may_match(split))
        return SegmentPlan(segment_split, ReadMethod.SCAN, wanted, tuple(reasons))


@dataclass(frozen=True)
class EntryPlan:
    """Plan for one segment: queue entries that are used in place of records, and the ranges of the log to read.

    Attributes:
        entries: Queue entries of the topics that need only entries; None if `splits` has their records.
        splits: Ranges and records that are read.
    """

    entries: IndexAnswer | None
    splits: tuple[Split, ...]


def plan_entries(
    store: Store,
    store_range: StoreRange,
    options: ReadOptions,
    filters: Filters,
    entry_topics: Collection[str],
    end_ms: int | None,
) -> Iterator[EntryPlan]:
    """Yield a plan for each segment of one store, for a read in which queue entries can replace records.

    Args:
        store_range: The part of its log that is wanted.
        options: Options of the read.
        filters: The filters for records, by topic; they have all wanted topics.
        entry_topics: The wanted topics whose entries are sufficient.
        end_ms: Entries are only returned for segments without records stored after this time; None for no limit.
    """
    wholes = [whole for whole in segment_ranges(store, store_range) if whole.size]
    indexes = open_indexes(store, store_range, options, filters)
    queues = next((index for index in indexes.usable if isinstance(index, QueueIndex)), None)
    if queues is None:
        yield from (EntryPlan(None, (whole,)) for whole in wholes)
        return
    # Entries have no store times. Only records stored after `end_ms` matter here, so segments that cannot have any need
    # no scan.
    later = (None if end_ms is None else end_ms + 1, None)
    bounds = time_bounds(
        wholes, store_range.last_record, options.clock_tolerance_ms, options.max_record_bytes, later
    )  # fmt: skip
    partition_bytes = options.partition_bytes(store_range.size)
    by_record = (filters.topics or frozenset()) - frozenset(entry_topics)
    for whole, times in zip(wholes, bounds, strict=True):
        is_late = end_ms is not None and times.may_overlap(*later)
        plan = (
            None
            if whole.missing or is_late
            else _plan_segment_by_entries(whole, queues, options, filters, partition_bytes, entry_topics, by_record)
        )
        yield plan or EntryPlan(None, (whole,))


def _plan_segment_by_entries(
    segment_split: Split,
    queues: QueueIndex,
    options: ReadOptions,
    filters: Filters,
    partition_bytes: int,
    entry_topics: Collection[str],
    record_topics: Collection[str],
) -> EntryPlan | None:
    """Return the plan for a segment that uses its queue entries; None if the segment must be scanned."""
    try:
        answer = queues.list_entries(segment_split)
        wanted = answer.restrict_to_topics(record_topics)
        splits = make_index_splits(wanted, segment_split, filters, partition_bytes, options.max_record_bytes)
    except BadIndexError:
        return None
    return EntryPlan(answer.restrict_to_topics(entry_topics), tuple(splits))


def merge_in_log_order(entry_plan: EntryPlan) -> Iterator[IndexAnswer | Split]:
    """Yield a segment's queue entries and splits, merged in the order of the log."""
    entries = entry_plan.entries
    for split in entry_plan.splits:
        if entries is not None and not isinstance(split, ListedSplit):
            place = int(np.searchsorted(entries.offsets, split.start))
            # A scanned range holds records that no entry claims, so it fits between two entries.
            yield entries.restrict_to_rows(slice(None, place))
            entries = entries.restrict_to_rows(slice(place, None))
        yield split
    if entries is not None:
        yield entries
