"""Compression of large bodies before they are sent, as in Java's client."""

from __future__ import annotations

import zlib

import pyarrow as pa

from commitlake.connectors.rocketmq.errors import ClientOptionError
from commitlake.schemas.layouts.rocketmq.sysflag import ZLIB_LEVEL, BodyCodec, compression_bits

DEFAULT_THRESHOLD_BYTES = 4096
CODECS = (BodyCodec.ZLIB, BodyCodec.LZ4, BodyCodec.ZSTD, BodyCodec.NONE)


def check_codec(name: str) -> BodyCodec:
    """Return the codec of this name, or raise an error for an unknown name.

    Raises:
        ClientOptionError: if there is no such codec.
    """
    if name not in CODECS:
        raise ClientOptionError(f"compression: expected one of {', '.join(CODECS)}, found {name!r}")
    return BodyCodec(name)


def compress(body: bytes, codec: BodyCodec) -> tuple[bytes, int]:
    """Return the compressed body, and the bits of sysFlag that state its compression."""
    if codec is BodyCodec.NONE:
        return body, 0
    data = zlib.compress(body, ZLIB_LEVEL) if codec is BodyCodec.ZLIB else pa.compress(body, str(codec), asbytes=True)
    return data, compression_bits(codec)
