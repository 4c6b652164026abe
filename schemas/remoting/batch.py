"""Body of SEND_BATCH_MESSAGE (320): consecutive messages, big-endian.

    offset  size  field
         0     4  total_size           bytes, this field included
         4     4  magic                0; ignored
         8     4  body_crc             0; the broker computes it
        12     4  flag                 the application's flag
        16     4  body_length          bytes
        20     n  body
               2  properties_length    int16
               p  properties           see schemas.layouts.rocketmq.properties

All messages have the same topic, which is not a retry topic, and no delays.
Source: MessageDecoder.encodeMessage, MessageExtEncoder.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from commitlake.schemas.layouts.base import Field, Layout, ReadableBuffer
from commitlake.schemas.layouts.errors import LayoutError, UnserializableError
from commitlake.schemas.layouts.rocketmq.properties import MAX_SIZE

ITEM = Layout(
    Field("total_size", "i", "bytes of the item"),
    Field("magic", "i", "0"),
    Field("body_crc", "i", "0"),
    Field("flag", "i", "the application's flag"),
    Field("body_length", "i", "bytes"),
)
PROPERTIES_LENGTH = Layout(Field("properties_length", "h", "bytes"))
MIN_ITEM_SIZE = ITEM.size + PROPERTIES_LENGTH.size
assert (ITEM.size, MIN_ITEM_SIZE) == (20, 22)


class BatchItem(NamedTuple):
    """One message in the body of a batch."""

    flag: int
    body: bytes
    properties: bytes


def parse_batch(body: ReadableBuffer, limit: int | None = None) -> list[BatchItem]:
    """Parse the body of a batch request into its messages.

    Args:
        limit: maximum number of messages; None for any number.

    Raises:
        LayoutError: if the body is not a sequence of complete items, or has too many.
    """
    items = []
    position = 0
    data = bytes(body)  # no copy if it is bytes, whose slices are the fastest
    while position < len(data):
        item, size = _parse_item(data, position)
        items.append(item)
        if limit is not None and len(items) > limit:
            raise LayoutError("batch", position, f"at most {limit} messages", "more")
        position += size
    return items


def _parse_item(data: bytes, offset: int) -> tuple[BatchItem, int]:
    left = len(data) - offset
    if left < MIN_ITEM_SIZE:
        raise LayoutError("batch item", offset, f"at least {MIN_ITEM_SIZE} bytes", f"{left}")
    size, _, _, flag, body_length = ITEM.unpack(data, offset)
    if not MIN_ITEM_SIZE <= size <= left:
        raise LayoutError("total_size", offset, f"{MIN_ITEM_SIZE} to {left}", f"{size}")
    if not 0 <= body_length <= size - MIN_ITEM_SIZE:
        raise LayoutError("body_length", offset + 16, f"0 to {size - MIN_ITEM_SIZE}", f"{body_length}")
    body = offset + ITEM.size
    properties = body + body_length + PROPERTIES_LENGTH.size
    (properties_length,) = PROPERTIES_LENGTH.unpack(data, properties - PROPERTIES_LENGTH.size)
    if properties_length != offset + size - properties:
        position = properties - PROPERTIES_LENGTH.size
        raise LayoutError("properties_length", position, f"{offset + size - properties}", f"{properties_length}")
    return BatchItem(flag, data[body : body + body_length], data[properties : offset + size]), size


def serialize_batch(items: Iterable[BatchItem]) -> bytes:
    """Return the body of a batch with the given messages.

    Raises:
        UnserializableError: if properties have more than 32,767 bytes.
    """
    parts = []
    for item in items:
        if len(item.properties) > MAX_SIZE:
            raise UnserializableError("properties", f"at most {MAX_SIZE} bytes", f"{len(item.properties)} bytes")
        size = MIN_ITEM_SIZE + len(item.body) + len(item.properties)
        parts += [
            ITEM.pack(size, 0, 0, item.flag, len(item.body)),
            item.body,
            PROPERTIES_LENGTH.pack(len(item.properties)),
            item.properties,
        ]
    return b"".join(parts)
