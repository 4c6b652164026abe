"""Header of a remoting frame in RocketMQ's own serialization; schemas.remoting.frames describes its content.

    offset  size  field
         0     2  code                         at most 32,767
         2     1  language
         3     2  version
         5     4  opaque
         9     4  flag
        13     4  remark_length                bytes, 0 for none
              n   remark                       UTF-8
              4   ext_fields_length            bytes
              m   ext_fields                   {int16 length, key, int32 length, value}, repeated

Source: RocketMQSerializable of RocketMQ 4.9.7 and 5.5.0.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple

from commitlake.schemas.layouts.base import Field, Layout
from commitlake.schemas.layouts.errors import LayoutError, UnserializableError

BINARY_HEADER = Layout(
    Field("code", "h", "code of the request or of the answer"),
    Field("language", "B", "see commitlake.schemas.remoting.frames.Language"),
    Field("version", "h", "version of the sender, see commitlake.schemas.remoting.versions"),
    Field("opaque", "i", "number of the request, repeated in its answer"),
    Field("flag", "i", "see commitlake.schemas.remoting.frames"),
)
"""Fixed part of a header, which is followed by the remark and the ext fields."""
assert BINARY_HEADER.size == 13

_LENGTH = struct.Struct(">i")
_KEY_LENGTH = struct.Struct(">h")


class BinaryHeader(NamedTuple):
    """Values of a header."""

    code: int
    language: int
    version: int
    opaque: int
    flag: int
    remark: str | None
    ext_fields: Mapping[str, str]


def parse_binary_header(header: bytes, start: int) -> BinaryHeader:
    """Parse a complete header.

    Args:
        start: position of the header in the parsed buffer, for errors.

    Raises:
        LayoutError: if the bytes are not a valid header.
    """
    if len(header) < BINARY_HEADER.size:
        raise LayoutError("header", start, f"at least {BINARY_HEADER.size} bytes", f"{len(header)}")
    code, language, version, opaque, flag = BINARY_HEADER.struct.unpack_from(header)
    remark, position = _read_text("remark", header, BINARY_HEADER.size, _LENGTH, start)
    fields_length, position = _read_length("ext_fields", header, position, _LENGTH, start)
    if position + fields_length != len(header):
        expected = f"{len(header) - position}, all that is left of the header"
        raise LayoutError("ext_fields_length", start + position - 4, expected, f"{fields_length}")
    fields = {}
    while position < len(header):
        key, position = _read_text("ext_fields key", header, position, _KEY_LENGTH, start)
        fields[key], position = _read_text("ext_fields value", header, position, _LENGTH, start)
    return BinaryHeader(code, language, version, opaque, flag, remark or None, fields)


def _read_length(name: str, header: bytes, position: int, form: struct.Struct, start: int) -> tuple[int, int]:
    """Return a length and the position after it."""
    after = position + form.size
    if after > len(header):
        raise LayoutError(f"{name} length", start + position, f"{form.size} bytes", f"{len(header) - position}")
    length: int = form.unpack_from(header, position)[0]
    if not 0 <= length <= len(header) - after:
        raise LayoutError(f"{name} length", start + position, f"0 to {len(header) - after}", f"{length}")
    return length, after


def _read_text(name: str, header: bytes, position: int, form: struct.Struct, start: int) -> tuple[str, int]:
    length, after = _read_length(name, header, position, form, start)
    return header[after : after + length].decode("utf-8", "replace"), after + length


def serialize_binary_header(header: BinaryHeader) -> bytes:
    """Serialize a header.

    Raises:
        UnserializableError: if a number or a text does not fit in the format.
    """
    fields: list[bytes] = []
    for key, value in header.ext_fields.items():
        name, data = _encoded(key), _encoded(value)
        if len(name) > 0x7FFF:
            raise UnserializableError("ext_fields key", "at most 32767 bytes", f"{len(name)} bytes")
        fields += (_KEY_LENGTH.pack(len(name)), name, _LENGTH.pack(len(data)), data)
    remark = _encoded(header.remark or "")
    packed = b"".join(fields)
    try:
        head = BINARY_HEADER.pack(header.code, header.language, header.version, header.opaque, header.flag)
    except struct.error:
        found = f"code {header.code}, version {header.version}, opaque {header.opaque}, flag {header.flag}"
        raise UnserializableError("header", "code and version of 16 bits, opaque and flag of 32", found) from None
    return b"".join((head, _LENGTH.pack(len(remark)), remark, _LENGTH.pack(len(packed)), packed))


def _encoded(text: str) -> bytes:
    # As in Java's UTF-8, an unpaired surrogate, which JSON may contain, becomes a question mark.
    return text.encode("utf-8", "replace")
