"""Decompression of bodies, with limits for the size and for the compression ratio.

A body is untrusted, and its decompressed size is not known in advance. Therefore it is decompressed piece by piece, and
only up to its limits. One limit is absolute. The other is proportional to the stored size, because a batch has many
small bodies, and each of them could otherwise become a large one.
"""

from __future__ import annotations

import zlib

import pyarrow as pa

from commitlake.connectors.reading.errors import BodyError
from commitlake.schemas.layouts.rocketmq.sysflag import BodyCodec, body_codec

DEFAULT_MAX_BYTES = 64 << 20
DEFAULT_MAX_RATIO = 1100  # the limits of zlib and lz4 are 1,032 and 255
FREE_BYTES = 1 << 20  # free of the ratio limit, because zstd compresses a repetitive body to a few bytes


def decompress_by_sys_flag(
    body: bytes, sys_flag: int, max_bytes: int = DEFAULT_MAX_BYTES, max_ratio: int = DEFAULT_MAX_RATIO
) -> bytes:
    """Return a body decompressed as its sys_flag says, or unchanged if it is not compressed.

    Args:
        body: the body as stored.
        sys_flag: the sys_flag of the message; its bits name the codec.
        max_bytes: see `decompress_as`.
        max_ratio: see `decompress_as`.

    Raises:
        BodyError: if the bytes are not in the codec of the flag bits, or exceed a limit.
    """
    codec = body_codec(sys_flag)
    if codec is BodyCodec.UNKNOWN:
        raise BodyError(
            f"sys_flag {sys_flag:#x} says that the body is compressed: expected the bits of zlib, lz4 or zstd in it, "
            "found none of them"
        )
    return decompress_as(body, codec, max_bytes, max_ratio)


def decompress_as(
    body: bytes, codec: BodyCodec, max_bytes: int = DEFAULT_MAX_BYTES, max_ratio: int = DEFAULT_MAX_RATIO
) -> bytes:
    """Decompress a body with a given codec.

    Args:
        body: the body as stored.
        codec: the codec of the body; with NONE, it is returned unchanged.
        max_bytes: the largest decompressed size.
        max_ratio: the largest number of decompressed bytes per stored byte, beyond the first `FREE_BYTES`.

    Raises:
        BodyError: if the bytes are not in this codec, or exceed a limit.
    """
    if codec is BodyCodec.NONE:
        return body
    if codec is BodyCodec.UNKNOWN:
        raise BodyError("body: expected one of zlib, lz4 and zstd, found an unknown codec")
    limit = min(max_bytes, max(FREE_BYTES, max_ratio * len(body)))
    try:
        # One byte more than allowed, so that a body at the limit is told from a larger one.
        data = _inflate_body(body, limit + 1) if codec is BodyCodec.ZLIB else _decompress_stream(body, codec, limit + 1)
    except (zlib.error, OSError, pa.ArrowInvalid) as error:
        raise BodyError(
            f"body: expected a stream of {codec}, found {len(body)} bytes that are not one: {error}"
        ) from None
    if len(data) > limit:
        which = "" if limit == max_bytes else f" ({max_ratio} bytes for each stored byte)"
        raise BodyError(f"body: {len(body)} bytes of {codec} decompress to more than the limit of {limit} bytes{which}")
    return data


def _inflate_body(body: bytes, limit: int) -> bytes:
    inflater = zlib.decompressobj()
    data = inflater.decompress(body, limit)
    # At the limit the stream is not at its end either; the caller refuses it for its size.
    if not inflater.eof and len(data) < limit:
        raise zlib.error("the stream is truncated: its end is missing")
    return data


def _decompress_stream(body: bytes, codec: BodyCodec, limit: int) -> bytes:
    # Arrow takes an empty stream for a complete one.
    if not body:
        raise OSError("expected a compressed stream, found no bytes")
    pieces, size = [], 0
    with pa.CompressedInputStream(pa.BufferReader(body), str(codec)) as stream:
        while size < limit and (piece := stream.read(min(1 << 20, limit - size))):
            pieces.append(piece)
            size += len(piece)
    return b"".join(pieces)
