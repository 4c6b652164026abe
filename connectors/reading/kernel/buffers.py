"""Arrays to which the kernel writes a batch of columns, and their sizes.

All have a fixed size, whatever the log holds: a batch ends when one of them may not have room for the next record.
An `Interner` is kept for a whole split, so that a repeated value is stored once. The others are new for each batch,
because they become its columns.
"""

from __future__ import annotations

import mmap
from typing import NamedTuple

import numpy as np

from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.reading.kernel.memory_access import OVERWRITE, PADDING
from commitlake.connectors.reading.kernel.strings import DISTINCT, TEXT_END
from commitlake.schemas.layouts.rocketmq import properties as layout

ROWS = 16_384
"""Number of records in a batch."""
_ENTRIES = 1 << 17
_VALUE_BYTES = 4 << 20
_KEY_ITEMS = 1 << 18
_STRING_BYTES = 1 << 20
_DISTINCT = 1 << 18
_TEXT_BYTES = 1 << 20
MAX_RECORD_TEXT = 1 << 19
"""Maximum size of one record in any output, as its layout's `max_text_size` counts; empty outputs have room for it."""
assert (
    min(4 * _ENTRIES, _VALUE_BYTES, 2 * _KEY_ITEMS, _STRING_BYTES, _TEXT_BYTES // 2, 3 * _DISTINCT) >= MAX_RECORD_TEXT
)
MESSAGE_ID_SIZE = 56
"""Length of the longest message id: host of 20 bytes, offset of 8."""
MAX_PROPERTIES = layout.MAX_SIZE // 4 + 1
"""Number of properties of one record: each has a key, 0x01, a value, 0x02; the last may lack its 0x02."""

# Rows of `used`: the filled part of each output.
ENTRIES, VALUE_BYTES, UNIQUE_BYTES, KEY_ITEMS, KEY_BYTES, NOT_UTF8, PRIORITIES = range(7)

# Rows of `present`.
UNIQUE_KEY, KEYS = range(2)

# Rows of `codes`.
TOPIC, TAGS, BORN_HOST, STORE_HOST, ORIGIN, PRODUCER_GROUP = range(6)

# Bits of `wanted`.
WANT_TOPIC, WANT_BORN_HOST, WANT_STORE_HOST, WANT_MESSAGE_ID = 1, 2, 4, 8
WANT_TEXT, WANT_ENTRIES, WANT_UNIQUE_KEY, WANT_KEYS, WANT_TAGS, WANT_PRIORITY = 16, 32, 64, 128, 256, 512
WANT_ORIGIN, WANT_PRODUCER_GROUP = 1024, 2048

# Numbers of the names below in every interner of property names.
NAMES = (
    layout.TAGS, layout.KEYS, layout.UNIQ_KEY, layout.PRIORITY, layout.PGROUP, layout.REAL_TOPIC, layout.RETRY_TOPIC,
    layout.DLQ_ORIGIN_TOPIC, layout.ORIGIN_GROUP,
)  # fmt: skip
(
    NAME_TAGS, NAME_KEYS, NAME_UNIQ_KEY, NAME_PRIORITY, NAME_PGROUP, NAME_REAL_TOPIC, NAME_RETRY_TOPIC,
    NAME_DLQ_ORIGIN_TOPIC, NAME_ORIGIN_GROUP,
) = range(len(NAMES))  # fmt: skip


class Interner(NamedTuple):
    """Hash table that gives distinct texts consecutive numbers in order of appearance."""

    counts: Array
    table: Array
    starts: Array
    texts: Array


def _allocate_zeros(count: int, number_type: type[np.int32 | np.int64]) -> Array:
    """Return an array of zeros that takes no memory until it is used.

    numpy's own zeros come from the C library, which may reuse memory and must then clear all of it.
    """
    size = count * np.dtype(number_type).itemsize
    return np.frombuffer(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), number_type)


def make_interner() -> Interner:
    """Create an empty interner."""
    return Interner(
        counts=np.zeros(2, np.int64),
        # Twice as many slots as values: the table is never more than half full, so a search ends after few steps.
        table=_allocate_zeros(2 * _DISTINCT, np.int32),
        starts=_allocate_zeros(_DISTINCT + 1, np.int64),
        texts=np.empty(_TEXT_BYTES + PADDING, np.uint8),
    )


