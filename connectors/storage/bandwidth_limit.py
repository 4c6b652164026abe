"""Limit for the bandwidth that an agent uses."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from typing import Any

_BURST_SECONDS = 0.25
_SENT_BLOCK_BYTES = 1 << 16
"""The HTTP client reads a body in blocks of at most this size to send it, and in larger ones to sign it."""


class BandwidthLimit:
    """Limit of the bandwidth in bytes per second, or no limit.

    Args:
        rate: bytes per second, or None.
        clock: a clock that never goes back, in seconds.
        sleep: function that waits.
    """

    def __init__(
        self,
        rate: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._rate, self._clock, self._sleep = rate, clock, sleep
        self._free_at = clock()

    def wait_for_bytes(self, byte_count: int) -> None:
        """Wait until `byte_count` more bytes may be sent."""
        if self._rate is None:
            return
        now = self._clock()
        # Time that was not used counts for a moment only: otherwise a burst of any size would follow a long pause.
        self._free_at = max(self._free_at, now - _BURST_SECONDS) + byte_count / self._rate
        if self._free_at > now:
            self._sleep(self._free_at - now)

    def wait_in_steps(self, byte_count: int) -> None:
        """Wait until `byte_count` more bytes may be sent, in small steps, so that a request to stop is noticed soon."""
        while byte_count > 0:
            self.wait_for_bytes(min(byte_count, self.slice_size_bytes))
            byte_count -= self.slice_size_bytes

    @property
    def slice_size_bytes(self) -> int:
        """Number of bytes to send at a time, so that even a low rate is steady."""
        return 1 << 20 if self._rate is None else max(4096, min(1 << 20, int(self._rate * _BURST_SECONDS)))


class PacedBody(io.BytesIO):
    """Body of a request that is sent within the bandwidth limit."""

    def __init__(self, data: bytes, pace: BandwidthLimit) -> None:
        super().__init__(data)
        self._pace = pace

    def read(self, size: int | None = -1, /) -> bytes:
        """Read bytes of the body; if they are about to be sent, wait as the bandwidth limit requires."""
        data = super().read(size)
        if size is not None and 0 < size <= _SENT_BLOCK_BYTES:
            self._pace.wait_for_bytes(len(data))
        return data

    def __len__(self) -> int:
        return len(self.getbuffer())

    def __iter__(self) -> Any:
        while data := self.read(_SENT_BLOCK_BYTES):
            yield data
