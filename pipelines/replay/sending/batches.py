"""Encodes messages as batches, column by column, and splits batches that would be too large."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.arrays_without_pandas import to_string_array
from commitlake.connectors.lake.packs.compiled_copying import copy
from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.reading.kernel.compile_options import compiled, inlined
from commitlake.pipelines.replay.origin_properties import DROPPED, origin_properties
from commitlake.pipelines.restore.arrow_conversion import to_bytes_and_offsets, to_int64_array
from commitlake.schemas.layouts.rocketmq import properties as layout
from commitlake.schemas.layouts.rocketmq import properties as props
from commitlake.schemas.layouts.rocketmq.sysflag import COMPRESSED, COMPRESSION_MASK
from commitlake.schemas.remoting.batch import ITEM, MIN_ITEM_SIZE

OWN_COLUMNS = to_string_array([props.KEYS, props.TAGS])
"""Properties that rows also have as columns."""
_TOO_LONG = "its properties and those that the replay adds are longer than 32,767 bytes"
_SEPARATORS = "a property, key, tag or topic has the character 0x01 or 0x02, which ends a property in a message"
_EQUALS = layout.NAME_VALUE_SEPARATOR
_NEXT = layout.PROPERTY_SEPARATOR
_FLAG_AT = ITEM.offset_of("flag")
_BODY_AT = ITEM.size


@dataclass(frozen=True, slots=True)
class EncodedPart:
    """Messages of one part of a plan, encoded as items of batch requests.

    Attributes:
        starts: int64[rows + 1], start of each message in `data`.
        data: the messages as items of batches, in the order of the rows.
        sys_flags: int64, the compression bits of each message.
        refused: rows whose properties no message can have, with the reason.
    """

    starts: Array
    data: memoryview
    sys_flags: Array
    refused: Mapping[int, str]

    def iterate_batches(self, rows: Array, max_bytes: int, max_messages: int) -> Iterator[Batch]:
        """Yield batches of the given rows, in their order.

        Args:
            rows: int64, row numbers of the part, in ascending order.
            max_bytes: maximum size of a batch; a larger message is a batch of its own.
            max_messages: maximum number of messages in a batch.
        """
        ends = np.cumsum(self.starts[rows + 1] - self.starts[rows])
        # A batch has one sysFlag, so it ends where the next message has another compression.
        changes = np.append(np.flatnonzero(np.diff(self.sys_flags[rows])) + 1, len(rows))
        first = 0
        while first < len(rows):
            taken = int(ends[first - 1]) if first else 0
            fitting = max(first + 1, int(np.searchsorted(ends, taken + max_bytes, side="right")))
            same = int(changes[np.searchsorted(changes, first, side="right")])
            last = min(fitting, first + max_messages, same)
            yield Batch(self, rows[first:last])
            first = last


@dataclass(frozen=True, slots=True)
class Batch:
    """Messages that are sent together in one request.

    Attributes:
        part: the part that has the messages.
        rows: int64, row numbers in the part, in ascending order.
    """

    part: EncodedPart
    rows: Array

    def __len__(self) -> int:
        """Return the number of messages."""
        return len(self.rows)

    @property
    def sys_flag(self) -> int:
        """Compression bits of sysFlag, which are the same for all messages of the batch."""
        return int(self.part.sys_flags[self.rows[0]])

    def body(self) -> bytes:
        """Return the body of the request that sends the messages."""
        starts, data = self.part.starts, self.part.data
        first, last = int(self.rows[0]), int(self.rows[-1])
        # Consecutive messages are one range of the data: one copy instead of one for each.
        if last - first + 1 == len(self.rows):
            return bytes(data[starts[first] : starts[last + 1]])
        return b"".join(data[starts[row] : starts[row + 1]] for row in self.rows)

    def drop_rows(self, rows: Collection[int]) -> Batch:
        """Return a batch without the messages in the given rows."""
        return replace(self, rows=self.rows[~np.isin(self.rows, np.fromiter(rows, np.int64, len(rows)))])

    def split_by_message(self) -> Iterator[Batch]:
        """Yield one batch for each message."""
        for number in range(len(self.rows)):
            yield replace(self, rows=self.rows[number : number + 1])


def encode_part(rows: pa.Table, bodies: pa.LargeBinaryArray, replay_id: str) -> EncodedPart:
    """Encode the messages of one part of a plan as items of batch requests.

    Args:
        rows: rows of `messages`, see `plan_part_rows.COLUMNS`.
        bodies: body of each row, as the broker stored it.
    """
    entries = rows.column("properties").combine_chunks()
    lengths, keys, items = split_properties(entries)
    firsts = _sizes_to_starts(lengths)
    is_kept = np.asarray(pc.invert(pc.is_in(keys, value_set=DROPPED)))
    names, name_starts = to_bytes_and_offsets(keys)
    values, value_starts = to_bytes_and_offsets(items)
    added = added_properties(rows, replay_id)
    stamp_data, stamp_starts = to_bytes_and_offsets(added)
    entry_sizes = np.where(is_kept, np.diff(name_starts) + np.diff(value_starts) + 2, 0)
    before = _sizes_to_starts(entry_sizes)
    property_sizes = before[firsts[1:]] - before[firsts[:-1]] + np.diff(stamp_starts)
    refused = dict.fromkeys(np.flatnonzero(property_sizes > props.MAX_SIZE).tolist(), _TOO_LONG)
    refused |= dict.fromkeys(
        np.flatnonzero(_rows_with_separators(rows, lengths, is_kept, keys, items)).tolist(), _SEPARATORS
    )
    body_data, body_starts = to_bytes_and_offsets(bodies)
    starts = _sizes_to_starts(MIN_ITEM_SIZE + np.diff(body_starts) + property_sizes)
    out = np.zeros(int(starts[-1]), np.uint8)
    write_batch_items(
        out, starts, to_int64_array(rows.column("flag").combine_chunks()), body_data, body_starts, property_sizes,
        firsts,
        is_kept, names, name_starts, values, value_starts, stamp_data, stamp_starts,
    )  # fmt: skip
    sys_flags = to_int64_array(rows.column("sys_flag").combine_chunks()) & (COMPRESSED | COMPRESSION_MASK)
    return EncodedPart(starts, out.data, sys_flags, refused)


def _rows_with_separators(
    rows: pa.Table, property_counts: Array, is_kept: Array, names: pa.Array, values: pa.Array
) -> Array:
    """Return a mask of rows with a separator character in a text, which would begin another property.

    In RocketMQ's own logs only damaged or forged records have such a text; in JMQ's any record may.
    """
    found = np.zeros(rows.num_rows, np.bool_)
    for name in ("broker", "msg_id", "topic", "tags"):
        found |= _contains_separator(rows.column(name).combine_chunks(), props.PROPERTY_SEPARATOR)
    listed = rows.column("keys").combine_chunks()
    _mark_rows_with_items(found, to_int64_array(pc.fill_null(pc.list_value_length(listed), 0)),
          _contains_separator(listed.flatten(), props.PROPERTY_SEPARATOR))  # fmt: skip
    is_wrong = _contains_separator(names, props.PROPERTY_SEPARATOR) | _contains_separator(
        names, props.NAME_VALUE_SEPARATOR
    )
    _mark_rows_with_items(
        found, property_counts, is_kept & (is_wrong | _contains_separator(values, props.PROPERTY_SEPARATOR))
    )
    return found


def _mark_rows_with_items(row_mask: Array, item_counts: Array, item_mask: Array) -> None:
    """Set `row_mask` where any of a row's items is marked in `item_mask`; row i has `item_counts[i]` items."""
    row_mask[np.repeat(np.arange(len(row_mask)), item_counts)[item_mask]] = True


