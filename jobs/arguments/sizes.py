"""Formatting of sizes in bytes."""

from __future__ import annotations

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def size_text(byte_count: float) -> str:
    """Format a size with one digit after the point: `512 B`, `1.5 GiB`."""
    for unit in _UNITS[:-1]:
        if byte_count < 1024:
            return f"{byte_count:.0f} {unit}" if unit == "B" else f"{byte_count:.1f} {unit}"
        byte_count /= 1024
    return f"{byte_count:.1f} {_UNITS[-1]}"
