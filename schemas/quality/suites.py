"""Suites that every archive run is checked with.

CRITICAL is a state that a broker's log cannot have if it was read correctly, so a commit would archive an error.
DAMAGE is a loss in single queues of a log that was read correctly: a commit archives all that is left.
WARNING is a possible state that operators should know about. Normal states of a healthy store break no expectation:
queues whose archive begins in the middle, half messages, delays, retries, dead letters, topics that were deleted and
created again, inner batches, offsets lost in a range that is recorded as damaged.
"""

from __future__ import annotations

from commitlake.schemas.quality.operation import QUEUES, TIMES, TOPICS
from commitlake.schemas.quality.soundness import BODIES, ROWS, RUN, WINDOWS

SUITES = (ROWS, BODIES, WINDOWS, QUEUES, TIMES, TOPICS, RUN)
