"""Small files of one page, in which stores keep their progress: fields at the start, zeros after them."""

from __future__ import annotations

from typing import Any

from commitlake.schemas.layouts.base import Layout
from commitlake.schemas.layouts.errors import LayoutError

PAGE_SIZE = 4096


def parse_page(layout: Layout, name: str, data: bytes) -> tuple[Any, ...]:
    """Return the values of the fields in a file's bytes.

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


def serialize_page(fields: bytes) -> bytes:
    """Return the whole page with the given fields."""
    return fields.ljust(PAGE_SIZE, b"\0")