def _contains_separator(texts: pa.Array, separator: int) -> Array:
    found: Array = np.asarray(pc.fill_null(pc.match_substring(texts.cast(pa.string()), chr(separator)), False))
    return found


def _sizes_to_starts(sizes: Array) -> Array:
    starts = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=starts[1:])
    return starts


def split_properties(properties: pa.MapArray) -> tuple[Array, pa.Array, pa.Array]:
    """Return the number of properties of each message, and arrays of all names and all values."""
    listed = properties.cast(pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())])))
    flat = listed.flatten()
    return to_int64_array(pc.fill_null(pc.list_value_length(listed), 0)), flat.field("key"), flat.field("value")


def added_properties(rows: pa.Table, replay_id: str) -> pa.Array:
    """Return the properties that a replay adds to each message, as bytes of a stored message.

    These are the message's origin, and keys and tags if the log has them in fields of their own, as JMQ's has.

    Args:
        rows: rows of `messages`, see `plan_part_rows.COLUMNS`.
    """
    added = origin_properties(rows, replay_id)
    formats = pc.fill_null(rows.column("format").cast(pa.string()), "rocketmq").combine_chunks()
    # In RocketMQ's logs, keys and tags are among the properties already.
    is_own = pc.not_equal(formats, "rocketmq")
    if not pc.any(is_own).as_py():
        return added
    keys = pc.binary_join(rows.column("keys").combine_chunks().cast(pa.list_(pa.string())), props.KEY_SEPARATOR)
    for name, values in ((props.KEYS, keys), (props.TAGS, rows.column("tags").combine_chunks().cast(pa.string()))):
        text = pc.fill_null(pc.binary_join_element_wise(f"{name}\x01", values, "\x02", ""), "")
        added = pc.binary_join_element_wise(added, pc.if_else(is_own, text, ""), "")
    return added


