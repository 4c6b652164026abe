"""Planner of a stream: converts positions to the next positions and to splits.

It lives in the one Python process that plans a stream, and remembers what it has found: the end of each log, and the
warnings that it has logged. Its results do not depend on that: a micro-batch that is planned again from the positions
in the checkpoint has the same splits.

A store that appears while the stream runs is added to the positions at its start, without rows; the next micro-batch
reads it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

from commitlake.connectors.reading.errors import EmptyStoreError, StoreError
from commitlake.connectors.reading.options import Mode, ReadOptions, RowContent
from commitlake.connectors.reading.planning import plan_snapshot
from commitlake.connectors.reading.read_request import Filters
from commitlake.connectors.reading.snapshots import LogTailKind, Snapshot, StoreRange
from commitlake.connectors.reading.splits import Split
from commitlake.connectors.reading.store_identity_check import StoreReplacedError
from commitlake.connectors.reading.stores import Store, find_stores
from commitlake.connectors.sources.stream_log_ends import LogEndSearcher
from commitlake.connectors.sources.stream_offsets import Positions, StorePosition, check_same_store, segment_at
from commitlake.connectors.sources.stream_size_shares import end_of_share, fair_shares
from commitlake.connectors.sources.stream_start_positions import (
    first_positions,
    is_record_boundary,
    position_in_new_store,
)

logger = logging.getLogger(__name__)

_WAY_OUT = "failOnDataLoss=false continues without it"
_WORTH_AN_INDEX_BYTES = 64 << 20  # scanning less is faster than opening indexes


class StreamPlanner:
    """Planner of one stream, which decides what each micro-batch reads."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._ends: dict[str, LogEndSearcher] = {}
        self._stores: dict[str, Store] = {}
        self._target: Positions | None = None
        self._latest: Positions = {}
        self._warned: set[str] = set()
        self._checked: set[str] = set()

    @property
    def latest_positions(self) -> Positions:
        """Ends of the logs, as far as they are known."""
        return dict(self._latest)

    def first_positions(self) -> Positions:
        """Return the position in each store at which a stream without a checkpoint starts.

        Raises:
            StoreError: if the path contains no store.
            UsageError: if no record begins at the configured start.
        """
        try:
            stores = self._find_stores()
        except EmptyStoreError as error:
            logger.warning("%s: waiting for it", error)
            stores = []
        return first_positions(stores, self._options)

    def stop_at_current_ends(self) -> None:
        """Make the stream end at the present ends of the logs."""
        self._refresh_stores(Positions())
        self._target = {
            store.broker: self._end_search_of_store(store).find_end(store, StorePosition(store.segments[0].base_offset))
            for store in self._stores.values()
        }

    def next_positions(self, start: Positions, limit: int | None) -> Positions:
        """Return the end of the micro-batch that starts at `start`; the same position if there is nothing new.

        Args:
            limit: maximum size in bytes of log; a store's last record may exceed its share.

        Raises:
            StoreError: if data was deleted, unless the options allow it.
            StoreReplacedError: if a store was replaced by another.
        """
        self._refresh_stores(start)
        wanted = self._stores if self._target is None else self._stores.keys() & self._target.keys()
        positions = dict(start)
        ends: Positions = {}
        for broker in sorted(wanted):
            store = self._stores[broker]
            if broker not in start:
                positions[broker] = position_in_new_store(store, self._options)
                continue
            self._check_store(store, start[broker])
            end = (
                self._end_search_of_store(store).find_end(store, start[broker], limit)
                if self._target is None
                else self._target[broker]
            )
            if end.offset > start[broker].offset:
                ends[broker] = end
        self._latest = {**positions, **ends}
        available = {broker: end.offset - start[broker].offset for broker, end in ends.items()}
        shares = available if limit is None else fair_shares(available, limit)
        for broker, end in ends.items():
            max_record_bytes = self._options.max_record_bytes
            positions[broker] = end_of_share(self._stores[broker], start[broker], end, shares[broker], max_record_bytes)
        return positions

    def ranges(self, start: Positions, end: Positions) -> dict[str, StoreRange]:
        """Return the range of each store's log that a micro-batch reads, leaving out empty ranges."""
        return {
            broker: _to_store_range(start[broker], position)
            for broker, position in end.items()
            if broker in start and position.offset > start[broker].offset
        }

    def splits(self, start: Positions, end: Positions) -> list[Split]:
        """Return the splits of a micro-batch, in order of stores and offsets.

        Raises:
            StoreError: if data was deleted, unless the options allow it.
            StoreReplacedError: if a store was replaced by another.
        """
        ranges = self.ranges(start, end)
        if not ranges.keys() <= self._stores.keys():
            self._refresh_stores(start)
        known = {broker: one for broker, one in ranges.items() if broker in self._stores}
        for broker in known:
            check_same_store(self._stores[broker], end[broker])
        stores = [self._stores[broker] for broker in known]
        snapshot = Snapshot(known)
        options = self._options
        if snapshot.size < _WORTH_AN_INDEX_BYTES:
            options = replace(options, use_indexes=False)
        plan = plan_snapshot(stores, snapshot, options, Filters.of_stream(options))
        return [split for split in plan.splits if self._is_available(split)]

    def _is_available(self, split: Split) -> bool:
        if not split.missing:
            return True
        self._report_lost_range(split.broker, split.start, split.end, f"there is no segment {split.path}")
        return self._options.mode is Mode.PERMISSIVE

    def _find_stores(self) -> list[Store]:
        return find_stores(self._options.path, self._options.broker, formats=self._options.formats)

    def _refresh_stores(self, start_positions: Mapping[str, StorePosition]) -> None:
        """List the stores that exist now, and report stores that no longer exist."""
        reason = ""
        try:
            self._stores = {store.broker: store for store in self._find_stores()}
        except StoreError as error:
            self._stores = {}
            reason = f": {error}"
        for broker in start_positions.keys() - self._stores.keys():
            text = (
                f"store {broker!r}, which the stream has read up to physical offset "
                f"{start_positions[broker].offset}, is not in "
                f"{self._options.path} any more{reason}"
            )
            if self._options.fail_on_data_loss:
                raise StoreError(f"{text}. Put the store back; {_WAY_OUT}")
            self._warn_once(text)

    def _check_store(self, store: Store, start: StorePosition) -> None:
        """Check that a store is still the same, and report data that was deleted before it was read."""
        check_same_store(store, start)
        oldest = store.segments[0].base_offset
        if start.offset < oldest:
            self._report_lost_range(
                store.broker, start.offset, oldest, f"the oldest segment is {store.segments[0].path}"
            )
        elif store.broker not in self._checked:
            known = start.record is not None and segment_at(store, start.record.offset) is not None
            if not known and not is_record_boundary(store, start.offset, self._options):
                raise StoreReplacedError(
                    f"store {store.broker!r} ({store.root}) is not the one that the stream has read under this name: "
                    f"expected that a record begins at physical offset {start.offset}, found the middle of a record. "
                    "Start with a new checkpoint"
                )
        self._checked.add(store.broker)

    def _report_lost_range(self, broker: str, start: int, end: int, reason: str) -> None:
        text = (
            f"store {broker!r}: physical offsets {start} to {end} ({end - start} bytes) were deleted before the stream "
            f"read them: {reason}"
        )
        if self._options.fail_on_data_loss:
            raise StoreError(f"{text}. {_WAY_OUT}")
        self._warn_once(text)

    def _warn_once(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            logger.warning("%s: continuing without it", text)

    def _end_search_of_store(self, store: Store) -> LogEndSearcher:
        options = self._options
        # The job that asks for ranges reads the log itself, and reports what it cannot reach.
        mode = options.mode if options.content is RowContent.ROWS else Mode.PERMISSIVE
        return self._ends.setdefault(store.broker, LogEndSearcher(options.max_record_bytes, mode))


def _to_store_range(start: StorePosition, end: StorePosition) -> StoreRange:
    last = end.record.offset if end.record is not None and start.offset <= end.record.offset < end.offset else None
    return StoreRange(start.offset, end.offset, LogTailKind.CLOSED, last_record=last)
