"""File `config/timercheck`: a broker's (5.x) progress with the messages of its timer topic.

    offset  size  field
         0     8  last_read_time_ms           slots of the wheel before this time were delivered
         8     8  last_timer_log_flush_pos    bytes of the timer log that are on disk
        16     8  last_timer_queue_offset     messages of the timer topic's queue before this one are in the timer log
        24     8  master_timer_queue_offset   the same of the master; on a master itself, not smaller
        32    24  version                     state version, time of the last change in ms, number of changes

The file has 4,096 bytes, the rest are zeros; brokers before 5.1 end at byte 32. A starting broker resumes with the
message after the last one in the timer log, but at most at `master_timer_queue_offset`; `last_timer_queue_offset` only
counts if the timer log is empty. Source: org.apache.rocketmq.store.timer.TimerCheckpoint,
TimerMessageStore.recover (5.5.0).
"""

from __future__ import annotations

from dataclasses import astuple, dataclass

from commitlake.schemas.layouts.base import Field, Layout
from commitlake.schemas.layouts.page import PAGE_SIZE, parse_page, serialize_page

FILE_SIZE = PAGE_SIZE
PATH = "config/timercheck"

LAYOUT = Layout(
    Field("last_read_time_ms", "q", "slots of the wheel before this time were delivered, ms"),
    Field("last_timer_log_flush_pos", "q", "end of the timer log on disk, bytes"),
    Field("last_timer_queue_offset", "q", "next message of the timer topic's queue"),
    Field("master_timer_queue_offset", "q", "the same of the master"),
    Field("state_version", "q", "state version of the controller; 0 without one"),
    Field("timestamp", "q", "time of the last change, ms"),
    Field("counter", "q", "number of changes"),
)
assert LAYOUT.size == 56


@dataclass(frozen=True, slots=True)
class TimerCheckpoint:
    """Values of the file; a new store has zeros."""

    last_read_time_ms: int = 0
    last_timer_log_flush_pos: int = 0
    last_timer_queue_offset: int = 0
    master_timer_queue_offset: int = 0
    state_version: int = 0
    timestamp: int = 0
    counter: int = 0


def parse_timer_checkpoint(data: bytes) -> TimerCheckpoint:
    """Parse the checkpoint in a file's bytes.

    Raises:
        LayoutError: if the file is shorter than its fields.
    """
    return TimerCheckpoint(*parse_page(LAYOUT, "timercheck", data))


def serialize_timer_checkpoint(checkpoint: TimerCheckpoint) -> bytes:
    """Return the whole file, 4,096 bytes."""
    return serialize_page(LAYOUT.pack(*astuple(checkpoint)))
