"""Hashes of tags and of index keys: Java's String.hashCode for RocketMQ, FNV for BoltMQ."""

from __future__ import annotations

from operator import mul

_MASK = 0xFFFFFFFF
_MASK_64 = (1 << 64) - 1
FNV_64_BASIS, FNV_64_PRIME = 0xCBF29CE484222325, 0x100000001B3
_SHORT = 128
_WEIGHTS = tuple(pow(31, exponent, 1 << 32) for exponent in range(_SHORT - 1, -1, -1))


def java_hash(text: str) -> int:
    """Return Java's `String.hashCode()`: 31 * h + unit over UTF-16 code units, as a signed 32-bit integer.

    A character outside the basic plane counts as two surrogates.
    """
    if text.isascii() and len(text) <= _SHORT:
        # The sum of weighted units is equal, and three times as fast for short ASCII text, which nearly all keys and
        # tags are.
        value: int = sum(map(mul, text.encode(), _WEIGHTS[_SHORT - len(text) :])) & _MASK
    else:
        value = 0
        units = text.encode("utf-16-be", "surrogatepass")
        for high, low in zip(units[::2], units[1::2], strict=True):
            value = (31 * value + (high << 8 | low)) & _MASK
    return _to_signed32(value)


def extend_java_hash(head_hash: int, tail: str) -> int:
    """Return Java's hash of a text, given the hash of its first part and the remaining part.

    Args:
        head_hash: `java_hash` of the first part.
        tail: rest of the text.
    """
    if tail.isascii() and len(tail) < _SHORT:
        start = _SHORT - len(tail)
        return _to_signed32((head_hash * _WEIGHTS[start - 1] + sum(map(mul, tail.encode(), _WEIGHTS[start:]))) & _MASK)
    units = len(tail.encode("utf-16-be", "surrogatepass")) // 2
    return _to_signed32((head_hash * pow(31, units, 1 << 32) + java_hash(tail)) & _MASK)


def fnv1_64(data: bytes) -> int:
    """Return the unsigned 64-bit FNV-1 hash: multiply, then xor."""
    value = FNV_64_BASIS
    for byte in data:
        value = (value * FNV_64_PRIME & _MASK_64) ^ byte
    return value


def fnv1a_32(data: bytes) -> int:
    """Return the unsigned 32-bit FNV-1a hash: xor, then multiply."""
    value = 0x811C9DC5
    for byte in data:
        value = (value ^ byte) * 0x01000193 & _MASK
    return value


def _to_signed32(value: int) -> int:
    return value - (1 << 32) if value >> 31 else value
