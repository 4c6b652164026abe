"""How much one pull gives, and what it answers.

Each layout has a loop of its own. RocketMQ's filters by a queue's entries and copies records as they are; JMQ's has to
parse each record, to make one that RocketMQ's clients can read. Source: DefaultMessageStore.getMessage, isTheBatchFull.
"""

from __future__ import annotations

import math
import time
from typing import NamedTuple

from commitlake.broker_lite.stores.engine.reading import GetStatus

MAX_EXAMINED = 800
"""Entries that one pull looks at where a filter wants few of them."""


class PullLimits(NamedTuple):
    """How much one pull gives; a single record may be larger.

    Attributes:
        messages: how many at most.
        bytes: of all records together.
        deadline: by `time.perf_counter`, when the pull ends with what it has; at least one entry is examined.
    """

    messages: int
    bytes: int
    deadline: float = math.inf

    @property
    def is_over(self) -> bool:
        """Whether the deadline has come."""
        return time.perf_counter() >= self.deadline


class PullResult(NamedTuple):
    """Records of a queue.

    Attributes:
        status: whether there were any, and why not.
        records: as clients get them, in order of their queue offsets.
        next_offset: the queue offset to ask for next.
        min_offset: of the queue's first message that is kept.
        max_offset: of the queue's next message.
        is_cut: whether the deadline came before everything that one pull examines was examined.
    """

    status: GetStatus
    records: list[bytes]
    next_offset: int
    min_offset: int
    max_offset: int
    is_cut: bool = False
