"""How fast a replay sends: a limit of messages per second, the pace of the first time, and pauses.

All threads that send share one object. A limit may change while they send.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

_BURST_SECONDS = 0.1
_LOOK_SECONDS = 0.2


class Pace:
    """Lets messages through when it is their time; thread-safe.

    Args:
        rate: Messages per second; 0 for no limit.
        speed: Of the pace at which the messages were stored: 1 is the same; 0 for no such limit.
        clock: Seconds that only rise.
        sleep: Waits for so many seconds.
    """

    def __init__(
        self,
        rate: float = 0,
        speed: float = 0,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._rate, self._speed, self._clock, self._sleep = rate, speed, clock, sleep
        self._lock = threading.Lock()
        self._next = clock()
        self._began: tuple[float, int] | None = None
        self._is_stopped = False
        self._is_paused = False

    @property
    def rate(self) -> float:
        """The limit; 0 where there is none."""
        return self._rate

    def set_rate(self, rate: float) -> None:
        """Change the limit; what waits already takes notice within a fifth of a second."""
        with self._lock:
            self._rate = rate
            self._next = self._clock()

    def pause(self, *, is_paused: bool) -> None:
        """Let nothing through until this is called with False."""
        self._is_paused = is_paused

    def stop(self) -> None:
        """Let nothing through any longer: `wait` gives False."""
        self._is_stopped = True

    @property
    def is_stopped(self) -> bool:
        """Whether nothing is let through any longer."""
        return self._is_stopped

    def fitting(self, messages: int) -> int:
        """Return how many messages may go together, so that the pace is even; at least 1."""
        rate = self._rate
        return messages if not rate else max(1, min(messages, int(rate * _BURST_SECONDS)))

    def wait(self, messages: int, stored_ms: int) -> bool:
        """Wait until some messages may be sent.

        Args:
            messages: How many.
            stored_ms: When the first of them was stored at first, ms since 1970.

        Returns:
            Whether they may; False once the replay is to stop.
        """
        due = self._reserve(messages, stored_ms)
        while not self._is_stopped:
            left = due - self._clock()
            if left <= 0 and not self._is_paused:
                return True
            self._sleep(min(max(left, 0.001), _LOOK_SECONDS) if not self._is_paused else _LOOK_SECONDS)
            if self._rate == 0 and not self._speed:
                due = self._clock()
        return False

    def _reserve(self, messages: int, stored_ms: int) -> float:
        with self._lock:
            now = self._clock()
            due = now
            if self._rate:
                due = max(self._next, now - _BURST_SECONDS)
                self._next = due + messages / self._rate
            if self._speed:
                if self._began is None:
                    self._began = (now, stored_ms)
                began, first_ms = self._began
                due = max(due, began + (stored_ms - first_ms) / 1000 / self._speed)
            return due
