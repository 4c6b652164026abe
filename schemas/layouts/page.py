"""Small files of one page: fields at the start, zeros after them. Stores keep such files for how far they have come."""

from __future__ import annotations

from typing import Any

from commitlake.schemas.layouts.base import Layout
from commitlake.schemas.layouts.errors import LayoutError

PAGE_SIZE = 4096


def parse_page(layout: Layout, name: str, data: bytes) -> tuple[Any, ...]:
    """Return the values of the fields in a file's bytes.

    Args:
        layout: the fields.
        name: of the file, for the error.
        data: its bytes; what follows the fields does not count.

    Raises:
        LayoutError: if the file is shorter than its fields.
    """
    if len(data) < layout.size:
        raise LayoutError(name, 0, f"at least {layout.size} bytes", f"{len(data)} bytes")
    return layout.unpack(data)


def serialize_page(fields: bytes) -> bytes:
    """Return the whole file with these fields."""
    return fields.ljust(PAGE_SIZE, b"\0")
