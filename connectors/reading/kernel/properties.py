"""Parser of a record's properties that examines 64 bytes at a time, for every format with properties.

Properties are a sequence of entries. An entry is a name, a separator, a value, and an end mark, which the last entry
may lack. Marks are ASCII, so entries are found in bytes, before anything is decoded. A format's `Grammar` defines the
marks. It is a compile-time constant for these functions, so a feature that a format lacks costs nothing.

    cursor = make_property_cursor(position)
    while True:
        entry, cursor = next_property_entry(GRAMMAR, window, end, cursor)
        if not entry.is_there:
            break
        ...

Each format decides which entries to skip, and which have a column of their own.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from commitlake.connectors.reading.kernel.compile_options import inlined
from commitlake.connectors.reading.kernel.memory_access import lowest_set_bit_index, mask_equal_and_non_ascii
from commitlake.connectors.reading.kernel.strings import DISTINCT, copy_span, intern_span

MAX_ENTRIES = (1 << 15) - 1
"""Maximum number of properties in one record."""
_NONE = np.int64(-1)
_LOOK_BYTES = 64
_ENTRY_BITS = 15  # bits for the number of an entry in `seen`
_ENTRY_MASK = (1 << _ENTRY_BITS) - 1
assert MAX_ENTRIES <= _ENTRY_MASK


class Grammar(NamedTuple):
    """Bytes that end properties, separate their names from their values, and escape others, in one format.

    Attributes:
        entry_end: byte after each entry.
        separator: byte between a name and its value; further ones are part of the value.
        escape: byte after which the next byte is no mark; equal to the separator in a format without escapes.
    """

    entry_end: int
    separator: int
    escape: int


class Cursor(NamedTuple):
    """Position in a record's properties.

    Attributes:
        block: the 64 bytes that were examined last.
        marks: bits of the marks in the block that are not processed yet.
        others: not 0 if any byte so far was not ASCII.
        begin: start of the next entry.
        escaped: the byte after the last escape.
    """

    block: np.int64
    marks: np.uint64
    others: np.uint64
    begin: np.int64
    escaped: np.int64


class PropertyEntry(NamedTuple):
    """Location of one property: its name, separator and value.

    Attributes:
        is_there: false if there is no further property.
        begin: start of its name.
        separator: position of its separator, -1 if there is none.
        end: position after its value.
        has_escapes: whether its value has escapes.
        has_irregular_name: whether its name has an escape before a byte that is not a mark, so that the name is not in
            its usual form.
    """

    is_there: bool
    begin: np.int64
    separator: np.int64
    end: np.int64
    has_escapes: bool
    has_irregular_name: bool


@inlined
def make_property_cursor(position):
    """Return a cursor before the first entry of properties that begin at a position."""
    # One block before the first: `next_property_entry` moves on by a block whenever no marks are left.
    return Cursor(position - _LOOK_BYTES, np.uint64(0), np.uint64(0), position, _NONE)


@inlined
def _is_separator(grammar, window, position, end):
    if position >= end:
        return False
    byte = window[position]
    return byte == grammar.entry_end or byte == grammar.separator or byte == grammar.escape


@inlined
def next_property_entry(grammar, window, end, cursor):
    """Return the next property, and the cursor after it; properties end at `end`."""
    block, marks, others, begin, escaped = cursor
    separator = _NONE
    has_escapes, has_irregular_name = False, False
    while True:
        if marks == 0:
            block += _LOOK_BYTES
            if block >= end:
                # The last entry may lack its mark.
                entry = PropertyEntry(begin < end, begin, separator, end, has_escapes, has_irregular_name)
                return entry, Cursor(block - _LOOK_BYTES, marks, others, end, escaped)
            marks, not_ascii = mask_equal_and_non_ascii(
                window, block, grammar.entry_end, grammar.separator, grammar.escape
            )
            # The bytes after the properties belong to the next record, and may contain marks.
            if end - block < _LOOK_BYTES:
                inside = (np.uint64(1) << np.uint64(end - block)) - np.uint64(1)
                marks &= inside
                not_ascii &= inside
            others |= not_ascii
            continue
        at = block + lowest_set_bit_index(marks)
        marks &= marks - np.uint64(1)
        # An escaped mark is part of a name or value. For a format without escapes, the condition is constant and leaves
        # no code.
        if grammar.escape != grammar.separator and at == escaped:
            continue
        mark = window[at]
        if mark == grammar.separator:
            # Further separators are part of the value.
            if separator < 0:
                separator = at
        elif mark == grammar.escape:
            escaped = at + 1
            if separator >= 0:
                has_escapes = True
            elif not _is_separator(grammar, window, escaped, end):
                has_irregular_name = True
        else:
            entry = PropertyEntry(True, begin, separator, at, has_escapes, has_irregular_name)
            return entry, Cursor(block, marks, others, at + 1, escaped)


@inlined
def intern_name(window, begin, length, seed, entry_index, likely_names, counts, table, starts, texts):
    """Return a property name's number; the name at the same place in the previous record is compared first.

    Args:
        window: bytes that contain the name.
        begin: position of the name.
        length: size of the name, bytes.
        seed: seed of the hash.
        entry_index: index of the entry in its record.
        likely_names: the previous record's names.
        counts: see `intern_span`.
        table: the interner's hash table.
        starts: the start of each text in `texts`.
        texts: the interner's texts, joined.
    """
    likely = likely_names[entry_index]
    # The interner may have been replaced by an empty one since that record.
    if likely >= counts[DISTINCT]:
        likely = _NONE
    return intern_span(window, begin, length, seed, likely, counts, table, starts, texts)


@inlined
def find_name_index(name_number, entry_count, first_entry_index, record_serial, last_seen, likely_names, entry_names):
    """Return the index of a property's name among the record's distinct names, and the new number of distinct names.

    Args:
        name_number: the number of the name.
        entry_count: number of entries of the record so far.
        first_entry_index: index of the record's first entry in `entry_names`.
        record_serial: serial number of the record.
        last_seen: see `buffers.Scratch`.
        likely_names: see `intern_name`.
        entry_names: the name of each entry, out.
    """
    mark = last_seen[name_number]
    if mark >> _ENTRY_BITS == record_serial:
        return mark & _ENTRY_MASK, entry_count
    last_seen[name_number] = (record_serial << _ENTRY_BITS) | entry_count
    likely_names[entry_count] = name_number
    entry_names[first_entry_index + entry_count] = name_number
    return entry_count, entry_count + 1


@inlined
def store_value_span(entry, value_index, spans):
    """Store the position and length of a property's value, so that `copy_values` copies the value later."""
    length = entry.end - entry.separator - 1
    spans[0, value_index] = entry.separator + 1
    # The complement, not the negative value, because an escaped value may be empty.
    spans[1, value_index] = ~length if entry.has_escapes else length


@inlined
def _copy_unescaped(escape, window, position, length, out, out_position):
    """Copy a value without its escapes, and return the length of the copy."""
    end, begin = position + length, out_position
    while position < end:
        if window[position] == escape and position + 1 < end:
            position += 1
        out[out_position] = window[position]
        out_position += 1
        position += 1
    return out_position - begin


@inlined
def copy_values(grammar, window, spans, value_count, first_value_index, out_values, out_offsets, out_position):
    """Copy the values of a record's properties to the output, one after another; return the end of the last.

    Args:
        grammar: the grammar of the format.
        window: bytes that contain the values.
        spans: see `store_value_span`.
        value_count: number of values.
        first_value_index: index of the first value in `out_offsets`.
        out_values: output for the bytes of the values.
        out_offsets: output for the end of each value.
        out_position: position of the first value in `out_values`.
    """
    for entry in range(value_count):
        length = spans[1, entry]
        if grammar.escape != grammar.separator and length < 0:
            out_position += _copy_unescaped(grammar.escape, window, spans[0, entry], ~length, out_values, out_position)
        else:
            copy_span(window, spans[0, entry], length, out_values, out_position)
            out_position += length
        out_offsets[first_value_index + entry + 1] = out_position
    return out_position
