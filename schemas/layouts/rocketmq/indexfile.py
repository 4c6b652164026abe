"""IndexFile: a hash table on disk from `topic#key` to physical offsets.

    40 bytes header | 4 bytes x slots | 20 bytes x entries

A slot contains the number of the newest entry of its chain (0: empty); an entry contains the number of the previous
one. Entry 0 is never used. The numbers of slots and entries are settings of the broker (5,000,000 and 20,000,000) that
the file does not contain; they follow from the file's size if their ratio is the default 1:4. Only hashes are stored,
so a reader must compare topic and key with the record. The file's name is its time of creation in the broker's time
zone. After a crash, the counts in the header may be too small.

A record is entered under its UNIQ_KEY, then under each of its KEYS, and by brokers since 5.5 also under its TAGS, as
the key `T#tags`; a rolled-back record is not entered. Source: org.apache.rocketmq.store.index.IndexFile, IndexHeader,
IndexService.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from commitlake.schemas.layouts.base import Field, Layout, ReadableBuffer
from commitlake.schemas.layouts.errors import LayoutError
from commitlake.schemas.layouts.rocketmq.key_hashes import extend_java_hash, java_hash

DEFAULT_SLOTS = 5_000_000
DEFAULT_ENTRIES = 20_000_000
TAGS_KEY_PREFIX = "T#"

HEADER = Layout(
    Field("begin_timestamp", "q", "store time of the first entry, ms"),
    Field("end_timestamp", "q", "store time of the last entry, ms"),
    Field("begin_physical_offset", "q", "physical offset of the first entry's record, bytes"),
    Field("end_physical_offset", "q", "physical offset of the last entry's record, bytes"),
    Field("used_slots", "i", "number of slots that are not empty"),
    Field("index_count", "i", "number of entries + 1; 0 in a file that was never flushed"),
)
SLOT = Layout(Field("newest_entry", "i", "number of the chain's newest entry, 0 for none"))
ENTRY = Layout(
    Field("key_hash", "i", "abs(hashCode) of topic#key"),
    Field("physical_offset", "q", "physical offset of the record, bytes"),
    Field("time_diff", "i", "store time minus the header's begin, whole seconds"),
    Field("previous_entry", "i", "number of the next older entry in the chain, 0 at its end"),
)
assert (HEADER.size, SLOT.size, ENTRY.size) == (40, 4, 20)
assert HEADER.offset_of("used_slots") == 32
_INT_MAX = 2**31 - 1
_UNIQUE_KEY_LENGTH, _CLIENT_LENGTH = 32, 20


class Header(NamedTuple):
    """Header of an IndexFile, with the range of store times and physical offsets of its entries."""

    begin_timestamp: int
    end_timestamp: int
    begin_physical_offset: int
    end_physical_offset: int
    used_slots: int
    index_count: int


class IndexFileEntry(NamedTuple):
    """Entry of an IndexFile, which leads from the hash of a key to a record."""

    key_hash: int
    physical_offset: int
    time_diff: int
    previous_entry: int


class Geometry(NamedTuple):
    """Size of an IndexFile in slots and entries, from which byte positions are computed."""

    slots: int = DEFAULT_SLOTS
    entries: int = DEFAULT_ENTRIES

    @property
    def file_size(self) -> int:
        """Size of an IndexFile in bytes."""
        return HEADER.size + SLOT.size * self.slots + ENTRY.size * self.entries

    def slot_position(self, slot: int) -> int:
        """Return the position of a slot in the file."""
        return HEADER.size + SLOT.size * slot

    def entry_position(self, entry_number: int) -> int:
        """Return the position of an entry in the file."""
        return HEADER.size + SLOT.size * self.slots + ENTRY.size * entry_number


MAX_FILE_BYTES = (1 << 31) - 1
"""Maximum size of a file, because a broker computes it as an int."""


def geometry_of(file_size: int) -> Geometry:
    """Return the number of slots and entries of an IndexFile of this size, if they have the default ratio of 1:4.

    Raises:
        LayoutError: if the size does not match that ratio; then the broker's settings are needed.
    """
    unit = SLOT.size + 4 * ENTRY.size
    slots, rest = divmod(file_size - HEADER.size, unit)
    if file_size > MAX_FILE_BYTES:
        raise LayoutError("file size", 0, f"at most {MAX_FILE_BYTES} bytes", f"{file_size} bytes")
    if rest or slots < 1:
        raise LayoutError("file size", 0, f"{HEADER.size} + {unit} x slots bytes", f"{file_size} bytes")
    return Geometry(slots, 4 * slots)


def parse_header(buffer: ReadableBuffer) -> Header:
    """Parse the header in the first 40 bytes of an IndexFile.

    Raises:
        LayoutError: if the file is shorter than a header.
    """
    if len(buffer) < HEADER.size:
        raise LayoutError("header", 0, f"{HEADER.size} bytes", f"{len(buffer)} bytes")
    return Header(*HEADER.unpack(buffer))


def parse_entry(buffer: ReadableBuffer, offset: int) -> IndexFileEntry:
    """Parse the entry at `offset`; the caller ensures that it has 20 bytes."""
    return IndexFileEntry(*ENTRY.unpack(buffer, offset))


def serialize_header(header: Header) -> bytes:
    """Return the header's 40 bytes."""
    return HEADER.pack(*header)


def serialize_entry(entry: IndexFileEntry) -> bytes:
    """Return the entry's 20 bytes."""
    return ENTRY.pack(*entry)


def key_hash(topic: str, key: str) -> int:
    """Return the hash of a topic and key for the index: abs(hashCode), or 0 if the absolute value overflows."""
    # The UNIQ_KEYs of one client have the same first part.
    head = key[:_CLIENT_LENGTH] if len(key) == _UNIQUE_KEY_LENGTH else ""
    value = abs(extend_java_hash(_hash_key_prefix(topic, head), key[len(head) :]))
    return 0 if value > _INT_MAX else value


@lru_cache(maxsize=4096)
def _hash_key_prefix(topic: str, key_prefix: str) -> int:
    return java_hash(f"{topic}#{key_prefix}")


def tags_index_key(tags: str) -> str:
    """Return the index key for a record's TAGS, which brokers since 5.5 enter into the index."""
    return f"{TAGS_KEY_PREFIX}{tags}"


def time_diff_seconds(store_timestamp: int, begin_timestamp: int) -> int:
    """Return the time of an entry in stored form: whole seconds since the file's begin, clamped to an int32."""
    if begin_timestamp <= 0 or store_timestamp < begin_timestamp:
        return 0
    return min((store_timestamp - begin_timestamp) // 1000, _INT_MAX)
