"""Fixed binary regions, declared as a list of fields.

A `Layout` derives from one list what a writer, a parser and a vectorised reader need: the struct, each field's offset,
the region's size and a numpy dtype, so that offsets are never typed by hand. All formats here are big-endian.

A small file in which a store keeps its progress is a page: fields at the start, zeros after them.
"""

from __future__ import annotations

import mmap
import struct
from typing import Any, NamedTuple

from commitlake.schemas.layouts.errors import LayoutError

ReadableBuffer = bytes | bytearray | memoryview | mmap.mmap

_NUMPY_CODES = {"b": "i1", "B": "u1", "h": ">i2", "H": ">u2", "i": ">i4", "I": ">u4", "q": ">i8", "Q": ">u8"}
PAGE_SIZE = 4096


class Field(NamedTuple):
    """One field of a `Layout`: its name, its `struct` code and its meaning.

    Attributes:
        name: upstream's name in snake case.
        code: a `struct` code: b 1, h 2, i 4, q 8 bytes; capitals are unsigned.
        note: meaning, with its unit.
    """

    name: str
    code: str
    note: str


class Layout:
    """Layout of a fixed-size region of bytes: named big-endian fields, one after another.

    Attributes:
        fields: fields in order.
        struct: packs and unpacks the whole region.
        size: size of the region in bytes.
    """

    def __init__(self, *fields: Field) -> None:
        self.fields = fields
        self.struct = struct.Struct(">" + "".join(field.code for field in fields))
        self.size = self.struct.size
        self._offsets: dict[str, int] = {}
        position = 0
        for field in fields:
            self._offsets[field.name] = position
            position += struct.calcsize(">" + field.code)

    def offset_of(self, name: str) -> int:
        """Return the position of a field from the region's first byte."""
        return self._offsets[name]

    def pack(self, *values: int) -> bytes:
        """Return the region's bytes for values in declared order."""
        return self.struct.pack(*values)

    def unpack(self, buffer: ReadableBuffer, offset: int = 0) -> tuple[Any, ...]:
        """Return the region's values in declared order, read at `offset`."""
        return self.struct.unpack_from(buffer, offset)

    @property
    def numpy_fields(self) -> list[tuple[str, str]]:
        """Names and types of the fields, as the argument for `numpy.dtype`."""
        return [(field.name, _NUMPY_CODES[field.code]) for field in self.fields]


def parse_file_head(layout: Layout, name: str, data: bytes) -> tuple[Any, ...]:
    """Parse the fields at the start of a small file, such as a checkpoint.

    Args:
        layout: layout of the fields.
        name: name of the file, for the error.
        data: bytes of the file; bytes after the fields are ignored.

    Raises:
        LayoutError: if the file is shorter than its fields.
    """
    if len(data) < layout.size:
        raise LayoutError(name, 0, f"at least {layout.size} bytes", f"{len(data)} bytes")
    return layout.unpack(data)


def pad_to_page(fields: bytes) -> bytes:
    """Return the bytes of a whole page: the values of the given fields, followed by zeros."""
    return fields.ljust(PAGE_SIZE, b"\0")
