"""A line of text followed by a line with its SHA-256: what is damaged is told from what was written."""

from __future__ import annotations

import hashlib


def digest(data: bytes) -> str:
    """SHA-256 in hex."""
    return hashlib.sha256(data).hexdigest()


def with_digest(text: bytes) -> bytes:
    """The line, and the line with its digest."""
    return text + b"\n" + digest(text).encode() + b"\n"


def without_digest(data: bytes) -> bytes | None:
    """The line that such bytes hold; None where they are damaged."""
    text, _, found = data.removesuffix(b"\n").partition(b"\n")
    return text if found.decode("ascii", "replace") == digest(text) else None