@inlined
def _write_int32(buffer: Array, offset: int, value: int) -> None:
    buffer[offset] = (value >> 24) & 0xFF
    buffer[offset + 1] = (value >> 16) & 0xFF
    buffer[offset + 2] = (value >> 8) & 0xFF
    buffer[offset + 3] = value & 0xFF


@compiled
def write_batch_items(
    items_buffer: Array, item_starts: Array, flags: Array, bodies: Array, body_starts: Array, property_sizes: Array,
    first_properties: Array, is_sent: Array, names: Array, name_starts: Array, values: Array, value_starts: Array,
    extra_properties: Array, extra_starts: Array,
) -> None:  # fmt: skip
    """Serialize messages into `items_buffer` one after another, each as an item of a batch request.

    Args:
        items_buffer: uint8, zeros; receives the items.
        item_starts: int64[rows + 1], start of each item in `items_buffer`.
        flags: int64, the applications' flags.
        bodies: uint8, read-only, bodies as they are sent.
        body_starts: int64[rows + 1], start of each body.
        property_sizes: int64, size of each message's properties, including the extra ones.
        first_properties: int64[rows + 1], index of each message's first property.
        is_sent: bool, True for each property that is sent.
        names: uint8, read-only, names of all properties.
        name_starts: int64[properties + 1], start of each name.
        values: uint8, read-only, values of all properties.
        value_starts: int64[properties + 1], start of each value.
        extra_properties: uint8, read-only, properties that are added after a message's own.
        extra_starts: int64[rows + 1], start of each message's extra properties.
    """
    for row in range(len(flags)):
        at = item_starts[row]
        size = body_starts[row + 1] - body_starts[row]
        _write_int32(items_buffer, at, item_starts[row + 1] - at)
        _write_int32(items_buffer, at + _FLAG_AT, flags[row])
        _write_int32(items_buffer, at + _FLAG_AT + 4, size)
        at += _BODY_AT
        copy(items_buffer, at, bodies, body_starts[row], size)
        at += size
        items_buffer[at] = (property_sizes[row] >> 8) & 0xFF
        items_buffer[at + 1] = property_sizes[row] & 0xFF
        at += 2
        for entry in range(first_properties[row], first_properties[row + 1]):
            if is_sent[entry]:
                size = name_starts[entry + 1] - name_starts[entry]
                copy(items_buffer, at, names, name_starts[entry], size)
                items_buffer[at + size] = _EQUALS
                at += size + 1
                size = value_starts[entry + 1] - value_starts[entry]
                copy(items_buffer, at, values, value_starts[entry], size)
                items_buffer[at + size] = _NEXT
                at += size + 1
        copy(items_buffer, at, extra_properties, extra_starts[row], extra_starts[row + 1] - extra_starts[row])
