"""Limits the rate of a replay: messages per second, the original pace, and pauses.

All sending threads share one object. A limit may change while they send.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from commitlake.connectors.numpy_arrays import Array

_BURST_SECONDS = 0.1
_LOOK_SECONDS = 0.2


class SendPace:
    """Rate limit that delays messages until they may be sent; thread-safe.

    Args:
        rate: Messages per second; 0 for no limit.
        speed: Factor of the original pace, by store time: 1 is the same; 0 for no such limit.
        share: Part of each rate that applies here; other processes have the others.
        clock: Returns seconds of a monotonic clock.
        sleep: Waits for a number of seconds.
    """

    def __init__(
        self,
        rate: float = 0,
        speed: float = 0,
        *,
        share: float = 1,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._share, self._total_rate = share, rate
        self._speed, self._clock, self._sleep = speed, clock, sleep
        self._lock = threading.Lock()
        self._next = clock()
        self._began: tuple[float, int] | None = None
        self._is_stopped = False
        self._is_paused = False
        self._changes = 0

    @property
    def rate(self) -> float:
        """The limit of this process in messages per second; 0 for no limit."""
        return self._total_rate * self._share

    @property
    def total_rate(self) -> float:
        """The limit in messages per second for all processes of the replay together; 0 for no limit."""
        return self._total_rate

    @property
    def speed(self) -> float:
        """Speed relative to the messages' store times, where 1 is the original pace; 0 for no such limit."""
        return self._speed

    def set_rate(self, rate: float) -> None:
        """Change the limit for all processes together, in messages per second.

        Waiting threads notice the change within a fifth of a second.
        """
        with self._lock:
            self._total_rate = rate
            self._restart_clock()

    def set_speed(self, speed: float) -> None:
        """Change the speed relative to the messages' store times, from the next message on."""
        with self._lock:
            self._speed = speed
            self._restart_clock()

    def set_paused(self, *, is_paused: bool) -> None:
        """Pause sending, or continue if `is_paused` is False; the lost time is not made up for."""
        with self._lock:
            self._is_paused = is_paused
            if not is_paused:
                self._restart_clock()

    def restart_speed_clock(self) -> None:
        """Measure the speed from the next message on, so that idle time is not made up for."""
        with self._lock:
            if self._speed:
                self._began = None
                self._changes += 1

    def _restart_clock(self) -> None:
        """Restart the measurement of rate and speed, and make waiting threads compute their time of sending again."""
        self._next, self._began = self._clock(), None
        self._changes += 1

    def stop(self) -> None:
        """Stop sending: `wait` returns False from now on."""
        self._is_stopped = True

    @property
    def is_stopped(self) -> bool:
        """True after `stop` was called."""
        return self._is_stopped

    def count_sendable_now(self, store_times_ms: Array) -> int:
        """Return how many of the next messages may be sent together without exceeding the pace; at least 1.

        Args:
            store_times_ms: Original store times of the next messages, in the order in which they are sent.
        """
        rate, speed, most = self.rate, self._speed, len(store_times_ms)
        if rate:
            most = min(most, int(rate * _BURST_SECONDS))
        if speed:
            is_later = store_times_ms[:most] > store_times_ms[0] + 1000 * speed * _BURST_SECONDS
            most = int(is_later.argmax()) if is_later.any() else most
        return max(1, most)

    def wait(self, message_count: int, first_store_time_ms: int) -> bool:
        """Wait until the next messages may be sent.

        Args:
            message_count: Number of messages.
            first_store_time_ms: Original store time of the first message, ms since 1970.

        Returns:
            True if they may be sent; False if the replay is to stop.
        """
        due, changes = self._reserve_time(message_count, first_store_time_ms)
        while not self._is_stopped:
            if changes != self._changes:
                due, changes = self._reserve_time(message_count, first_store_time_ms)
            left = due - self._clock()
            if left <= 0 and not self._is_paused:
                return True
            self._sleep(min(max(left, 0.001), _LOOK_SECONDS) if not self._is_paused else _LOOK_SECONDS)
        return False

    def _reserve_time(self, message_count: int, first_store_time_ms: int) -> tuple[float, int]:
        """Return the clock time at which messages may be sent, and how often the pace has changed so far."""
        with self._lock:
            now = self._clock()
            due = now
            if self.rate:
                # Only a moment is made up for, so that a pause is not followed by a burst.
                due = max(self._next, now - _BURST_SECONDS)
                self._next = due + message_count / self.rate
            if self._speed:
                if self._began is None:
                    self._began = (now, first_store_time_ms)
                began, first_ms = self._began
                due = max(due, began + (first_store_time_ms - first_ms) / 1000 / self._speed)
            return due, self._changes
