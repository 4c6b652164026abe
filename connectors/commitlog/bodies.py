"""Bodies as producers sent them: decompression with a limit.

A body is hostile: its size once decompressed is not known before, so that it is decompressed a piece at a time, and
no further than its limit.
"""

from __future__ import annotations

import zlib

import pyarrow as pa

from connectors.commitlog.errors import BodyError
from schemas.layouts.sysflag import BodyCodec, body_codec

DEFAULT_MAX_BYTES = 64 << 20


def decompress(body: bytes, sys_flag: int, max_bytes: int = DEFAULT_MAX_BYTES) -> bytes:
    """The body as the producer gave it; a body that is not compressed comes back as it is.

    Raises:
        BodyError: where the bytes are not what the flag bits say, or are more than `max_bytes`.
    """
    codec = body_codec(sys_flag)
    if codec is BodyCodec.NONE:
        return body
    if codec is BodyCodec.UNKNOWN:
        raise BodyError(f"sys_flag {sys_flag:#x}: expected the bits of zlib, lz4 or zstd, found none of them")
    try:
        data = _inflate(body, max_bytes + 1) if codec is BodyCodec.ZLIB else _stream(body, codec, max_bytes + 1)
    except (zlib.error, OSError, pa.ArrowInvalid) as error:
        raise BodyError(f"body: expected {codec}, found {len(body)} bytes that are not: {error}") from None
    if len(data) > max_bytes:
        raise BodyError(f"body: expected at most {max_bytes} bytes, found more in {len(body)} bytes of {codec}")
    return data


def _inflate(body: bytes, limit: int) -> bytes:
    inflater = zlib.decompressobj()
    data = inflater.decompress(body, limit)
    if not inflater.eof and len(data) < limit:
        raise zlib.error("the stream is cut")
    return data


def _stream(body: bytes, codec: BodyCodec, limit: int) -> bytes:
    pieces, size = [], 0
    with pa.CompressedInputStream(pa.BufferReader(body), str(codec)) as stream:
        while size < limit and (piece := stream.read(min(1 << 20, limit - size))):
            pieces.append(piece)
            size += len(piece)
    return b"".join(pieces)
