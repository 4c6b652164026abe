"""Limits and results of pulls.

Each layout has its own loop. RocketMQ's filters by queue entries and copies records as they are; JMQ's parses each
record to convert it to one that RocketMQ's clients can read. Source: DefaultMessageStore.getMessage, isTheBatchFull.
"""

from __future__ import annotations

import math
import time
from typing import NamedTuple

from commitlake.broker_lite.stores.engine.reading import GetStatus

MAX_EXAMINED = 800
"""Maximum number of entries that one pull examines if its filter accepts few of them."""


class PullLimits(NamedTuple):
    """Limits of one pull; a single record may be larger.

    Attributes:
        messages: maximum number of messages.
        bytes: maximum size of all records together.
        deadline: time by `time.perf_counter` at which the pull ends with what it has; it examines at least one entry.
    """

    messages: int
    bytes: int
    deadline: float = math.inf

    @property
    def is_over(self) -> bool:
        """Return True if the deadline has passed."""
        return time.perf_counter() >= self.deadline


class PullResult(NamedTuple):
    """Result of a pull.

    Attributes:
        status: FOUND, or the reason why there are no records.
        records: records in the form for clients, in order of their queue offsets.
        next_offset: queue offset to pull from next.
        min_offset: queue offset of the queue's first message.
        max_offset: queue offset of the queue's next message.
        is_cut: True if the deadline passed before the pull had examined all its entries.
    """

    status: GetStatus
    records: list[bytes]
    next_offset: int
    min_offset: int
    max_offset: int
    is_cut: bool = False
