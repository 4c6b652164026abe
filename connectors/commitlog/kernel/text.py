"""Text out of a window: UTF-8, properties, keys.

Separators are ASCII, so entries are found in bytes, before anything is decoded.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from connectors.commitlog.kernel.columns import _equal_spans, _hash_span
from connectors.commitlog.kernel.memory import load_le_u64
from schemas.layouts import properties as layout

UNIQUE_KEY, TAGS, KEYS, PRIORITY = range(4)
"""Rows of `wanted`: the properties that have columns of their own."""
WANTED_COUNT = 4

_NAME_VALUE, _PROPERTY = layout.NAME_VALUE_SEPARATOR, layout.PROPERTY_SEPARATOR
_UNIQ_KEY_NAME = np.frombuffer(layout.UNIQ_KEY.encode(), np.uint8).copy()
_TAGS_NAME = np.frombuffer(layout.TAGS.encode(), np.uint8).copy()
_KEYS_NAME = np.frombuffer(layout.KEYS.encode(), np.uint8).copy()
_PRIORITY_NAME = np.frombuffer(layout.PRIORITY.encode(), np.uint8).copy()
_SPACE = ord(layout.KEY_SEPARATOR)

MIN_ENTRY_SIZE = 4  # a key, 0x01, a value, 0x02; the last entry of a record may lack its 0x02
FEW_ENTRIES = 24
SCRATCH_SIZE = 1 << 14  # at most 32,767 / MIN_ENTRY_SIZE entries in a record, at half load


@njit(nogil=True, cache=True)
def _is_utf8(window, position, length):
    """Whether a stretch is well-formed UTF-8 (Unicode, table 3-7)."""
    end = position + length
    while position < end:
        while end - position >= 8 and (load_le_u64(window, position) & np.uint64(0x8080808080808080)) == 0:
            position += 8
        if position == end:
            return True
        lead = window[position]
        if lead < 0x80:
            position += 1
            continue
        low, high = 0x80, 0xBF
        if 0xC2 <= lead <= 0xDF:
            more = 1
        elif 0xE0 <= lead <= 0xEF:
            more = 2
            if lead == 0xE0:
                low = 0xA0
            elif lead == 0xED:
                high = 0x9F
        elif 0xF0 <= lead <= 0xF4:
            more = 3
            if lead == 0xF0:
                low = 0x90
            elif lead == 0xF4:
                high = 0x8F
        else:
            return False
        if position + more >= end:
            return False
        if window[position + 1] < low or window[position + 1] > high:
            return False
        for at in range(2, more + 1):
            if (window[position + at] & 0xC0) != 0x80:
                return False
        position += more + 1
    return True


@njit(nogil=True, cache=True)
def find_not_utf8(window, positions, lengths, rows):
    """Write the numbers of the values that are not UTF-8 to `rows`; how many there are."""
    count = 0
    for row in range(len(positions)):
        if not _is_utf8(window, positions[row], lengths[row]):
            rows[count] = row
            count += 1
    return count


@njit(nogil=True, cache=True)
def _is_name(window, position, length, name):
    if length != len(name):
        return False
    for at in range(length):  # noqa: SIM110 (numba compiles a loop, not a generator)
        if window[position + at] != name[at]:
            return False
    return True


@njit(nogil=True, cache=True)
def _note_wanted(window, key, key_length, value, value_length, wanted, wanted_lengths, row):
    if key_length == len(_TAGS_NAME):  # as long as KEYS
        if _is_name(window, key, key_length, _TAGS_NAME):
            wanted[TAGS, row] = value
            wanted_lengths[TAGS, row] = value_length
        elif _is_name(window, key, key_length, _KEYS_NAME):
            wanted[KEYS, row] = value
            wanted_lengths[KEYS, row] = value_length
    elif key_length == len(_UNIQ_KEY_NAME):
        # The first one is the message's own, see schemas.layouts.properties.
        if wanted_lengths[UNIQUE_KEY, row] < 0 and _is_name(window, key, key_length, _UNIQ_KEY_NAME):
            wanted[UNIQUE_KEY, row] = value
            wanted_lengths[UNIQUE_KEY, row] = value_length
    elif _is_name(window, key, key_length, _PRIORITY_NAME):
        wanted[PRIORITY, row] = value
        wanted_lengths[PRIORITY, row] = value_length


@njit(nogil=True, cache=True)
def _earlier_entry(window, key, length, entries, first, count, scratch):
    """The entry of this record that has the same key, or -1: then the caller writes the new one as number `count`."""
    if count - first < FEW_ENTRIES:
        for entry in range(first, count):
            if entries[1, entry] == length and _equal_spans(window, entries[0, entry], key, length):
                return entry
        return -1
    mask = np.uint64(SCRATCH_SIZE - 1)
    if count - first == FEW_ENTRIES:
        for entry in range(first, count):
            slot = _hash_span(window, entries[0, entry], entries[1, entry]) & mask
            while scratch[slot] >= 0 and scratch[slot] != entry:
                slot = (slot + np.uint64(1)) & mask
            scratch[slot] = entry
    slot = _hash_span(window, key, length) & mask
    while scratch[slot] >= 0:
        entry = scratch[slot]
        if entries[1, entry] == length and _equal_spans(window, entries[0, entry], key, length):
            return entry
        slot = (slot + np.uint64(1)) & mask
    scratch[slot] = count
    return -1


@njit(nogil=True, cache=True)
def split_properties(window, positions, lengths, keep_entries, wanted, wanted_lengths, entries, entry_offsets, scratch):
    """Find the entries of every record's properties.

    Args:
        window: where they lie.
        positions: of each record's properties.
        lengths: of each record's properties.
        keep_entries: whether to fill `entries`; without it only `wanted` is looked for.
        wanted: int64[WANTED_COUNT, n] out, positions of the values that have columns of their own.
        wanted_lengths: int64[WANTED_COUNT, n] out, their lengths, -1 where absent.
        entries: int64[4, room] out: position and length of key and value; of a repeated key the last value.
        entry_offsets: int32[n + 1] out, Arrow's list offsets into `entries`.
        scratch: int32[SCRATCH_SIZE], all -1, and left all -1.
    """
    count = 0
    entry_offsets[0] = 0
    for row in range(len(positions)):
        wanted_lengths[:, row] = -1
        first = count
        position, end = positions[row], positions[row] + lengths[row]
        while position < end:
            separator = -1
            stop = position
            while stop < end:
                byte = window[stop]
                if byte <= _PROPERTY:
                    if byte == _PROPERTY:
                        break
                    if byte == _NAME_VALUE and separator < 0:
                        separator = stop
                stop += 1
            if separator > position and separator < stop - 1:
                key_length = separator - position
                value, value_length = separator + 1, stop - separator - 1
                _note_wanted(window, position, key_length, value, value_length, wanted, wanted_lengths, row)
                if keep_entries:
                    same = _earlier_entry(window, position, key_length, entries, first, count, scratch)
                    if same < 0:
                        same = count
                        entries[0, same] = position
                        entries[1, same] = key_length
                        count += 1
                    entries[2, same] = value
                    entries[3, same] = value_length
            position = stop + 1
        if count - first > FEW_ENTRIES:
            scratch[:] = -1
        entry_offsets[row + 1] = count
    return count


@njit(nogil=True, cache=True)
def split_keys(window, positions, lengths, key_positions, key_lengths, offsets):
    """Business keys of each record: the parts between spaces, empty ones dropped; how many there are in all."""
    count = 0
    offsets[0] = 0
    for row in range(len(positions)):
        begin = positions[row]
        end = begin + lengths[row]
        at = begin
        while at <= end and lengths[row] >= 0:
            if at == end or window[at] == _SPACE:
                if at > begin:
                    key_positions[count] = begin
                    key_lengths[count] = at - begin
                    count += 1
                begin = at + 1
            at += 1
        offsets[row + 1] = count
    return count
