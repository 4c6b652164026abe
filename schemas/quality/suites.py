"""The suites that every archive run is judged by.

CRITICAL is what cannot be in a log that a broker wrote and we read rightly: to commit it would be to archive a mistake.
WARNING is what can be, and somebody should know. What is usual in a healthy store breaks nothing: queues whose archive
begins in their middle, half messages, delays, retries, dead letters, topics that were deleted and made anew, inner
batches, offsets lost in a range that is damaged and recorded as such.
"""

from __future__ import annotations

from commitlake.schemas.quality.operation import QUEUES, TIMES, TOPICS
from commitlake.schemas.quality.soundness import BODIES, ROWS, RUN, WINDOWS

SUITES = (ROWS, BODIES, WINDOWS, QUEUES, TIMES, TOPICS, RUN)
