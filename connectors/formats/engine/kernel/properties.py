"""Parser of a record's properties, 64 bytes at a time: the loop of every format with properties.

Properties are entries, one after another: a name, a separator, a value, and a mark that ends the entry, which the last
one may lack. Marks are ASCII, so entries are found in bytes, before anything is decoded. What the marks are is a
format's `Grammar`; it is a constant where these functions are called, so what a format does not have costs it nothing.

    cursor = first_entry(position)
    while True:
        entry, cursor = next_entry(GRAMMAR, window, end, cursor)
        if not entry.is_there:
            break
        ...

What is done with an entry differs from format to format: which are passed over, and which have a column of their own.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from commitlake.connectors.formats.engine.kernel.compiled import inlined
from commitlake.connectors.formats.engine.kernel.memory import find_marks, lowest_bit
from commitlake.connectors.formats.engine.kernel.strings import DISTINCT, copy_span, intern_span

MAX_ENTRIES = (1 << 15) - 1
"""Maximum number of properties in one record."""
_NONE = np.int64(-1)
_LOOK_BYTES = 64
_ENTRY_BITS = 15  # bits for the number of an entry in `seen`
_ENTRY_MASK = (1 << _ENTRY_BITS) - 1
assert MAX_ENTRIES <= _ENTRY_MASK


class Grammar(NamedTuple):
    """Separators of a format's properties.

    Attributes:
        entry_end: byte after each entry.
        separator: between a name and its value; more of them in a value are part of it.
        escape: before a byte that is not a mark there; the separator in a format that escapes nothing.
    """

    entry_end: int
    separator: int
    escape: int


class Cursor(NamedTuple):
    """Position in a record's properties.

    Attributes:
        block: the 64 bytes that were looked at last.
        marks: bits of those in it that are still to come.
        others: not 0 where something so far was not ASCII.
        begin: where the next entry begins.
        escaped: the byte after the last escape.
    """

    block: np.int64
    marks: np.uint64
    others: np.uint64
    begin: np.int64
    escaped: np.int64


class PropertyEntry(NamedTuple):
    """Entry of a property.

    Attributes:
        is_there: false after the last one.
        begin: start of its name.
        separator: its place, -1 where there is none.
        end: position after its value.
        has_escapes: whether there are some in its value.
        has_irregular_name: whether an escape in its name stands before what is no mark, so that the name has another
            form.
    """

    is_there: bool
    begin: np.int64
    separator: np.int64
    end: np.int64
    has_escapes: bool
    has_irregular_name: bool


@inlined
def first_entry(position):
    """Return a cursor before the first entry of properties that begin at a position."""
    return Cursor(position - _LOOK_BYTES, np.uint64(0), np.uint64(0), position, _NONE)


@inlined
def _is_mark(grammar, window, at, end):
    if at >= end:
        return False
    byte = window[at]
    return byte == grammar.entry_end or byte == grammar.separator or byte == grammar.escape


@inlined
def next_entry(grammar, window, end, cursor):
    """Return the next entry of properties that end at `end`, and the cursor after it."""
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
            marks, not_ascii = find_marks(window, block, grammar.entry_end, grammar.separator, grammar.escape)
            if end - block < _LOOK_BYTES:
                inside = (np.uint64(1) << np.uint64(end - block)) - np.uint64(1)
                marks &= inside
                not_ascii &= inside
            others |= not_ascii
            continue
        at = block + lowest_bit(marks)
        marks &= marks - np.uint64(1)
        if grammar.escape != grammar.separator and at == escaped:
            continue
        mark = window[at]
        if mark == grammar.separator:
            if separator < 0:
                separator = at
        elif mark == grammar.escape:
            escaped = at + 1
            if separator >= 0:
                has_escapes = True
            elif not _is_mark(grammar, window, escaped, end):
                has_irregular_name = True
        else:
            entry = PropertyEntry(True, begin, separator, at, has_escapes, has_irregular_name)
            return entry, Cursor(block, marks, others, at + 1, escaped)


@inlined
def intern_name(window, begin, length, seed, number, likely_names, counts, table, starts, texts):
    """Return the number of a property's name, which is mostly that of the same entry in the previous record.

    Args:
        window: where it lies.
        begin: its place.
        length: its bytes.
        seed: seed of the hash.
        number: index of the entry in its record.
        likely_names: the previous record's names.
        counts: see `intern_span`, as all that follows.
        table: the interner's hash table.
        starts: start of each text in `texts`.
        texts: the interner's texts, joined.
    """
    likely = likely_names[number]
    if likely >= counts[DISTINCT]:
        likely = _NONE
    return intern_span(window, begin, length, seed, likely, counts, table, starts, texts)


@inlined
def place_of(name, count, first, serial, seen, likely_names, entry_names):
    """Return the place of a name among the record's entries, and their number; a repeated name keeps its place.

    Args:
        name: its number.
        count: how many entries the record has so far.
        first: where the record's entries begin in `entry_names`.
        serial: the record's.
        seen: see `buffers.Scratch`.
        likely_names: see `intern_name`.
        entry_names: the name of each entry, out.
    """
    mark = seen[name]
    if mark >> _ENTRY_BITS == serial:
        return mark & _ENTRY_MASK, count
    seen[name] = (serial << _ENTRY_BITS) | count
    likely_names[count] = name
    entry_names[first + count] = name
    return count, count + 1


@inlined
def note_value(entry, place, spans):
    """Record the position of an entry's value; `copy_values` reads it."""
    length = entry.end - entry.separator - 1
    spans[0, place] = entry.separator + 1
    spans[1, place] = ~length if entry.has_escapes else length


@inlined
def _copy_unescaped(escape, window, position, length, out, target):
    """Copy a value without its escapes, and return its length."""
    end, begin = position + length, target
    while position < end:
        if window[position] == escape and position + 1 < end:
            position += 1
        out[target] = window[position]
        target += 1
        position += 1
    return target - begin


@inlined
def copy_values(grammar, window, spans, count, first, values, offsets, target):
    """Copy the values of a record's entries one after another, and return the end of the last.

    Args:
        grammar: the format's.
        window: where they lie.
        spans: see `note_value`.
        count: how many of them.
        first: the number of the first one in `offsets`.
        values: their bytes, out.
        offsets: where each ends, out.
        target: where the first one goes.
    """
    for entry in range(count):
        length = spans[1, entry]
        if grammar.escape != grammar.separator and length < 0:
            target += _copy_unescaped(grammar.escape, window, spans[0, entry], ~length, values, target)
        else:
            copy_span(window, spans[0, entry], length, values, target)
            target += length
        offsets[first + entry + 1] = target
    return target
