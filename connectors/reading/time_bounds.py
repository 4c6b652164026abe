"""Bounds of segments' store times, read from a few records of each and one record of the next segment.

A broker stamps records in the order of its log. So if the broker's clock is correct, no record of a segment is older
than its first record, and none is newer than the first record of the next segment (in the newest segment: than the last
record of the snapshot). A clock can be set back, or run ahead for a while and then be corrected. So the bounds are
widened by a tolerance on both sides (the option `clockTolerance`). If two neighbouring bounds show a step back that is
larger than the tolerance, the segment between them has no bounds.

Before a segment is skipped because of its bounds, its records are read at `PROBES` positions and at its end
(`time_bounds`, argument `wanted`), and their store times widen the bounds. This detects a clock that was wrong while a
sixteenth of the segment's bytes was written, or at its end. One case is not detected: a clock that was wrong by more
than the tolerance for less than that (64 MiB of a segment of 1 GiB), and correct before and after it in the same
segment. A filter by time then misses the records of that period, because their times are outside the segment's bounds.
With a tolerance larger than any step, such as a year (31536000000), no such segment is skipped.

An invalid record is not used as a bound, and a segment without bounds is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import NamedTuple

from commitlake.connectors.log_format.files import SegmentFile
from commitlake.connectors.log_format.format import Format
from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.reading.files.segment_files import OpenSegment
from commitlake.connectors.reading.segment_walk import WalkEnd, WalkStep, walk_records
from commitlake.connectors.reading.single_records import message_at
from commitlake.connectors.reading.splits import Split

_READERS = 16  # on remote filesystems each read is a request, so several run in parallel
PROBES = 16
"""Number of positions in a segment that are examined before it is skipped."""
_PROBE_BYTES = 64 << 10
_MAX_END_BYTES = 4 << 20  # the last record may be followed by a BLANK of the size of the largest message


class TimeBounds(NamedTuple):
    """Smallest and largest possible store time of a segment's records, in ms; None if unknown."""

    low: int | None = None
    high: int | None = None

    def may_overlap(self, begin: int | None, end: int | None) -> bool:
        """Return whether a store time in the range from `begin` to before `end` is possible within the bounds."""
        too_old = begin is not None and self.high is not None and self.high < begin
        too_new = end is not None and self.low is not None and self.low >= end
        return not (too_old or too_new)

    def widen(self, low: int | None, high: int | None, tolerance_ms: int) -> TimeBounds:
        """Return bounds that also cover the times from `low` to `high`; a bound becomes unknown if its time is None."""
        return TimeBounds(
            self.low if self.low is None or low is None else min(self.low, low - tolerance_ms),
            self.high if self.high is None or high is None else max(self.high, high + tolerance_ms),
        )


def time_bounds(
    ranges: Sequence[Split],
    last_record: int | None,
    tolerance_ms: int,
    max_record_bytes: int,
    wanted_times: tuple[int | None, int | None] = (None, None),
) -> list[TimeBounds]:
    """Return the bounds of store times for ranges of one store, each at most a segment, in order.

    The bounds of a missing segment come from the first records of its neighbours. It is skipped only if it could not
    contain wanted records.

    Args:
        ranges: from `snapshots.segment_ranges`, or some of them; no other segment is opened.
        last_record: physical offset of the newest record, if it is known.
        tolerance_ms: the largest step of a clock that is tolerated.
        max_record_bytes: larger sizes are faults.
        wanted_times: the wanted times, first inclusive and last exclusive; ranges whose bounds exclude these times are
            probed.
    """
    with ThreadPoolExecutor(max_workers=_READERS) as readers:
        firsts = list(
            readers.map(
                lambda whole: (
                    None if whole.missing else _read_store_time_at(whole, whole.base_offset, max_record_bytes)
                ),
                ranges,
            )
        )
        found = []
        for number, whole in enumerate(ranges):
            low = firsts[number]
            if whole.missing:
                # Records of the missing segment were stored after those before it.
                low = next((time for time in reversed(firsts[:number]) if time is not None), None)
            # In the newest segment nothing follows, so the last record is the bound.
            if last_record is not None and whole.start <= last_record < whole.end:
                high = _read_store_time_at(whole, last_record, max_record_bytes)
            else:
                high = next((time for time in firsts[number + 1 :] if time is not None), None)
            found.append(_make_time_bounds(low, high, tolerance_ms))
        doubtful = [
            number
            for number, whole in enumerate(ranges)
            if not whole.missing and not found[number].may_overlap(*wanted_times)
        ]
        probed = readers.map(lambda number: _sample_store_times(ranges[number], max_record_bytes), doubtful)
        for number, (low, high) in zip(doubtful, probed, strict=True):
            found[number] = found[number].widen(low, high, tolerance_ms)
    return found


def _sample_store_times(split: Split, max_record_bytes: int) -> tuple[int | None, int | None]:
    """Return the smallest and largest store time of records at sampled positions of a range; None if none was found."""
    times: list[int] = []
    try:
        with OpenSegment(split.path) as file:
            if split.size <= PROBES * _PROBE_BYTES:
                times = _min_max_times(file, split, max_record_bytes)
            else:
                for start in range(split.start, split.end, -(-split.size // PROBES)):
                    end = min(start + _PROBE_BYTES, split.end)
                    times += _min_max_times(file, replace(split, start=start, end=end), max_record_bytes)
                # A clock that was set right just before the segment's end shows nowhere else.
                times += _sample_end_store_times(file, split, max_record_bytes)
    except FileNotFoundError:
        pass  # deleted since it was listed; the read will report it
    return min(times, default=None), max(times, default=None)


def _sample_end_store_times(file: SegmentFile, split: Split, max_record_bytes: int) -> list[int]:
    """Return the smallest and largest store time of a segment's last records; empty if its end has none nearby."""
    size = _PROBE_BYTES
    while size <= _MAX_END_BYTES:
        found = _min_max_times(file, replace(split, start=max(split.start, split.end - size)), max_record_bytes)
        if found:
            return found
        size *= 4
    return []


def _min_max_times(file: SegmentFile, split: Split, max_record_bytes: int) -> list[int]:
    """Return the smallest and largest store time of the records that begin in a range; empty if none begins there."""
    found: list[int] = []
    for step in walk_records(file, split, _PROBE_BYTES, max_record_bytes, WalkEnd(), verifies_crc=False):
        if step.parts.shape[1]:
            times = store_times(step, split.format)
            found += [int(times.min()), int(times.max())]
    return found


def store_times(step: WalkStep, log_format: Format) -> Array:
    """Return the store times, in ms, of the records that were located in a window."""
    return log_format.kernel.store_times(step.window, step.parts)


def _read_store_time_at(split: Split, offset: int, max_record_bytes: int) -> int | None:
    try:
        with OpenSegment(split.path) as file:
            message = message_at(file, split, offset, max_record_bytes)
    except FileNotFoundError:
        return None  # deleted since it was listed; the read will report it
    return None if message is None else message.store_timestamp


def _make_time_bounds(low: int | None, high: int | None, tolerance_ms: int) -> TimeBounds:
    if low is not None and high is not None and high < low:
        # A small step back is within the tolerance, by which both bounds are widened anyway.
        if low - high > tolerance_ms:
            return TimeBounds()
        low, high = high, low
    return TimeBounds(None if low is None else low - tolerance_ms, None if high is None else high + tolerance_ms)
