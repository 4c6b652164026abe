"""Avoidance of brokers that were slow or failed, as in RocketMQ's client.

A broker is avoided for longer, the longer its answer took, unless there is no other. Source: MQFaultStrategy,
LatencyFaultToleranceImpl (5.5.0).
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from commitlake.schemas.remoting.routes import MessageQueue

LATENCY_MAX_MS = (50, 100, 550, 1800, 3000, 5000, 15000)
NOT_AVAILABLE_MS = (0, 0, 2000, 5000, 6000, 10000, 30000)
"""Time of avoidance for a latency of at least the value at the same index in LATENCY_MAX_MS."""
FAILED_LATENCY_MS = 10_000
"""Latency that is assumed for a broker that failed."""


def not_available_ms(latency_ms: float) -> int:
    """Return how long a broker is avoided after an answer with this latency."""
    for latency, duration in zip(reversed(LATENCY_MAX_MS), reversed(NOT_AVAILABLE_MS), strict=True):
        if latency_ms >= latency:
            return duration
    return 0


class Faults:
    """The recent failures and latencies of brokers; thread-safe. Times are in ms on the caller's clock."""

    def __init__(self) -> None:
        self._available_from: dict[str, float] = {}
        self._lock = threading.Lock()

    def note(self, broker_name: str, latency_ms: float, now_ms: float, *, failed: bool = False) -> None:
        """Record an answer's latency, or a failure."""
        duration = not_available_ms(FAILED_LATENCY_MS if failed else latency_ms)
        with self._lock:
            if duration:
                self._available_from[broker_name] = now_ms + duration
            else:
                self._available_from.pop(broker_name, None)

    def is_available(self, broker_name: str, now_ms: float) -> bool:
        """Return True if the broker may be chosen."""
        return self._available_from.get(broker_name, 0) <= now_ms


def choose_queue(
    queues: Sequence[MessageQueue], turn: int, last_broker: str | None, faults: Faults | None, now_ms: float
) -> MessageQueue:
    """Choose the queue of a message in rotation, if possible of an available broker other than the last attempt's.

    Args:
        queues: the queues, at least one.
        turn: counter of choices.
        last_broker: broker of the last attempt.
        faults: known latencies of brokers; None to ignore them.
        now_ms: current time on the clock of `faults`.
    """
    count = len(queues)
    first = queues[turn % count]
    if _is_fit(first, last_broker, faults, now_ms):
        return first
    others = [queues[(turn + step) % count] for step in range(count)]
    for queue in others:
        if _is_fit(queue, last_broker, faults, now_ms):
            return queue
    return next((queue for queue in others if queue.broker_name != last_broker), first)


def _is_fit(queue: MessageQueue, last_broker: str | None, faults: Faults | None, now_ms: float) -> bool:
    name = queue.broker_name
    return name != last_broker and (faults is None or faults.is_available(name, now_ms))
