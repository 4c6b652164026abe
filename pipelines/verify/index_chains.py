"""Compiled loops: the chains of one IndexFile, and the entries of a range of the log against its records."""

from __future__ import annotations

from typing import Any

import numpy as np

from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.reading.kernel.compile_options import compiled
from commitlake.connectors.reading.kernel.memory_access import load_be_i32, load_be_i64
from commitlake.schemas.layouts.rocketmq.indexfile import ENTRY, HEADER, SLOT

EMPTY, LOOP, WRONG_CHAIN, UNREACHABLE, DISORDER, BAD_SLOT = range(6)
"""Kinds of problems that `check_chains` counts. `USED_SLOTS` is a plain count, not a problem."""
USED_SLOTS, CHAIN_COUNTS = 6, 7

MISSING, WRONG_HASH, DANGLING, WRONG_TIME, REPEATED = range(5)
"""Kinds of problems that `compare_entries` writes into the first row of `problems`."""

_SLOT_SIZE, _ENTRY_SIZE, _FIRST_SLOT = SLOT.size, ENTRY.size, HEADER.size
_AT_OFFSET, _AT_PREVIOUS = ENTRY.offset_of("physical_offset"), ENTRY.offset_of("previous_entry")


@compiled
def _is_of_other_slot(memory: Array, entry_position: Any, slot_count: int, slot: Any) -> Any:
    """Return whether an entry's hash belongs to another slot; False for an empty entry."""
    key_hash = np.int64(load_be_i32(memory, entry_position))
    if (
        key_hash == 0
        and load_be_i64(memory, entry_position + _AT_OFFSET) == 0
        and load_be_i64(memory, entry_position + _ENTRY_SIZE - 8) == 0
    ):
        return False
    return key_hash % slot_count != slot


@compiled
def _count_problem(kind: int, number: Any, problem_counts: Array, first_numbers: Array) -> None:
    place = problem_counts[kind]
    if place < first_numbers.shape[1]:
        first_numbers[kind, place] = number
    problem_counts[kind] = place + 1


@compiled
def check_chains(  # noqa: C901, PLR0912 (nothing is called but what is inlined)
    memory: Array,
    slot_count: int,
    last_entry: int,
    entry_limit: int,
    references: Array,
    problem_counts: Array,
    first_numbers: Array,
) -> None:
    """Check that each slot and entry points to an older entry of its hash chain, and that no entry is unreachable.

    Args:
        memory: the file's bytes.
        slot_count: number of slots.
        last_entry: number of the last entry.
        entry_limit: upper bound of entry numbers: `last + 1`, or more where entries may have been added meanwhile.
        references: uint8[last + 2], zeros; scratch.
        problem_counts: int64[CHAIN_COUNTS], zeros; receives the count of each kind, and of used slots.
        first_numbers: int64[6, n]; receives the numbers of the first n entries, or slots, of each kind.
    """
    entries = _FIRST_SLOT + _SLOT_SIZE * slot_count
    before = np.int64(-1)
    for number in range(1, last_entry + 1):
        at = entries + _ENTRY_SIZE * number
        key_hash, offset = np.int64(load_be_i32(memory, at)), load_be_i64(memory, at + _AT_OFFSET)
        previous = np.int64(load_be_i32(memory, at + _AT_PREVIOUS))
        if key_hash == 0 and offset == 0 and previous == 0 and load_be_i64(memory, at + _ENTRY_SIZE - 8) == 0:
            _count_problem(EMPTY, number, problem_counts, first_numbers)
            continue
        if offset < before:
            _count_problem(DISORDER, number, problem_counts, first_numbers)
        else:
            before = offset
        if previous < 0 or previous >= number:
            _count_problem(LOOP, number, problem_counts, first_numbers)
        elif previous > 0:
            references[previous] = 1
            if _is_of_other_slot(memory, entries + _ENTRY_SIZE * previous, slot_count, key_hash % slot_count):
                _count_problem(WRONG_CHAIN, number, problem_counts, first_numbers)
    for slot in range(slot_count):
        newest = np.int64(load_be_i32(memory, _FIRST_SLOT + _SLOT_SIZE * slot))
        if newest == 0:
            continue
        problem_counts[USED_SLOTS] += 1
        # Entries that were added meanwhile: follow them to the one that the slot pointed to before.
        while last_entry < newest < entry_limit:
            older = np.int64(load_be_i32(memory, entries + _ENTRY_SIZE * newest + _AT_PREVIOUS))
            newest = older if older < newest else np.int64(0)
            if newest == 0:
                break
        if newest == 0:
            continue
        if newest < 0 or newest > last_entry:
            _count_problem(BAD_SLOT, slot, problem_counts, first_numbers)
            continue
        references[newest] = 1
        if _is_of_other_slot(memory, entries + _ENTRY_SIZE * newest, slot_count, np.int64(slot)):
            _count_problem(WRONG_CHAIN, newest, problem_counts, first_numbers)
    for number in range(1, last_entry + 1):
        if references[number] == 0:
            _count_problem(UNREACHABLE, number, problem_counts, first_numbers)


