"""IndexFile: a hash table on disk, from `topic#key` to physical offsets.

    40 bytes header | 4 bytes x slots | 20 bytes x entries

A slot holds the number of the newest entry of its chain (0: empty); an entry holds the number of the one before it.
Entry 0 is never used. Slots and entries are settings of the broker (5,000,000 and 20,000,000) that the file does not
record; a file's size gives them back where their ratio is the default 1:4. Hashes only are stored: whoever looks up
must compare topic and key in the record. The file's name is its time of creation, in the broker's time zone. After a
crash the counts in the header can be behind the entries.

A record is entered under its UNIQ_KEY, then under each of its KEYS, and by brokers since 5.5 also under its TAGS, as
the key `T#tags`; a rolled back one not at all. Source: org.apache.rocketmq.store.index.IndexFile, IndexHeader,
IndexService.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from commitlake.schemas.layouts.base import Field, Layout, ReadableBuffer
from commitlake.schemas.layouts.errors import LayoutError
from commitlake.schemas.layouts.rocketmq.hashing import java_hash, java_hash_behind

DEFAULT_SLOTS = 5_000_000
DEFAULT_ENTRIES = 20_000_000
TAGS_KEY_PREFIX = "T#"

HEADER = Layout(
    Field("begin_timestamp", "q", "store time of the first entry, ms"),
    Field("end_timestamp", "q", "store time of the last entry, ms"),
    Field("begin_physical_offset", "q", "of the first entry's record, bytes"),
    Field("end_physical_offset", "q", "of the last entry's record, bytes"),
    Field("used_slots", "i", "slots that are not empty"),
    Field("index_count", "i", "entries + 1; 0 in a file never flushed means 1"),
)
SLOT = Layout(Field("newest_entry", "i", "number of the chain's newest entry, 0 for none"))
ENTRY = Layout(
    Field("key_hash", "i", "abs(hashCode) of topic#key"),
    Field("physical_offset", "q", "of the record, bytes"),
    Field("time_diff", "i", "store time less the header's begin, whole seconds"),
    Field("previous_entry", "i", "number of the next older entry in the chain, 0 at its end"),
)
assert (HEADER.size, SLOT.size, ENTRY.size) == (40, 4, 20)
assert HEADER.offset_of("used_slots") == 32
_INT_MAX = 2**31 - 1
_UNIQUE_KEY_LENGTH, _CLIENT_LENGTH = 32, 20


class Header(NamedTuple):
    """What the entries of a file span."""

    begin_timestamp: int
    end_timestamp: int
    begin_physical_offset: int
    end_physical_offset: int
    used_slots: int
    index_count: int


class Entry(NamedTuple):
    """One key of one record."""

    key_hash: int
    physical_offset: int
    time_diff: int
    previous_entry: int


class Geometry(NamedTuple):
    """Slots and entries of a file, and what follows from them."""

    slots: int = DEFAULT_SLOTS
    entries: int = DEFAULT_ENTRIES

    @property
    def file_size(self) -> int:
        """Bytes of a file."""
        return HEADER.size + SLOT.size * self.slots + ENTRY.size * self.entries

    def slot_position(self, slot: int) -> int:
        """Where a slot stands in the file."""
        return HEADER.size + SLOT.size * slot

    def entry_position(self, number: int) -> int:
        """Where an entry stands in the file."""
        return HEADER.size + SLOT.size * self.slots + ENTRY.size * number


MAX_FILE_BYTES = (1 << 31) - 1
"""A broker computes a file's size as an int."""


def geometry_of(file_size: int) -> Geometry:
    """Slots and entries of a file with the default ratio of 1:4.

    Raises:
        LayoutError: if no such file has this size; the broker's settings must then be given.
    """
    unit = SLOT.size + 4 * ENTRY.size
    slots, rest = divmod(file_size - HEADER.size, unit)
    if file_size > MAX_FILE_BYTES:
        raise LayoutError("file size", 0, f"at most {MAX_FILE_BYTES} bytes", f"{file_size} bytes")
    if rest or slots < 1:
        raise LayoutError("file size", 0, f"{HEADER.size} + {unit} x slots bytes", f"{file_size} bytes")
    return Geometry(slots, 4 * slots)


def parse_header(buffer: ReadableBuffer) -> Header:
    """The header of a file.

    Raises:
        LayoutError: if the file is shorter than a header.
    """
    if len(buffer) < HEADER.size:
        raise LayoutError("header", 0, f"{HEADER.size} bytes", f"{len(buffer)} bytes")
    return Header(*HEADER.unpack(buffer))


def parse_entry(buffer: ReadableBuffer, offset: int) -> Entry:
    """The entry at `offset`; the caller has checked that 20 bytes are there."""
    return Entry(*ENTRY.unpack(buffer, offset))


def serialize_header(header: Header) -> bytes:
    """The header's 40 bytes."""
    return HEADER.pack(*header)


def serialize_entry(entry: Entry) -> bytes:
    """The entry's 20 bytes."""
    return ENTRY.pack(*entry)


def key_hash(topic: str, key: str) -> int:
    """What the index stores for a key: abs(hashCode), and 0 for the one value that has no abs."""
    # Of the UNIQ_KEYs that one client makes, the first part is the same.
    head = key[:_CLIENT_LENGTH] if len(key) == _UNIQUE_KEY_LENGTH else ""
    value = abs(java_hash_behind(_head_hash(topic, head), key[len(head) :]))
    return 0 if value > _INT_MAX else value


@lru_cache(maxsize=4096)
def _head_hash(topic: str, head: str) -> int:
    return java_hash(f"{topic}#{head}")


def tags_key(tags: str) -> str:
    """The key under which brokers since 5.5 enter a record's TAGS."""
    return f"{TAGS_KEY_PREFIX}{tags}"


def time_diff_seconds(store_timestamp: int, begin_timestamp: int) -> int:
    """What an entry stores of its time: whole seconds since the file's begin, clamped to an int32."""
    if begin_timestamp <= 0 or store_timestamp < begin_timestamp:
        return 0
    return min((store_timestamp - begin_timestamp) // 1000, _INT_MAX)
