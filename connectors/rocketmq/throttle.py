"""A limit on the rate of reads, to protect brokers."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

_BURST_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class RateLimit:
    """A limit of messages and bytes per second.

    Attributes:
        messages: maximum number of messages; None for no limit.
        bytes: maximum number of bytes; None for no limit.
    """

    messages: float | None = None
    bytes: float | None = None

    def share_per_reader(self, reader_count: int) -> RateLimit:
        """Return the part of the rate for one of several parallel readers."""
        return RateLimit(
            None if self.messages is None else self.messages / reader_count,
            None if self.bytes is None else self.bytes / reader_count,
        )


class Throttle:
    """A limiter of the rate at which one reader reads.

    Args:
        rate: the limit.
        clock: monotonic clock in seconds.
        sleep: waits for a number of seconds.
    """

    def __init__(
        self,
        rate: RateLimit,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._rate, self._clock, self._sleep = rate, clock, sleep
        self._next = clock()

    def record_and_wait(self, message_count: int, byte_count: int) -> None:
        """Record the messages and bytes just read, and wait until the rate allows further reads."""
        seconds = 0.0
        if self._rate.messages is not None:
            seconds = message_count / self._rate.messages
        if self._rate.bytes is not None:
            seconds = max(seconds, byte_count / self._rate.bytes)
        if not seconds:
            return
        now = self._clock()
        # Time that was not used counts for a moment only: otherwise a burst would follow a pause.
        self._next = max(self._next, now - _BURST_SECONDS) + seconds
        if self._next > now:
            self._sleep(self._next - now)
