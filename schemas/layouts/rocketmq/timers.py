"""Files of a broker's message timers (5.x): log, wheel, and checkpoint.

Timer log `timerlog/<20 digits>`: units for messages in the order in which they entered the timer wheel (5.x).

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

Timer wheel `timerwheel`: for each second (`timerPrecisionMs`), the units of the timer log that are due (5.x).

    offset  size  field
         0     8  time         of the slot, in units of the precision: 1700000000 for a precision of 1,000 ms
         8     8  first_pos    position in the timer log of the slot's first unit
        16     8  last_pos     position of its last one, which `prev_pos` links to all others
        24     4  num          number of messages, minus one for each cancellation
        28     4  magic        0

The file has 1,209,600 such slots, two weeks of seconds, whatever the precision; the slot of a time is the time modulo
that number. A slot with another time than the requested one is empty. A broker writes the whole file every second, and
corrects it from the timer log when it starts. Source: org.apache.rocketmq.store.timer.TimerWheel, Slot (5.5.0).

File `config/timercheck`: a broker's (5.x) progress with the messages of its timer topic.

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

from collections.abc import Iterator
from dataclasses import astuple, dataclass
from typing import NamedTuple

from commitlake.schemas.layouts.base import PAGE_SIZE, Field, Layout, ReadableBuffer, pad_to_page, parse_file_head

LOG_FOLDER = "timerlog"
DEFAULT_LOG_FILE_SIZE = 100 << 20
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
MIN_LOG_FILE_SIZE = UNIT.size + BLANK.size
WHEEL_NAME = "timerwheel"
DEFAULT_PRECISION_MS = 1000
SLOTS = 2 * 7 * 86_400
CHECKPOINT_SIZE = PAGE_SIZE
CHECKPOINT_PATH = "config/timercheck"


class TimerUnit(NamedTuple):
    """Unit of the timer log: the entry of one message, or of a cancellation."""

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
        """Time of the wheel slot that contains the unit, ms since 1970."""
        return self.write_time_ms + self.delay_ms


def serialize_timer_unit(unit: TimerUnit) -> bytes:
    """Return the unit's 52 bytes."""
    return UNIT.pack(UNIT.size, *unit)


def serialize_timer_blank(bytes_left: int) -> bytes:
    """Return the blank that fills the last `bytes_left` bytes of a timer log file."""
    return BLANK.pack(bytes_left, 0, BLANK_MAGIC)


def parse_timer_units(data: ReadableBuffer) -> Iterator[TimerUnit]:
    """Yield the units (entries) of a timer log file up to its blank or the first invalid unit."""
    whole = memoryview(data)[: len(data) // UNIT.size * UNIT.size]
    for size, *values in UNIT.struct.iter_unpack(whole):
        unit = TimerUnit(*values)
        if size != UNIT.size or unit.magic & ~_VALID_MAGIC_BITS:
            return
        yield unit


SLOT = Layout(
    Field("time", "q", "time of the slot, in units of the precision"),
    Field("first_pos", "q", "position of the first unit in the timer log, bytes"),
    Field("last_pos", "q", "position of the last unit, bytes"),
    Field("num", "i", "number of messages, minus one for each cancellation"),
    Field("magic", "i", "0"),
)
assert SLOT.size == 32
WHEEL_SIZE = SLOTS * SLOT.size
assert WHEEL_SIZE == 38_707_200


class TimerSlot(NamedTuple):
    """Slot of the timer wheel: the waiting messages of one delivery time."""

    time: int
    first_pos: int
    last_pos: int
    num: int
    magic: int = 0


def slot_position(slot_time: int) -> int:
    """Return the byte position in the wheel of the slot for a time."""
    return slot_time % SLOTS * SLOT.size


def parse_timer_slot(buffer: ReadableBuffer, slot_time: int) -> TimerSlot | None:
    """Parse the slot of a time; return None if it is empty."""
    slot = TimerSlot(*SLOT.unpack(buffer, slot_position(slot_time)))
    return slot if slot.time == slot_time else None


def serialize_timer_slot(slot: TimerSlot) -> bytes:
    """Return the slot's 32 bytes."""
    return SLOT.pack(*slot)


CHECKPOINT = Layout(
    Field("last_read_time_ms", "q", "slots of the wheel before this time were delivered, ms"),
    Field("last_timer_log_flush_pos", "q", "end of the timer log on disk, bytes"),
    Field("last_timer_queue_offset", "q", "next message of the timer topic's queue"),
    Field("master_timer_queue_offset", "q", "the same of the master"),
    Field("state_version", "q", "state version of the controller; 0 without one"),
    Field("timestamp", "q", "time of the last change, ms"),
    Field("counter", "q", "number of changes"),
)
assert CHECKPOINT.size == 56


@dataclass(frozen=True, slots=True)
class TimerCheckpoint:
    """Values of the timers' checkpoint file; all are 0 in a new store."""

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
    return TimerCheckpoint(*parse_file_head(CHECKPOINT, "timercheck", data))


def serialize_timer_checkpoint(checkpoint: TimerCheckpoint) -> bytes:
    """Return the content of the whole checkpoint file, 4,096 bytes."""
    return pad_to_page(CHECKPOINT.pack(*astuple(checkpoint)))
