"""Scales and ticks of charts."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_STEPS = (
    *(datetime.timedelta(seconds=seconds) for seconds in (1, 2, 5, 10, 15, 30)),
    *(datetime.timedelta(minutes=minutes) for minutes in (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720)),
    *(datetime.timedelta(days=days) for days in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)),
)
_MINUTE, _DAY = datetime.timedelta(minutes=1), datetime.timedelta(days=1)
MAX_TIME_TICKS = 8
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


@dataclass(frozen=True, slots=True)
class AxisTick:
    """A mark on an axis.

    Attributes:
        place: Position on the axis, 0 to 1.
        label: Text of the mark.
    """

    place: float
    label: str


@dataclass(frozen=True, slots=True)
class AxisScale:
    """Linear or logarithmic scale of an axis, from 0 to a largest value.

    Attributes:
        top: The largest figure of the axis.
        is_log: Whether the scale is logarithmic: log(1 + x), so that 0 has a position.
    """

    top: float
    is_log: bool = False

    @classmethod
    def for_values(cls, values: Sequence[float], *, is_log: bool = False) -> AxisScale:
        """Return a scale that has room for the given values."""
        largest = max(values, default=0.0)
        if largest <= 0:
            return cls(1.0, is_log)
        if is_log:
            return cls(10.0 ** math.ceil(math.log10(max(largest, 10.0))), is_log)
        step = _round_up_step(largest / 4)
        return cls(step * math.ceil(largest / step - 1e-9), is_log)

    def position_of(self, value: float) -> float:
        """Return the position of a figure on the scale, 0 to 1."""
        part = math.log1p(value) / math.log1p(self.top) if self.is_log else value / self.top
        return min(1.0, max(0.0, part))

    def tick_values(self) -> list[float]:
        """Return the figures at which the axis has tick marks, from 0 to the top."""
        if self.is_log:
            powers = round(math.log10(self.top))
            # With more than two powers, the mark for 1 would be too close to that for 0.
            return [0.0, *(10.0**power for power in range(int(powers > 2), powers + 1, max(1, math.ceil(powers / 5))))]
        step = _round_up_step(self.top / 4)
        return [step * number for number in range(round(self.top / step) + 1)]


def _round_up_step(step: float) -> float:
    """Round a step up to 1, 2 or 5 times a power of ten."""
    power: float = 10.0 ** math.floor(math.log10(step))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= step * (1 - 1e-9))


def time_ticks(start: datetime.datetime, end: datetime.datetime) -> Iterator[AxisTick]:
    """Yield the marks of a time axis: at round times in UTC, at most `MAX_TIME_TICKS`."""
    length = end - start
    step = next((step for step in _STEPS if length / step <= MAX_TIME_TICKS), _STEPS[-1])
    step *= math.ceil(length / step / MAX_TIME_TICKS)  # for spans of thousands of years, caused by damaged times
    first = -(-(start - _EPOCH) // step) * step - (start - _EPOCH)
    for number in range((length - first) // step + 1):
        moment = start + first + number * step
        utc = moment.astimezone(datetime.UTC)
        if length >= 300 * _DAY:
            label = f"{utc.day} {utc:%b %Y}"
        elif step >= _DAY or (utc.hour, utc.minute, utc.second) == (0, 0, 0):
            label = f"{utc.day} {utc:%b}"
        else:
            label = f"{utc:%H:%M:%S}" if step < _MINUTE else f"{utc:%H:%M}"
        yield AxisTick((moment - start) / length, label)
