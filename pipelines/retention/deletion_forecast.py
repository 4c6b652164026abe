"""Result of the command `guard`: for each store, its segments with forecasts, its disks, and problems.

A forecast applies the broker's rules to its segments and disks, and says when each segment will be deleted.
"""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from commitlake.connectors.lake.archive_commits import StoreProgress
from commitlake.connectors.reading.snapshots import take_snapshot
from commitlake.connectors.reading.store_identity_check import StoreReplacedError, check_continuity
from commitlake.connectors.reading.stores import Store
from commitlake.pipelines.retention.deletion_rules import DeletionCause, Disk, Rules, read_disk_usage
from commitlake.pipelines.retention.segments import (
    ArchivedShare,
    StoredSegment,
    measure_log_growth,
    newest_segment_index,
    read_segments,
)


@dataclass(frozen=True, slots=True)
class Forecast:
    """Forecast of when the broker deletes a segment of its log, and why.

    Attributes:
        segment: current state of the segment.
        is_newest: True if the broker is writing it; it is not deleted before it is full and another one follows.
        expires_at: time from which it may be deleted by age; None if it is not full or not begun.
        deleted_at: earliest time of its deletion; None if no known rule deletes it.
        cause: reason of that deletion.
    """

    segment: StoredSegment
    is_newest: bool = False
    expires_at: datetime.datetime | None = None
    deleted_at: datetime.datetime | None = None
    cause: DeletionCause | None = None


def forecast_deletions(
    segments: Sequence[StoredSegment],
    rules: Rules,
    disks: Sequence[Disk],
    now: datetime.datetime,
    log_growth: float = 0.0,
) -> list[Forecast]:
    """Forecast when the broker deletes each segment, if the log continues to grow at the same rate.

    Args:
        segments: segments of one store, in the order of their offsets.
        rules: rules of its broker.
        disks: disk of the log, then that of the ConsumeQueues if different; empty if not known.
        now: time at which segments and disks were read.
        log_growth: bytes per second by which this log grows.
    """
    last = newest_segment_index(segments)
    found: list[Forecast] = []
    expired = _LONG_AGO
    freed = [0]
    for number, segment in enumerate(segments):
        freed.append(freed[-1] + segment.allocated)
        if number > last:
            found.append(Forecast(segment))
            continue
        full_at = segment.modified if number < last else _time_when_segment_is_full(segment, now, log_growth)
        if full_at is None:
            found.append(Forecast(segment, is_newest=True))
            continue
        expires_at = rules.expires_at(full_at)
        # A broker deletes files in their order, so a segment waits for all before it.
        expired = max(expired, expires_at) if rules.keeps_order else expires_at
        before = freed[number - number % rules.max_deletions_per_pass]  # a pass checks the disk once
        deleted_at, cause = min(
            (
                way
                # Deleting segments frees only the log's disk.
                for place, disk in enumerate(disks or (_NO_DISK,))
                for way in rules.possible_deletions(expired, disk, now, 0 if place else before)
            ),
            key=lambda way: way[0],
        )
        is_newest = number == last
        # Before it is full, it is the newest one, which a broker never deletes.
        deleted_at = max(deleted_at, full_at) if is_newest else deleted_at
        found.append(Forecast(segment, is_newest, None if is_newest else expires_at, deleted_at, cause))
    return found


def _time_when_segment_is_full(
    segment: StoredSegment, now: datetime.datetime, log_growth: float
) -> datetime.datetime | None:
    """Return when the newest segment will be full; None if that is not known."""
    if log_growth <= 0:
        return None
    return now + datetime.timedelta(seconds=max(1.0, segment.unwritten_bytes / log_growth))


_LONG_AGO = datetime.datetime.min.replace(tzinfo=datetime.UTC)
_NO_DISK = Disk(0, 0, 0)


class SegmentVerdict(StrEnum):
    """Verdict on whether a segment is archived, or may be deleted before it is."""

    ARCHIVED = "archived"
    WAITS = "waits"
    """Not archived, but not deleted within the requested time."""
    AT_RISK = "at risk"
    """Not archived, and deleted within the requested time."""
    UNUSED = "unused"
    """Created in advance, without content."""


@dataclass(frozen=True, slots=True)
class WatchedSegment:
    """Segment of a watched store, with its deletion forecast and verdict."""

    fate: Forecast
    verdict: SegmentVerdict


