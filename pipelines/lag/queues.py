"""Where queues begin and end at a time."""

from __future__ import annotations

import datetime
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Times:
    """The times and places of interest.

    Attributes:
        until: Messages that were stored later do not count; None for all.
        compared_at: An earlier time, whose ends tell how fast messages come in.
        log_start: Physical offset at which the broker's log began.
    """

    until: datetime.datetime | None = None
    compared_at: datetime.datetime | None = None
    log_start: int | None = None


@dataclass(frozen=True, slots=True)
class QueueSpan:
    """A queue's first and last messages.

    Attributes:
        first: Offset of the first message that the broker still has, the end where it has none; None where not known.
        end: Offset of the next message.
        compared_end: The end at the earlier time; None where that is not known.
    """

    first: int | None
    end: int
    compared_end: int | None = None
