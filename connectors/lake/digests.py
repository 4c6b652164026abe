"""Text files with one line of content, and its SHA-256 in the second line, by which damage is detected."""

from __future__ import annotations

import hashlib


def digest(data: bytes) -> str:
    """Return the SHA-256 in hex."""
    return hashlib.sha256(data).hexdigest()


def with_digest(text: bytes) -> bytes:
    """Return a line followed by the line with its digest."""
    return text + b"\n" + digest(text).encode() + b"\n"


def without_digest(data: bytes) -> bytes | None:
    """Return the line in such bytes; None if they are damaged."""
    text, _, found = data.removesuffix(b"\n").partition(b"\n")
    return text if found.decode("ascii", "replace") == digest(text) else None
