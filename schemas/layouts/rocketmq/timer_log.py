"""Timer log `timerlog/<20 digits>`: units for messages in the order in which they entered the timer wheel (5.x).

    offset  size  field
         0     4  size               52
         4     8  prev_pos           position of the previous unit of the same slot, -1 for the first
        12     4  magic              1; + 2: parked again before its time (roll); + 4: cancels another message
        16     8  write_time_ms      time of entry, rounded down to the wheel's precision
        24     4  delay_ms           time from there to its slot
        28     8  physical_offset    of the record in the timer topic
        36     4  record_size        bytes
        40     4  topic_hash         Java's hash of the message's topic
        44     8  reserved           0

Files have a fixed size (100 MiB by default); positions count from the first byte of the first file ever. A unit that
would not leave 16 bytes after it goes to the next file, and a blank takes the rest: its size, 0, and the magic
CBD43194. The first invalid unit ends the log. Source: org.apache.rocketmq.store.timer.TimerLog,
TimerMessageStore.doEnqueue (5.5.0).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from commitlake.schemas.layouts.base import Field, Layout, ReadableBuffer

FOLDER = "timerlog"
DEFAULT_FILE_SIZE = 100 << 20
NO_POSITION = -1
MAGIC_DEFAULT = 1
MAGIC_ROLL = 2
MAGIC_DELETE = 4
BLANK_MAGIC = 0xCBD43194 - (1 << 32)
_VALID_MAGIC_BITS = 0xF

UNIT = Layout(
    Field("size", "i", "52"),
    Field("prev_pos", "q", "position of the previous unit of the slot, bytes; -1 for none"),
    Field("magic", "i", "1, with 2 for a roll and 4 for a cancellation"),
    Field("write_time_ms", "q", "time of entry, ms"),
    Field("delay_ms", "i", "time from there to its slot, ms"),
    Field("physical_offset", "q", "physical offset of the record, bytes"),
    Field("record_size", "i", "bytes"),
    Field("topic_hash", "i", "Java's hash of REAL_TOPIC"),
    Field("reserved", "q", "0"),
)
assert (UNIT.size, UNIT.offset_of("physical_offset")) == (52, 28)

BLANK = Layout(
    Field("size", "i", "bytes left in the file"),
    Field("prev_pos", "q", "0"),
    Field("magic", "i", "CBD43194"),
)
assert BLANK.size == 16
MIN_FILE_SIZE = UNIT.size + BLANK.size


class TimerUnit(NamedTuple):
    """Unit of a message in the timer log."""

    prev_pos: int
    magic: int
    write_time_ms: int
    delay_ms: int
    physical_offset: int
    record_size: int
    topic_hash: int
    reserved: int = 0

    @property
    def slot_ms(self) -> int:
        """Time of its slot in the wheel."""
        return self.write_time_ms + self.delay_ms


def serialize_timer_unit(unit: TimerUnit) -> bytes:
    """Return the unit's 52 bytes."""
    return UNIT.pack(UNIT.size, *unit)


def serialize_timer_blank(room: int) -> bytes:
    """Return the blank that fills the rest of a file with `room` bytes left."""
    return BLANK.pack(room, 0, BLANK_MAGIC)


def timer_units(data: ReadableBuffer) -> Iterator[TimerUnit]:
    """Yield the units of a file up to its blank or the first invalid unit."""
    whole = memoryview(data)[: len(data) // UNIT.size * UNIT.size]
    for size, *values in UNIT.struct.iter_unpack(whole):
        unit = TimerUnit(*values)
        if size != UNIT.size or unit.magic & ~_VALID_MAGIC_BITS:
            return
        yield unit
