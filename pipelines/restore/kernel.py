"""Compiled loops that copy parts of records from buffers into a segment.

Nothing is checked here: the caller vouches for every range.
"""

from __future__ import annotations

from commitlake.connectors.arrays import Array
from commitlake.connectors.formats.engine.kernel.compiled import compiled
from commitlake.connectors.lake.packs.kernel import copy
from commitlake.schemas.layouts.rocketmq import properties as layout

_EQUALS = layout.NAME_VALUE_SEPARATOR
_NEXT = layout.PROPERTY_SEPARATOR


@compiled
def place_spans(source: Array, starts: Array, lengths: Array, out: Array, targets: Array) -> None:
    """Copy values into a segment.

    Args:
        source: uint8, read-only, where they are.
        starts: int64, where each begins there.
        lengths: int64, of each.
        out: uint8, what gets them.
        targets: int64, where each goes.
    """
    for row in range(len(starts)):
        copy(out, targets[row], source, starts[row], lengths[row])


@compiled
def place_properties(
    out: Array, targets: Array, lengths: Array, firsts: Array, names: Array, name_starts: Array, values: Array,
    value_starts: Array,
) -> None:  # fmt: skip
    """Write each record's properties after their length; the last separator only where the length has room for it.

    Args:
        out: uint8, what gets them.
        targets: int64, where the lengths go.
        lengths: int64, bytes of each record's properties: just what its entries take, or a byte less.
        firsts: int64[rows, 2], each record's first entry, and the one behind its last.
        names: uint8, read-only, of all entries.
        name_starts: int64[entries + 1], where each begins.
        values: uint8, read-only, of all entries.
        value_starts: int64[entries + 1], likewise.
    """
    for row in range(len(targets)):
        length = lengths[row]
        at = targets[row] + 2
        out[at - 2] = (length >> 8) & 0xFF
        out[at - 1] = length & 0xFF
        end = at + length
        for entry in range(firsts[row, 0], firsts[row, 1]):
            size = name_starts[entry + 1] - name_starts[entry]
            copy(out, at, names, name_starts[entry], size)
            out[at + size] = _EQUALS
            at += size + 1
            size = value_starts[entry + 1] - value_starts[entry]
            copy(out, at, values, value_starts[entry], size)
            at += size
            if at < end:
                out[at] = _NEXT
                at += 1
