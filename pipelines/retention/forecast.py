"""Forecast of the deletion of each segment: the broker's rules, applied to its segments and disks."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass

from commitlake.pipelines.retention.disk import Disk
from commitlake.pipelines.retention.rules import Cause, Rules
from commitlake.pipelines.retention.segments import StoredSegment, newest


@dataclass(frozen=True, slots=True)
class Forecast:
    """Forecast for one segment.

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
    cause: Cause | None = None


def forecast(
    segments: Sequence[StoredSegment],
    rules: Rules,
    disks: Sequence[Disk],
    now: datetime.datetime,
    log_growth: float = 0.0,
) -> list[Forecast]:
    """Forecast when each segment is deleted, if the log continues to grow at the same rate.

    Args:
        segments: segments of one store, in the order of their offsets.
        rules: rules of its broker.
        disks: disk of the log, then that of the ConsumeQueues if different; empty if not known.
        now: time at which segments and disks were read.
        log_growth: bytes per second by which this log grows.
    """
    last = newest(segments)
    found: list[Forecast] = []
    expired = _LONG_AGO
    freed = [0]
    for number, segment in enumerate(segments):
        freed.append(freed[-1] + segment.allocated)
        if number > last:
            found.append(Forecast(segment))
            continue
        full_at = segment.modified if number < last else _full_at(segment, now, log_growth)
        if full_at is None:
            found.append(Forecast(segment, is_newest=True))
            continue
        expires_at = rules.expires_at(full_at)
        expired = max(expired, expires_at) if rules.keeps_order else expires_at
        before = freed[number - number % rules.delete_batch]  # a pass checks the disk once
        deleted_at, cause = min(
            (
                way
                # Deleting segments frees only the log's disk.
                for place, disk in enumerate(disks or (_NO_DISK,))
                for way in rules.deletions(expired, disk, now, 0 if place else before)
            ),
            key=lambda way: way[0],
        )
        is_newest = number == last
        deleted_at = max(deleted_at, full_at) if is_newest else deleted_at
        found.append(Forecast(segment, is_newest, None if is_newest else expires_at, deleted_at, cause))
    return found


def _full_at(segment: StoredSegment, now: datetime.datetime, log_growth: float) -> datetime.datetime | None:
    """Return the time at which the newest segment will be full, or None if it is not known."""
    if log_growth <= 0:
        return None
    return now + datetime.timedelta(seconds=max(1.0, segment.free / log_growth))


_LONG_AGO = datetime.datetime.min.replace(tzinfo=datetime.UTC)
_NO_DISK = Disk(0, 0, 0)