def is_crowded_interner(interner: Interner) -> bool:
    """Return whether an interner is so full that it should be replaced before the next batch."""
    # Limits far below the capacity, because a batch adds to it, and an interner can only be replaced between batches.
    return bool(interner.counts[DISTINCT] > _DISTINCT // 4 or interner.counts[TEXT_END] > _TEXT_BYTES // 2)


class ColumnBuffers(NamedTuple):
    """Output arrays for columns with a fixed size per record, and for message ids.

    Attributes:
        numbers32: int32[n, rows], in the order of the plan.
        numbers64: int64[n, rows], in the order of the plan.
        sys_flags: int32[rows].
        codes: int32[6, rows], numbers of topics, tags, hosts, origins and producer groups in their interners. Origins
            are numbered with the topics; -1 if no property names one.
        message_id_size: int64[1], number of filled bytes of `message_ids`.
        message_id_offsets: int32[rows + 1], Arrow offsets into `message_ids`.
        message_ids: message ids, joined.
    """

    numbers32: Array
    numbers64: Array
    sys_flags: Array
    codes: Array
    message_id_size: Array
    message_id_offsets: Array
    message_ids: Array


def make_columns(int32_columns: int, int64_columns: int, *, has_message_ids: bool) -> ColumnBuffers:
    """Create empty output columns."""
    room = ROWS * MESSAGE_ID_SIZE if has_message_ids else 0
    return ColumnBuffers(
        numbers32=np.empty((int32_columns, ROWS), np.int32),
        numbers64=np.empty((int64_columns, ROWS), np.int64),
        sys_flags=np.empty(ROWS, np.int32),
        codes=np.empty((6, ROWS), np.int32),
        message_id_size=np.zeros(1, np.int64),
        message_id_offsets=np.zeros(ROWS + 1, np.int32),
        message_ids=np.empty(room + OVERWRITE, np.uint8),
    )


NO_SUFFIX: Array = np.empty(0, np.uint8)


class ColumnSelection(NamedTuple):
    """Columns that the kernel decodes, and settings for them.

    Attributes:
        wanted: bits WANT_… of the selected columns.
        seed: seed of the hashes, uint64.
        fields32: int64[n, m], the position of each column of `numbers32`, in the form of the layout's module `columns`.
        fields64: int64[n, 2], the position of each column of `numbers64`.
        id_suffix: end of the ids if a layout stores no ids, with OVERWRITE bytes more; else empty.
    """

    wanted: int
    seed: np.uint64
    fields32: Array
    fields64: Array
    id_suffix: Array = NO_SUFFIX


class KernelFilters(NamedTuple):
    """Filters for records, in the form that the kernel's loops take.

    Attributes:
        chooses: whether any filter is set.
        bounds: int64[4], range of wanted physical offsets, and of store times in ms; each end is exclusive.
        queue_ids: int32, wanted queue ids; empty for all.
        topics: wanted topics, joined, with PADDING bytes more.
        topic_offsets: int64[n + 1], start of each topic in `topics`; one element for all topics.
    """

    chooses: bool
    bounds: Array
    queue_ids: Array
    topics: Array
    topic_offsets: Array


class TextBuffers(NamedTuple):
    """Output buffers for the texts that come from properties: keys, and the map of all properties.

    Attributes:
        used: int64[7], number of filled elements of the other arrays.
        present: bool[2, rows], whether a record has a unique key, and whether it has keys.
        unique_offsets: int32[rows + 1], Arrow offsets into `unique`.
        unique: unique keys, joined.
        list_offsets: int32[rows + 1], Arrow offsets into the keys.
        key_offsets: int32, Arrow offsets into `keys`.
        keys: business keys, joined.
        map_offsets: int32[rows + 1], Arrow offsets into the entries.
        names: int32, number of each entry's name.
        value_offsets: int32, Arrow offsets into `values`.
        values: the entries' values, joined.
        not_utf8: int64[rows], rows whose properties are not UTF-8; they count as having none.
        priorities: int64[3, rows]: row, position and length of a priority.
    """

    used: Array
    present: Array
    unique_offsets: Array
    unique: Array
    list_offsets: Array
    key_offsets: Array
    keys: Array
    map_offsets: Array
    names: Array
    value_offsets: Array
    values: Array
    not_utf8: Array
    priorities: Array


def make_text_buffers(wanted_bits: int) -> TextBuffers:
    """Create empty outputs for the selected texts from properties."""
    offsets = np.zeros((3, ROWS + 1), np.int32)
    entries = _ENTRIES if wanted_bits & WANT_ENTRIES else 0
    keys = _KEY_ITEMS if wanted_bits & WANT_KEYS else 0
    return TextBuffers(
        used=np.zeros(7, np.int64),
        present=np.zeros((2, ROWS), np.bool_),
        unique_offsets=offsets[0],
        unique=np.empty(_STRING_BYTES + OVERWRITE if wanted_bits & WANT_UNIQUE_KEY else 0, np.uint8),
        list_offsets=offsets[1],
        key_offsets=np.zeros(keys + 1, np.int32),
        keys=np.empty(_STRING_BYTES + OVERWRITE if keys else 0, np.uint8),
        map_offsets=offsets[2],
        names=np.empty(entries, np.int32),
        value_offsets=np.zeros(entries + 1, np.int32),
        values=np.empty(_VALUE_BYTES + OVERWRITE if entries else 0, np.uint8),
        not_utf8=np.empty(ROWS, np.int64),
        priorities=np.empty((3, ROWS), np.int64),
    )


class Scratch(NamedTuple):
    """Working memory of the kernel for the properties of one record.

    Attributes:
        serial: int64[1], serial number of the last record.
        seen: int64, for each name: serial number of the last record that had it, and the index of its entry.
        likely: int64, names of the entries of the last record; most often the next one has the same.
        values: int64[2, n], positions and lengths of the values of this record.
        named: int64[2, n], the same for the entries with a name of `NAMES`.
    """

    serial: Array
    seen: Array
    likely: Array
    values: Array
    named: Array


def make_scratch(max_entries: int = MAX_PROPERTIES) -> Scratch:
    """Create working memory for records with at most `max_entries` properties."""
    return Scratch(
        serial=np.zeros(1, np.int64),
        seen=_allocate_zeros(_DISTINCT, np.int64),
        likely=np.full(max_entries, -1, np.int64),
        values=np.empty((2, max_entries), np.int64),
        named=np.zeros((2, len(NAMES)), np.int64),
    )
