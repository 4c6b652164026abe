"""Ranges of the messages to audit: of time, in whole windows, and of the brokers' logs."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

from commitlake.connectors.reading.snapshots import StoreRange
from commitlake.schemas.tables.profile import WINDOW_SECONDS
from commitlake.schemas.times import EPOCH

_WINDOW = datetime.timedelta(seconds=WINDOW_SECONDS)
_LAST_WINDOW = datetime.datetime.max.replace(tzinfo=datetime.UTC) - _WINDOW


@dataclass(frozen=True)
class AuditSpan:
    """The time range of an audit, which includes messages without a time if it has no bounds.

    Attributes:
        first: first time; None for no bound.
        last: end, exclusive; None for no bound.
    """

    first: datetime.datetime | None = None
    last: datetime.datetime | None = None

    def whole_windows(self) -> Self:
        """Return the time range, extended to whole windows because archive runs count messages by window."""
        first, last = self.first, self.last
        return replace(
            self,
            first=None if first is None else first - (first - EPOCH) % _WINDOW,
            last=None if last is None or last > _LAST_WINDOW else last + (EPOCH - last) % _WINDOW,
        )

    def limit_to_dates_from(self, date: datetime.date | None) -> Self:
        """Return the part of the time range that begins at `date`; the whole range if `date` is None."""
        if date is None:
            return self
        first = datetime.datetime(date.year, date.month, date.day, tzinfo=datetime.UTC)
        return self if self.first is not None and self.first >= first else replace(self, first=first)

    def __str__(self) -> str:
        names = (("from", self.first), ("to", self.last))
        return " ".join(f"{name} {moment:%Y-%m-%d %H:%M}" for name, moment in names if moment is not None)


class LogSpan(NamedTuple):
    """Range of one broker's log: physical offsets from `first` to before `last`."""

    broker: str
    first: int
    last: int


def to_log_ranges(ranges: Mapping[str, StoreRange]) -> list[LogSpan]:
    """Convert the ranges of stores' logs, by broker, to a list."""
    return [LogSpan(broker, part.start, part.end) for broker, part in ranges.items()]
