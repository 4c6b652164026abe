"""The stored messages that an audit looks at: whole windows of time."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, replace
from typing import Self

from commitlake.schemas.tables.profile import WINDOW_SECONDS
from commitlake.schemas.times import EPOCH

_WINDOW = datetime.timedelta(seconds=WINDOW_SECONDS)
_LAST_WINDOW = datetime.datetime.max.replace(tzinfo=datetime.UTC) - _WINDOW


@dataclass(frozen=True)
class Span:
    """From one moment to another. A message without a time is in it where it has no bounds.

    Attributes:
        first: the first moment; None for all.
        last: the first moment that is too late; None for all.
    """

    first: datetime.datetime | None = None
    last: datetime.datetime | None = None

    def whole_windows(self) -> Self:
        """Return the windows that this touches: a run's counts are known by window, and not within one."""
        first, last = self.first, self.last
        return replace(
            self,
            first=None if first is None else first - (first - EPOCH) % _WINDOW,
            last=None if last is None or last > _LAST_WINDOW else last + (EPOCH - last) % _WINDOW,
        )

    def since(self, date: datetime.date | None) -> Self:
        """Return the part of it that is of a date or later."""
        if date is None:
            return self
        first = datetime.datetime(date.year, date.month, date.day, tzinfo=datetime.UTC)
        return self if self.first is not None and self.first >= first else replace(self, first=first)

    def __str__(self) -> str:
        names = (("from", self.first), ("to", self.last))
        return " ".join(f"{name} {moment:%Y-%m-%d %H:%M}" for name, moment in names if moment is not None)
