"""Timer wheel `timerwheel`: for each second (`timerPrecisionMs`), the units of the timer log that are due (5.x).

    offset  size  field
         0     8  time         of the slot, in units of the precision: 1700000000 for a precision of 1,000 ms
         8     8  first_pos    position in the timer log of the slot's first unit
        16     8  last_pos     position of its last one, which `prev_pos` links to all others
        24     4  num          number of messages, minus one for each cancellation
        28     4  magic        0

The file has 1,209,600 such slots, two weeks of seconds, whatever the precision; the slot of a time is the time modulo
that number. A slot with another time than the requested one is empty. A broker writes the whole file every second, and
corrects it from the timer log when it starts. Source: org.apache.rocketmq.store.timer.TimerWheel, Slot (5.5.0).
"""

from __future__ import annotations

from typing import NamedTuple

from commitlake.schemas.layouts.base import Field, Layout, ReadableBuffer

FILE_NAME = "timerwheel"
DEFAULT_PRECISION_MS = 1000
SLOTS = 2 * 7 * 86_400

SLOT = Layout(
    Field("time", "q", "time of the slot, in units of the precision"),
    Field("first_pos", "q", "position of the first unit in the timer log, bytes"),
    Field("last_pos", "q", "position of the last unit, bytes"),
    Field("num", "i", "number of messages, minus one for each cancellation"),
    Field("magic", "i", "0"),
)
assert SLOT.size == 32
FILE_SIZE = SLOTS * SLOT.size
assert FILE_SIZE == 38_707_200


class TimerSlot(NamedTuple):
    """Slot of the wheel."""

    time: int
    first_pos: int
    last_pos: int
    num: int
    magic: int = 0


def slot_position(time: int) -> int:
    """Return the position of the slot of a time."""
    return time % SLOTS * SLOT.size


def parse_timer_slot(buffer: ReadableBuffer, time: int) -> TimerSlot | None:
    """Parse the slot of a time; return None if it is empty."""
    slot = TimerSlot(*SLOT.unpack(buffer, slot_position(time)))
    return slot if slot.time == time else None


def serialize_timer_slot(slot: TimerSlot) -> bytes:
    """Return the slot's 32 bytes."""
    return SLOT.pack(*slot)
