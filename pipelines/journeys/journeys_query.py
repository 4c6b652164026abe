"""The question on journeys: a window of store time, and what is read around it."""

from __future__ import annotations

import datetime
from dataclasses import dataclass

from commitlake.schemas.selection import ALL_MESSAGES, Selection
from commitlake.schemas.times import EPOCH, LAST_TIME, epoch_us

MARGIN = datetime.timedelta(days=1)
"""Default time before and after the window in which records of the same keys are read."""
MAX_STEPS = 1_000
"""Default largest number of steps in the list of a journey."""
KINDS = ("normal", "delay", "timer", "half", "retry", "dlq")
"""Kinds of the records that journeys are made of."""


@dataclass(frozen=True, slots=True)
class JourneysQuestion:
    """Query for the path over topics of each business key that has a record in a time window.

    A result depends on the records from `margin` before the window to `margin` after it, and on nothing later.

    Attributes:
        since: start of the window.
        until: end of the window, exclusive.
        margin: time before and after the window in which records of these keys are read.
        max_steps: largest number of steps in the list of a journey; the rest is counted only.
        selection: conditions on records; its topics are those that the messages were sent to.
    """

    since: datetime.datetime
    until: datetime.datetime
    margin: datetime.timedelta = MARGIN
    max_steps: int = MAX_STEPS
    selection: Selection = ALL_MESSAGES

    @property
    def read_begin(self) -> datetime.datetime:
        """Time from which records are read: the start of the window minus the margin."""
        return max(self.since, EPOCH + self.margin) - self.margin

    @property
    def read_end(self) -> datetime.datetime:
        """Time up to which records are read, exclusive: the end of the window plus the margin."""
        return min(self.until, LAST_TIME - self.margin) + self.margin

    @property
    def since_us(self) -> int:
        """Start of the window, microseconds since 1970."""
        return epoch_us(self.since)

    @property
    def until_us(self) -> int:
        """End of the window, microseconds since 1970."""
        return epoch_us(self.until)

    @property
    def begin_us(self) -> int:
        """Time from which records are read, microseconds since 1970."""
        return epoch_us(self.read_begin)

    @property
    def end_us(self) -> int:
        """Time up to which records are read, exclusive, microseconds since 1970."""
        return epoch_us(self.read_end)

    @property
    def margin_us(self) -> int:
        """Length of the time before and after the window in which records are read, microseconds."""
        return self.margin // datetime.timedelta(microseconds=1)