@dataclass(frozen=True, slots=True)
class WatchedStore:
    """A store with its segments, and the disks that they are on.

    Attributes:
        broker: name of the store.
        root: folder of its log.
        rules: rules of its broker.
        segments: segments in the order of their offsets.
        disks: disk of the log, then that of the ConsumeQueues if different.
        growth: bytes per second by which its log grows; 0 if not known.
        lost: physical offsets of the range that was deleted before it was archived and is not recorded as a gap yet.
        replaced: reason why the lake's progress is not that of this store, or an empty string.
        newer: sentences on messages that are not in these segments.
    """

    broker: str
    root: str
    rules: Rules
    segments: Sequence[WatchedSegment]
    disks: Sequence[Disk]
    growth: float
    lost: tuple[int, int] | None = None
    replaced: str = ""
    newer: Sequence[str] = ()

    def count_segments(self, verdict: SegmentVerdict) -> int:
        """Return the number of segments with a verdict."""
        return sum(segment.verdict is verdict for segment in self.segments)


@dataclass(frozen=True, slots=True)
class _StoreState:
    """Segments, disks and rules of one store as they were read, from which deletions are forecast."""

    store: Store
    rules: Rules
    segments: Sequence[StoredSegment]
    disks: Sequence[Disk]
    growth: float
    lost: tuple[int, int] | None
    replaced: str
    newer: Sequence[str]


def watch_stores(
    stores: Sequence[Store],
    progress: Mapping[str, StoreProgress],
    get_rules: Callable[[Store], Rules],
    now: datetime.datetime,
    time_to_archive: datetime.timedelta,
) -> list[WatchedStore]:
    """Read stores, and forecast the deletion of their segments.

    Args:
        stores: from `find_stores`.
        progress: archived progress of each store, by name.
        get_rules: returns a store's rules.
        now: current time.
        time_to_archive: time for which a segment must exist so that it can be archived.

    Raises:
        StoreError: if a segment is not readable.
    """
    seen = [_read_store(store, progress.get(store.broker), get_rules(store), now) for store in stores]
    filled: dict[int, float] = defaultdict(float)
    for one in seen:
        if one.disks:
            # Several stores on one disk fill it together.
            filled[one.disks[0].device] += one.growth
    return [_to_watched_store(one, filled, now, time_to_archive) for one in seen]


def _read_store(store: Store, progress: StoreProgress | None, rules: Rules, now: datetime.datetime) -> _StoreState:
    replaced = _replacement_reason(store, progress)
    # What was archived of a store that was replaced says nothing about this one.
    end = progress.end if progress and not replaced else 0
    segments = read_segments(store, end)
    lost = None
    if progress and not replaced and store.segments[0].base_offset > end:
        lost = (end, store.segments[0].base_offset)
    newer = take_snapshot([store]).ranges[store.broker].newer
    return _StoreState(
        store,
        rules,
        segments,
        _read_disks_of_store(store, rules),
        measure_log_growth(segments, now),
        lost,
        replaced,
        newer,
    )


def _replacement_reason(store: Store, progress: StoreProgress | None) -> str:
    if progress is None or progress.last_record is None:
        return ""
    record = progress.last_record
    try:
        check_continuity(store, progress.end, record.physical_offset, record.size, record.digest)
    except StoreReplacedError as error:
        return str(error)
    return ""


def _read_disks_of_store(store: Store, rules: Rules) -> list[Disk]:
    """Return the disks whose usage makes the broker delete segments; none for a store in an object store."""
    if store.is_remote:
        return []
    log = Path(store.root)
    queues = Path(rules.conf.store_path or log.parent) / store.format.queues.folders[0]
    # A broker with several folders deletes segments when the emptiest of their disks is full.
    folders = {log, *(Path(segment.path).parent for segment in store.segments)}
    disks = [min((read_disk_usage(folder) for folder in folders), key=lambda disk: disk.used_percent)]
    # Queues on the log's own disk would count twice.
    if queues.is_dir() and queues.stat().st_dev != disks[0].device:
        disks.append(read_disk_usage(queues))
    return disks


def _to_watched_store(
    store_state: _StoreState,
    growth_by_device: Mapping[int, float],
    now: datetime.datetime,
    time_to_archive: datetime.timedelta,
) -> WatchedStore:
    disks = [replace(disk, growth=growth_by_device.get(disk.device, 0.0)) for disk in store_state.disks]
    fates = forecast_deletions(store_state.segments, store_state.rules, disks, now, store_state.growth)
    segments = [WatchedSegment(fate, _judge_segment(fate, now + time_to_archive)) for fate in fates]
    root, broker = store_state.store.root, store_state.store.broker
    return WatchedStore(
        broker,
        root,
        store_state.rules,
        segments,
        disks,
        store_state.growth,
        store_state.lost,
        store_state.replaced,
        store_state.newer,
    )


def _judge_segment(forecast: Forecast, deadline: datetime.datetime) -> SegmentVerdict:
    if not forecast.segment.begun:
        return SegmentVerdict.UNUSED
    if forecast.segment.archived is ArchivedShare.YES:
        return SegmentVerdict.ARCHIVED
    if forecast.deleted_at is not None and forecast.deleted_at <= deadline:
        return SegmentVerdict.AT_RISK
    return SegmentVerdict.WAITS
