"""Which store times a segment can hold, from one record of it and one of the next.

A broker stamps records in the order of its log. So nothing in a segment is older than its first record, and nothing is
newer than the first record of the segment behind it (or, in the newest segment, than the last record that the snapshot
knows). A clock can step back, though, when it is set right: bounds are wider by a tolerance on both sides (the option
`clockTolerance`), and where two neighbours show a step that is larger than it, the segment between them has no bounds
at all. A step back that is larger than the tolerance, and made good before the segment's end, shows nowhere: who has
such clocks asks for a larger tolerance.

A record that does not prove itself is no bound, and what has no bounds is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from connectors.commitlog.files import OpenSegment
from connectors.commitlog.look import message_at
from connectors.commitlog.splits import Split

_READERS = 16  # behind a URI every look is a request, and they are waited for together


class TimeBounds(NamedTuple):
    """The oldest and the newest store time that a segment's records can have, in ms; None where that is not known."""

    low: int | None = None
    high: int | None = None

    def meet(self, begin: int | None, end: int | None) -> bool:
        """Whether a time from `begin` on and before `end` can be among them."""
        too_old = begin is not None and self.high is not None and self.high < begin
        too_new = end is not None and self.low is not None and self.low >= end
        return not (too_old or too_new)


def time_bounds(
    wholes: Sequence[Split], last_record: int | None, tolerance_ms: int, max_record_bytes: int
) -> list[TimeBounds]:
    """The bounds of ranges of one store, each at most a segment, in order.

    A range whose segment is missing lies between its neighbours' first records: it is left out only where it could
    hold nothing that is wanted.

    Args:
        wholes: from `plan.segment_ranges`, or some of them; no other segment is opened.
        last_record: physical offset of the newest record, where it is known.
        tolerance_ms: by how much a clock may have stepped back.
        max_record_bytes: larger sizes are faults.
    """
    looks = [None if whole.missing else whole.base_offset for whole in wholes]
    with ThreadPoolExecutor(max_workers=_READERS) as readers:
        firsts = list(readers.map(lambda at: _time_at(at[0], at[1], max_record_bytes), zip(wholes, looks, strict=True)))
    found = []
    for number, whole in enumerate(wholes):
        low = firsts[number]
        if whole.missing:
            low = next((time for time in reversed(firsts[:number]) if time is not None), None)
        if last_record is not None and whole.start <= last_record < whole.end:
            high = _time_at(whole, last_record, max_record_bytes)
        else:
            high = next((time for time in firsts[number + 1 :] if time is not None), None)
        found.append(_widened(low, high, tolerance_ms))
    return found


def _time_at(whole: Split, offset: int | None, max_record_bytes: int) -> int | None:
    if offset is None:
        return None
    try:
        with OpenSegment(whole.path) as file:
            message = message_at(file, whole, offset, max_record_bytes)
    except FileNotFoundError:
        return None  # deleted since it was listed; whoever reads it will say so
    return None if message is None else message.store_timestamp


def _widened(low: int | None, high: int | None, tolerance_ms: int) -> TimeBounds:
    if low is not None and high is not None and high < low:
        if low - high > tolerance_ms:
            return TimeBounds()
        low, high = high, low
    return TimeBounds(None if low is None else low - tolerance_ms, None if high is None else high + tolerance_ms)
