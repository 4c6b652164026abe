"""Decompression: every codec, and both limits, for any bytes."""

from __future__ import annotations

import zlib

import pyarrow as pa
import pytest

from commitlake.connectors.reading.decoding.bodies import (
    DEFAULT_MAX_BYTES,
    FREE_BYTES,
    decompress_as,
    decompress_by_sys_flag,
)
from commitlake.connectors.reading.errors import BodyError
from commitlake.schemas.layouts.rocketmq.sysflag import BodyCodec

CODECS = [BodyCodec.ZLIB, BodyCodec.LZ4, BodyCodec.ZSTD]
FLAGS = {BodyCodec.ZLIB: 0x301, BodyCodec.LZ4: 0x101, BodyCodec.ZSTD: 0x201}


def compressed(body: bytes, codec: BodyCodec) -> bytes:
    """Compress a body as a producer does."""
    if codec is BodyCodec.ZLIB:
        return zlib.compress(body, 9)
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, str(codec)) as stream:
        stream.write(body)
    stored: bytes = sink.getvalue().to_pybytes()
    return stored


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size", [0, 1, 100_000, 3 << 20])
def test_a_decompressed_body_equals_the_sent_body(codec: BodyCodec, size: int) -> None:
    body = bytes(number * number % 251 for number in range(1000)) * (size // 1000) + b"x" * (size % 1000)
    stored = compressed(body, codec)
    assert decompress_by_sys_flag(stored, FLAGS[codec]) == decompress_as(stored, codec) == body


def test_a_body_without_compression_is_returned_unchanged() -> None:
    assert decompress_by_sys_flag(b"x" * 100, 0, max_bytes=1) == b"x" * 100


@pytest.mark.parametrize("codec", CODECS)
def test_the_absolute_limit_applies_to_the_decompressed_size(codec: BodyCodec) -> None:
    stored = compressed(bytes(1000), codec)
    assert decompress_as(stored, codec, max_bytes=1000) == bytes(1000)
    with pytest.raises(BodyError, match=rf"^body: {len(stored)} bytes of .* more than the limit of 999 bytes"):
        decompress_as(stored, codec, max_bytes=999)


@pytest.mark.parametrize("codec", CODECS)
def test_the_ratio_applies_after_the_free_bytes(codec: BodyCodec) -> None:
    free = compressed(bytes(FREE_BYTES), codec)
    assert decompress_as(free, codec, max_ratio=1) == bytes(FREE_BYTES)
    more = compressed(bytes(FREE_BYTES + 1), codec)
    with pytest.raises(BodyError, match=rf"more than the limit of {FREE_BYTES} bytes \(1 bytes for each stored byte\)"):
        decompress_as(more, codec, max_ratio=1)
    enough = -(-(FREE_BYTES + 1) // len(more))
    assert decompress_as(more, codec, max_ratio=enough) == bytes(FREE_BYTES + 1)


def test_a_zstd_bomb_is_refused_by_the_ratio_before_the_absolute_limit() -> None:
    bomb = compressed(bytes(DEFAULT_MAX_BYTES), BodyCodec.ZSTD)
    assert len(bomb) < 20_000
    with pytest.raises(BodyError, match="1100 bytes for each stored byte"):
        decompress_as(bomb, BodyCodec.ZSTD)


@pytest.mark.parametrize("codec", [BodyCodec.ZLIB, BodyCodec.LZ4])
def test_the_strongest_zlib_and_lz4_compression_is_within_the_default_ratio(codec: BodyCodec) -> None:
    body = bytes(DEFAULT_MAX_BYTES)
    assert decompress_as(compressed(body, codec), codec) == body


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("stored", [b"", b"\0", b"not compressed at all"])
def test_other_bytes_are_an_error(codec: BodyCodec, stored: bytes) -> None:
    with pytest.raises(BodyError, match=f"expected a stream of {codec}, found {len(stored)} bytes that are not one"):
        decompress_as(stored, codec)


@pytest.mark.parametrize("codec", CODECS)
def test_a_body_that_is_cut_is_an_error(codec: BodyCodec) -> None:
    stored = compressed(bytes(range(256)) * 100, codec)
    for length in (len(stored) - 1, len(stored) // 2):
        with pytest.raises(BodyError, match=f"expected a stream of {codec}"):
            decompress_as(stored[:length], codec)


def test_flag_bits_that_name_no_codec_are_an_error() -> None:
    with pytest.raises(BodyError, match=r"sys_flag 0x701 says .*: expected the bits of zlib, lz4 or zstd"):
        decompress_by_sys_flag(b"x", 0x701)
    with pytest.raises(BodyError, match="unknown codec"):
        decompress_as(b"x", BodyCodec.UNKNOWN)
