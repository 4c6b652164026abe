"""Compiled encoder of messages as the body of a batch; see `schemas.remoting.batch`."""

from __future__ import annotations

from commitlake.connectors.arrays import Array
from commitlake.connectors.formats.engine.kernel.compiled import compiled, inlined
from commitlake.connectors.lake.packs.kernel import copy
from commitlake.schemas.layouts.rocketmq import properties as layout
from commitlake.schemas.remoting.batch import ITEM

_EQUALS = layout.NAME_VALUE_SEPARATOR
_NEXT = layout.PROPERTY_SEPARATOR
_FLAG_AT = ITEM.offset_of("flag")
_BODY_AT = ITEM.size


@inlined
def _put_int32(out: Array, at: int, value: int) -> None:
    out[at] = (value >> 24) & 0xFF
    out[at + 1] = (value >> 16) & 0xFF
    out[at + 2] = (value >> 8) & 0xFF
    out[at + 3] = value & 0xFF


@compiled
def place_items(
    out: Array, item_starts: Array, flags: Array, bodies: Array, body_starts: Array, property_sizes: Array,
    firsts: Array, is_kept: Array, names: Array, name_starts: Array, values: Array, value_starts: Array,
    stamps: Array, stamp_starts: Array,
) -> None:  # fmt: skip
    """Write messages one after the other, each as an item of a batch.

    Args:
        out: uint8, zeros; receives the items.
        item_starts: int64[rows + 1], start of each item in `out`.
        flags: int64, the applications' flags.
        bodies: uint8, read-only, bodies as they are sent.
        body_starts: int64[rows + 1], start of each body.
        property_sizes: int64, size of each message's properties, including stamps.
        firsts: int64[rows + 1], index of each message's first property.
        is_kept: bool, True for each property that is sent.
        names: uint8, read-only, names of all properties.
        name_starts: int64[properties + 1], start of each name.
        values: uint8, read-only, values of all properties.
        value_starts: int64[properties + 1], start of each value.
        stamps: uint8, read-only, properties that are added after a message's own.
        stamp_starts: int64[rows + 1], start of each message's stamps.
    """
    for row in range(len(flags)):
        at = item_starts[row]
        size = body_starts[row + 1] - body_starts[row]
        _put_int32(out, at, item_starts[row + 1] - at)
        _put_int32(out, at + _FLAG_AT, flags[row])
        _put_int32(out, at + _FLAG_AT + 4, size)
        at += _BODY_AT
        copy(out, at, bodies, body_starts[row], size)
        at += size
        out[at] = (property_sizes[row] >> 8) & 0xFF
        out[at + 1] = property_sizes[row] & 0xFF
        at += 2
        for entry in range(firsts[row], firsts[row + 1]):
            if is_kept[entry]:
                size = name_starts[entry + 1] - name_starts[entry]
                copy(out, at, names, name_starts[entry], size)
                out[at + size] = _EQUALS
                at += size + 1
                size = value_starts[entry + 1] - value_starts[entry]
                copy(out, at, values, value_starts[entry], size)
                out[at + size] = _NEXT
                at += size + 1
        copy(out, at, stamps, stamp_starts[row], stamp_starts[row + 1] - stamp_starts[row])
