"""Compiled loops that turn keys into entries of an IndexFile, each linked to the previous entry of its slot."""

from __future__ import annotations

import numpy as np

from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.reading.kernel.compile_options import compiled
from commitlake.connectors.reading.kernel.memory_access import store_be_u64
from commitlake.schemas.layouts.rocketmq.indexfile import ENTRY

NUMBER, USED_SLOTS, BEGIN_TIME, BEGIN_OFFSET, END_TIME, END_OFFSET = range(6)
"""Indexes into `state`: the number of the next entry, and the fields of the header."""
STATE_SIZE = 6

_SIZE = ENTRY.size
_TIME_POSITION = ENTRY.offset_of("time_diff")
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_MAX_SECONDS = np.int64(0x7FFFFFFF)
assert (_SIZE, ENTRY.offset_of("physical_offset"), _TIME_POSITION) == (20, 4, 12)


@compiled
def append_tags_hashes(hashes: Array, key_ends: Array, tags_hashes: Array, all_hashes: Array, all_ends: Array) -> None:
    """Copy the key hashes of each record, and append the hash of its tags if it has tags.

    Args:
        hashes: int32, see `Facts.key_hashes`.
        key_ends: int32, see `Facts.key_ends`.
        tags_hashes: int32, see `Facts.tags_hash`.
        all_hashes: int32, receives all hashes.
        all_ends: int32, receives where each record's hashes end in `all_hashes`.
    """
    key, at = np.int64(0), np.int64(0)
    for row in range(len(key_ends)):
        while key < key_ends[row]:
            all_hashes[at] = hashes[key]
            key += 1
            at += 1
        if tags_hashes[row] >= 0:
            all_hashes[at] = tags_hashes[row]
            at += 1
        all_ends[row] = at


@compiled
def write_key_entries(
    offsets: Array, times: Array, key_ends: Array, hashes: Array, first_hash: int, end_hash: int, slots: Array,
    state: Array,
    entries: Array,
) -> None:  # fmt: skip
    """Write index entries for keys, and update the hash slots that point to them.

    Args:
        offsets: int64, see `part_files.Keys`.
        times: int64, likewise.
        key_ends: int64, likewise.
        hashes: int32, likewise.
        first_hash: index of the first hash to enter.
        end_hash: index after the last hash to enter.
        slots: int32, the file's slots: the number of the newest entry of each chain; updated.
        state: int64[STATE_SIZE], updated.
        entries: uint8, receives the entries.
    """
    number, used = state[NUMBER], state[USED_SLOTS]
    begin = state[BEGIN_TIME]
    count = np.int64(len(slots))
    row, above = np.int64(0), np.int64(len(key_ends))
    while row < above:  # find the record of hash `first`
        middle = (row + above) >> 1
        if key_ends[middle] <= first_hash:
            row = middle + 1
        else:
            above = middle
    at = np.int64(0)
    for key in range(first_hash, end_hash):
        while key_ends[row] <= key:
            row += 1
        offset, time = offsets[row], times[row]
        seconds = (time - begin) // 1000
        if begin <= 0 or time < begin:
            seconds = np.int64(0)
        elif seconds > _MAX_SECONDS:
            seconds = _MAX_SECONDS
        key_hash = np.int64(hashes[key])
        slot = key_hash % count
        newest = np.int64(slots[slot])
        # 20 bytes as three words that overlap: hash and half the offset, its other half and the time, time and chain.
        word = np.uint64(offset)
        low_time = np.uint64(seconds)
        store_be_u64(entries, at, (np.uint64(key_hash) << _HALF) | (word >> _HALF))
        store_be_u64(entries, at + 8, ((word & _LOW) << _HALF) | low_time)
        store_be_u64(entries, at + _TIME_POSITION, (low_time << _HALF) | np.uint64(newest))
        slots[slot] = number
        if newest == 0:
            used += 1
        if number == 1:
            begin = time
            state[BEGIN_TIME], state[BEGIN_OFFSET] = time, offset
        state[END_TIME], state[END_OFFSET] = time, offset
        number += 1
        at += _SIZE
    state[NUMBER], state[USED_SLOTS] = number, used
