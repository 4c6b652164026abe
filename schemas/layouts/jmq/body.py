"""Compression of the bodies of journal records.

A producer compresses a body of more than 100 bytes as a zlib stream; a body that does not get smaller is stored as it
is. A stored body has at most 4 MiB.
"""

from __future__ import annotations

import zlib

from commitlake.schemas.layouts.errors import LayoutError
from commitlake.schemas.layouts.jmq.journal import JournalMessage

COMPRESSED_ABOVE_BYTES = 100
DEFAULT_LEVEL = 1
"""Three times as fast as zlib's default, and a few percent larger for JSON."""
DEFAULT_MAX_BODY_BYTES = 256 << 20
"""A stored body of 4 MiB can grow a thousandfold, so larger decompressed bodies are refused."""


def compress_body(body: bytes, level: int = DEFAULT_LEVEL) -> tuple[bytes, bool]:
    """Return the body in stored form, and whether it is compressed."""
    if len(body) <= COMPRESSED_ABOVE_BYTES:
        return body, False
    compressed = zlib.compress(body, level)
    return (compressed, True) if len(compressed) < len(body) else (body, False)


def original_body(message: JournalMessage, max_bytes: int = DEFAULT_MAX_BODY_BYTES) -> bytes:
    """Return the body as the producer's application sent it.

    Args:
        max_bytes: maximum size of a decompressed body.

    Raises:
        LayoutError: if a compressed body is not a zlib stream, is truncated, or is followed by more bytes; or if it
        would exceed `max_bytes`.
    """
    if not message.is_compressed:
        return message.body
    inflater = zlib.decompressobj()
    try:
        body = inflater.decompress(message.body, max_bytes + 1)
    except zlib.error as error:
        raise LayoutError("body", 0, "a zlib stream", f"{error}") from error
    if len(body) > max_bytes:
        raise LayoutError("body", 0, f"at most {max_bytes} bytes when decompressed", "more")
    if not inflater.eof:
        raise LayoutError("body", 0, "a complete zlib stream", f"one that is truncated after {len(message.body)} bytes")
    if inflater.unused_data:
        raise LayoutError("body", 0, "only a zlib stream", f"{len(inflater.unused_data)} bytes after it")
    return body