@compiled
def _add_problem(problems: Array, problem_count: int, kind: int, row: int, entry_index: int) -> int:
    """Append a problem to the arrays, and return the new number of problems."""
    problems[0, problem_count], problems[1, problem_count], problems[2, problem_count] = kind, row, entry_index
    return problem_count + 1


@compiled
def _report_missing_keys(
    problems: Array, problem_count: int, row: int, key_count: np.int64, wrong_entry_count: int
) -> tuple[int, int]:
    """Report a record's keys as missing, less the wrong entries that stand in their places.

    Returns:
        The number of problems, and the number of wrong entries that are not yet matched with a key.
    """
    for _ in range(key_count):
        if wrong_entry_count > 0:
            wrong_entry_count -= 1
        else:
            problem_count = _add_problem(problems, problem_count, MISSING, row, -1)
    return problem_count, wrong_entry_count


@compiled
def compare_entries(  # noqa: C901, PLR0912, PLR0915 (likewise)
    offsets: Array, store_times: Array, key_ends: Array, key_hashes: Array, tags_hashes: Array,
    entry_offsets: Array, entry_hashes: Array, entry_times: Array, begin_times: Array, problems: Array,
) -> int:  # fmt: skip
    """Compare the index entries for a range of the log with the keys of its records, and return the number of problems.

    A record has an entry for each of its keys, in order, and then, by brokers since 5.5, one for its tags.

    Args:
        offsets: int64, records' physical offsets, rising.
        store_times: int64, ms.
        key_ends: int32, see `Facts`.
        key_hashes: int32, likewise.
        tags_hashes: int32, likewise.
        entry_offsets: int64, where entries lead to.
        entry_hashes: int32.
        entry_times: int32, seconds.
        begin_times: int64, the time from which each entry's time is measured, ms; -1 where it is not compared.
        problems: int64[3, n], receives for each problem its kind, the row of the record or -1, and the index of the
            entry or -1; n is at least the number of keys, tags and entries together.

    Returns:
        The number of problems.
    """
    found = 0
    at = 0
    count = len(entry_offsets)
    key = np.int64(0)
    for row in range(len(offsets)):
        offset = offsets[row]
        end = np.int64(key_ends[row])
        while at < count and entry_offsets[at] < offset:
            found = _add_problem(problems, found, DANGLING, -1, at)
            at += 1
        wrong = 0
        first = key
        tags_seen = tags_hashes[row] < 0
        while True:
            if at >= count:
                break
            if entry_offsets[at] != offset:
                # A wrong offset between two entries of this record, or in the place of a key whose next entry fits.
                more = key < end and at + 1 < count and entry_offsets[at + 1] == offset
                if not more:
                    break
                found = _add_problem(problems, found, DANGLING, -1, at)
                wrong += 1
                at += 1
                continue
            if key < end and entry_hashes[at] == key_hashes[key]:
                key += 1
            elif key >= end and not tags_seen and entry_hashes[at] == tags_hashes[row]:
                tags_seen = True
            else:
                later = key + 1
                while later < end and key_hashes[later] != entry_hashes[at]:
                    later += 1
                if later < end:  # keys before it are missing
                    found, wrong = _report_missing_keys(problems, found, row, later - key, wrong)
                    key = later + 1
                elif not tags_seen and entry_hashes[at] == tags_hashes[row]:
                    tags_seen = True
                    found, wrong = _report_missing_keys(problems, found, row, end - key, wrong)
                    key = end
                else:
                    again = tags_hashes[row] >= 0 and entry_hashes[at] == tags_hashes[row]
                    for known in range(first, key):
                        again |= key_hashes[known] == entry_hashes[at]
                    kind = REPEATED if again else WRONG_HASH
                    found = _add_problem(problems, found, kind, row, at)
                    if again:  # it takes no key's place
                        pass
                    elif key < end:
                        key += 1
                    else:
                        tags_seen = True
                    at += 1
                    continue
            if begin_times[at] >= 0:
                seconds = (store_times[row] - begin_times[at]) // 1000
                if begin_times[at] == 0 or seconds < 0:
                    seconds = np.int64(0)
                if seconds > 0x7FFFFFFF:
                    seconds = np.int64(0x7FFFFFFF)
                if seconds != entry_times[at]:
                    found = _add_problem(problems, found, WRONG_TIME, row, at)
            at += 1
        found, wrong = _report_missing_keys(problems, found, row, end - key, wrong)
        key = end
    while at < count:
        found = _add_problem(problems, found, DANGLING, -1, at)
        at += 1
    return found
