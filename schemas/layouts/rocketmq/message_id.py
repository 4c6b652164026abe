"""Offset message id: host and log position of a record, in the text form that brokers print.

Upper-case hex of the store host's address (4 or 16 bytes), its port (int32) and the physical offset (int64): 32 or 56
characters. A client's UNIQ_KEY has the same lengths, so the text alone does not show which of the two it is.
Source: MessageDecoder.createMessageId and decodeMessageId.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import NamedTuple

from commitlake.schemas.layouts.errors import LayoutError
from commitlake.schemas.layouts.rocketmq.hosts import V4_SIZE, V6_SIZE, Host, parse_host, serialize_host

_OFFSET = struct.Struct(">q")
V4_LENGTH = 2 * (V4_SIZE + _OFFSET.size)
V6_LENGTH = 2 * (V6_SIZE + _OFFSET.size)
assert (V4_LENGTH, V6_LENGTH) == (32, 56)


class MessageId(NamedTuple):
    """Store host and physical offset of a record, the two parts of its message id."""

    store_host: Host
    physical_offset: int


def parse_message_id(text: str) -> MessageId:
    """Parse an offset message id into the store host and the physical offset.

    Raises:
        LayoutError: if `text` is not 32 or 56 hexadecimal digits.
    """
    if len(text) not in (V4_LENGTH, V6_LENGTH):
        raise LayoutError("msg_id", 0, f"{V4_LENGTH} or {V6_LENGTH} hexadecimal digits", f"{len(text)} characters")
    try:
        data = bytes.fromhex(text)
    except ValueError:
        raise LayoutError("msg_id", 0, "hexadecimal digits", repr(text)) from None
    if len(data) * 2 != len(text):  # fromhex ignores white space
        raise LayoutError("msg_id", 0, "hexadecimal digits", repr(text))
    host = parse_host(data, 0, is_v6=len(text) == V6_LENGTH)
    return MessageId(host, _OFFSET.unpack_from(data, len(data) - _OFFSET.size)[0])


def parse_id_offset(text: str | None) -> int:
    """Return the physical offset in an offset message id; -1 if the text is None or no such id."""
    try:
        return -1 if text is None else parse_message_id(text.strip()).physical_offset
    except LayoutError:
        return -1


def serialize_message_id(store_host: Host, physical_offset: int) -> str:
    """Return the id of the record at `physical_offset` in the log of `store_host`."""
    return _host_to_hex(store_host) + _OFFSET.pack(physical_offset).hex().upper()


@lru_cache(maxsize=64)
def _host_to_hex(host: Host) -> str:
    return serialize_host(host).hex().upper()
