"""Plan of a read for which the entries of some topics' queues are sufficient.

Entries are a fiftieth of the log or less: 20 bytes for each message. If a segment's queues account for all of its
bytes, the entries of these topics are returned as they are. Only the records of other wanted topics are read, and the
bytes that no entry claims. A segment is scanned if it can hold records stored after `until_ms`, because entries have no
store times, or if its queues are unusable; see `queue_index`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np

from commitlake.connectors.formats.engine.filters import narrow
from commitlake.connectors.formats.engine.index_answer import IndexAnswer, IndexUnusable, splits_of
from commitlake.connectors.formats.engine.indexed import open_indexes
from commitlake.connectors.formats.engine.options import ReadOptions
from commitlake.connectors.formats.engine.plan import StoreRange, segment_ranges
from commitlake.connectors.formats.engine.queue_index import QueueIndex
from commitlake.connectors.formats.engine.splits import ListedSplit, Split
from commitlake.connectors.formats.engine.stores import Store
from commitlake.connectors.formats.engine.time_bounds import time_bounds


@dataclass(frozen=True)
class EntryPlan:
    """Plan for one segment.

    Attributes:
        entries: Entries of the topics that need only entries; None if their records are in `splits`.
        splits: Ranges and records that are read.
    """

    entries: IndexAnswer | None
    splits: tuple[Split, ...]


def plan_entries(
    store: Store, store_range: StoreRange, options: ReadOptions, by_entry: Collection[str], until_ms: int | None
) -> Iterator[EntryPlan]:
    """Plan a read of one store, segment by segment.

    Args:
        store_range: The part of its log that is wanted.
        options: Options of the read; `topics` has all wanted topics.
        by_entry: The wanted topics whose entries are sufficient.
        until_ms: Entries are only returned for segments without records stored after this time; None for no limit.
    """
    filters = narrow(options).filters
    wholes = [whole for whole in segment_ranges(store, store_range) if whole.size]
    indexes = open_indexes(store, store_range, options, filters)
    queues = next((index for index in indexes.usable if isinstance(index, QueueIndex)), None)
    if queues is None:
        yield from (EntryPlan(None, (whole,)) for whole in wholes)
        return
    later = (None if until_ms is None else until_ms + 1, None)
    bounds = time_bounds(
        wholes, store_range.last_record, options.clock_tolerance_ms, options.max_record_bytes, later
    )  # fmt: skip
    partition_bytes = options.partition_bytes(store_range.size)
    by_record = (options.topics or frozenset()) - frozenset(by_entry)
    for whole, times in zip(wholes, bounds, strict=True):
        is_late = until_ms is not None and times.meet(*later)
        plan = (
            None
            if whole.missing or is_late
            else _by_entries(whole, queues, options, partition_bytes, by_entry, by_record)
        )
        yield plan or EntryPlan(None, (whole,))


def _by_entries(
    whole: Split,
    queues: QueueIndex,
    options: ReadOptions,
    partition_bytes: int,
    by_entry: Collection[str],
    by_record: Collection[str],
) -> EntryPlan | None:
    """Return the plan for a segment from its queues; None if it must be scanned."""
    try:
        answer = queues.list_entries(whole)
        filters = narrow(options).filters
        wanted = answer.of_topics(by_record)
        splits = splits_of(wanted, whole, filters, partition_bytes, options.max_record_bytes)
    except IndexUnusable:
        return None
    return EntryPlan(answer.of_topics(by_entry), tuple(splits))


def in_log_order(plan: EntryPlan) -> Iterator[IndexAnswer | Split]:
    """Yield the parts of a segment's plan so that entries and ranges are in the order of the log."""
    entries = plan.entries
    for split in plan.splits:
        if entries is not None and not isinstance(split, ListedSplit):
            place = int(np.searchsorted(entries.offsets, split.start))
            yield entries.part(slice(None, place))
            entries = entries.part(slice(place, None))
        yield split
    if entries is not None:
        yield entries
