"""Compiled loops that copy parts of records from buffers into a segment.

These functions check nothing: the caller must pass valid ranges only.
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
        source: uint8, read-only, the values.
        starts: int64, where each value begins in the source.
        lengths: int64, the length of each value.
        out: uint8, the segment.
        targets: int64, where each value is copied to.
    """
    for row in range(len(starts)):
        copy(out, targets[row], source, starts[row], lengths[row])


@compiled
def place_properties(
    out: Array, targets: Array, lengths: Array, firsts: Array, names: Array, name_starts: Array, values: Array,
    value_starts: Array,
) -> None:  # fmt: skip
    """Write the properties of each record after their length. The last separator is left out if the length has no room.

    Args:
        out: uint8, the segment.
        targets: int64, where the lengths are written.
        lengths: int64, size of the properties of each record: that of its entries, or one byte less.
        firsts: int64[rows, 2], the first entry of each record, and the one after its last.
        names: uint8, read-only, the names of all entries.
        name_starts: int64[entries + 1], where each name begins.
        values: uint8, read-only, the values of all entries.
        value_starts: int64[entries + 1], where each value begins.
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
