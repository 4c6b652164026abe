"""Java's String.hashCode, which RocketMQ stores as a tag's code and as an index key's hash."""

from __future__ import annotations

_MASK = 0xFFFFFFFF


def java_hash(text: str) -> int:
    """`String.hashCode()`: 31 * h + unit over UTF-16 code units, as a signed 32-bit integer.

    Characters beyond the basic plane count as their two surrogates.
    """
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & _MASK
    return value - (1 << 32) if value >> 31 else value
