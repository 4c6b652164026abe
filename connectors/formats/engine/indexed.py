"""Selection of the store's indexes that can answer a read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from commitlake.connectors.formats.engine.files import OpenSegment
from commitlake.connectors.formats.engine.filters import Filters
from commitlake.connectors.formats.engine.index_answer import Index, IndexUnusable
from commitlake.connectors.formats.engine.options import ReadOptions
from commitlake.connectors.formats.engine.plan import StoreRange, segment_ranges
from commitlake.connectors.formats.engine.queue_index import QueueIndex
from commitlake.connectors.formats.engine.single_records import message_at
from commitlake.connectors.formats.engine.stores import Store

_KEY_INDEX = "IndexFile"


@dataclass(frozen=True)
class Indexes:
    """Usable indexes, best first, and the reasons against others."""

    usable: tuple[Index, ...] = ()
    reasons: tuple[str, ...] = ()


def open_indexes(store: Store, store_range: StoreRange, options: ReadOptions, filters: Filters) -> Indexes:
    """Open the indexes beside a store's log that can answer a read; none for a read of all topics."""
    by_queue = filters.topics is not None or filters.queue_ids is not None
    kernel = store.format.kernel
    by_key = filters.keys is not None and filters.topics is not None
    if not (by_queue or by_key):
        return Indexes()
    if not options.use_indexes:
        return Indexes(reasons=("the option useIndexes is false",))
    if store.is_remote:
        # The queues of a copy may be older than its log: if a broker has rewritten the end of its log after a power
        # failure, entries of other topics may cover wanted records until the queues are shipped. And the queues of all
        # topics are read for each segment, which can take more requests than a scan.
        return Indexes(reasons=("indexes are only read from local disks",))
    folder = Path(store.root).parent
    usable: list[Index] = []
    reasons: list[str] = []
    if by_key and (reason := store.format.why_no_key_index(store)):
        reasons.append(f"{_KEY_INDEX}: {reason}")
    elif by_key:
        try:
            log = _Log(store, store_range, options.max_record_bytes)
            index = store.format.open_key_index(folder, filters, log.message_at)
        except IndexUnusable as unusable:
            reasons.append(f"{_KEY_INDEX}: {unusable}")
        else:
            usable.append(index)
            reasons += [f"{_KEY_INDEX}: {note}" for note in index.notes]
    if by_queue:
        try:
            usable.append(QueueIndex(folder, filters, options.max_record_bytes, kernel.queues))
        except IndexUnusable as unusable:
            reasons.append(f"{kernel.queues.name}: {unusable}")
    return Indexes(tuple(usable), tuple(reasons))


class _Log:
    """Single records of a snapshot."""

    def __init__(self, store: Store, store_range: StoreRange, max_record_bytes: int) -> None:
        self._wholes = segment_ranges(store, store_range)
        self._max_record_bytes = max_record_bytes

    def message_at(self, offset: int) -> Any:
        """Return the record at a physical offset, or None if the snapshot has no valid one there."""
        for whole in self._wholes:
            if whole.start <= offset < whole.end and not whole.missing:
                try:
                    with OpenSegment(whole.path) as file:
                        return message_at(file, whole, offset, self._max_record_bytes)
                except FileNotFoundError:
                    return None  # deleted since it was listed
        return None
