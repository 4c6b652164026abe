"""UNIQ_KEY, the id that a producer gives a message before sending it, in the form of Java's client.

    4 or 16 bytes   the producer's address
    2               its process id, lower half
    4               a number of the process; in Java, its class loader's
    4               ms since the beginning of the month; after 24.8 days the highest bit is set, as in Java's int
    2               a counter

In hexadecimal, this is 32 or 56 digits. Source: MessageClientIDSetter (5.5.0).
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import random
import struct
import threading
import time

import numpy as np
import pyarrow as pa

_HEAD = struct.Struct(">Hi")
_TAIL = struct.Struct(">IH")
_COUNTER_MASK = 0xFFFF
_HEX = np.frombuffer(b"".join(b"%02X" % number for number in range(256)), np.uint8).reshape(256, 2)


class UniqueKeys:
    """A thread-safe generator of values of UNIQ_KEY."""

    def __init__(self, ip: str, *, process_id: int | None = None) -> None:
        """Create a generator for a producer at an address."""
        number = random.SystemRandom().getrandbits(31)
        process = (os.getpid() if process_id is None else process_id) & 0xFFFF
        self._prefix = (ipaddress.ip_address(ip.partition("%")[0]).packed + _HEAD.pack(process, number)).hex().upper()
        self._lock = threading.Lock()
        self._counter = 0
        self._month_begin_ms = 0
        self._month_end_ms = 0

    def next(self, now_ms: int | None = None) -> str:
        """Return an id, by default for the current time."""
        now = time.time_ns() // 1_000_000 if now_ms is None else now_ms
        with self._lock:
            if not self._month_begin_ms <= now < self._month_end_ms:
                self._month_begin_ms, self._month_end_ms = _month_bounds(now)
            self._counter = counter = (self._counter + 1) & _COUNTER_MASK
        return self._prefix + _TAIL.pack(now - self._month_begin_ms, counter).hex().upper()

    def next_batch(self, count: int, now_ms: int | None = None) -> pa.Array:
        """Return the given number of new ids as an Arrow array of strings."""
        now = time.time_ns() // 1_000_000 if now_ms is None else now_ms
        with self._lock:
            if not self._month_begin_ms <= now < self._month_end_ms:
                self._month_begin_ms, self._month_end_ms = _month_bounds(now)
            first, self._counter = self._counter + 1, self._counter + count
            elapsed = now - self._month_begin_ms
        numbers = np.arange(first, first + count, dtype=np.int64)
        tails = np.empty(count, np.dtype([("ms", ">u4"), ("counter", ">u2")]))
        # Once the counter is used up, ids get later milliseconds.
        tails["ms"] = elapsed + numbers // (_COUNTER_MASK + 1) - first // (_COUNTER_MASK + 1)
        tails["counter"] = numbers & _COUNTER_MASK
        prefix = np.frombuffer(self._prefix.encode(), np.uint8)
        text = np.empty((count, len(prefix) + 2 * _TAIL.size), np.uint8)
        text[:, : len(prefix)] = prefix
        text[:, len(prefix) :] = _HEX[tails.view(np.uint8).reshape(count, _TAIL.size)].reshape(count, -1)
        offsets = np.arange(count + 1, dtype=np.int32) * text.shape[1]
        return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(text)])


def _month_bounds(now_ms: int) -> tuple[int, int]:
    """Return the start of the current and of the next month, in local time as in Java, as ms since 1970."""
    moment = datetime.datetime.fromtimestamp(now_ms / 1000).astimezone()
    # Without a zone, so that `timestamp` uses the clock's offset of that day, which may not be today's.
    begin = moment.replace(day=1, hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
    # 32 days after the first of a month are always in the next month.
    end = (begin + datetime.timedelta(days=32)).replace(day=1)
    return int(begin.timestamp() * 1000), int(end.timestamp() * 1000)
