"""UNIQ_KEY for messages that came without one, in the form that clients use: 16 bytes as hexadecimal digits.

    0  4  address, 4 bytes (the last 4 of an IPv6 address)
    4  2  process id
    6  4  random number of this process
    10 4  ms since the month began, UTC
    14 2  counter

Source: MessageClientIDSetter (5.5.0).
"""

from __future__ import annotations

import itertools
import os
import struct
from datetime import UTC, datetime

from commitlake.schemas.layouts.rocketmq.hosts import Host

_LAYOUT = struct.Struct(">4sH4sIH")
_OWN = os.urandom(4)
_counter = itertools.count()


def new_unique_key(host: Host, now_ms: int) -> str:
    """Return a new unique key."""
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    month = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    since_ms = now_ms - int(month.timestamp() * 1000)
    number = next(_counter) & 0xFFFF
    return _LAYOUT.pack(host.address[-4:], os.getpid() & 0xFFFF, _OWN, since_ms & 0xFFFFFFFF, number).hex().upper()
