"""Bits of a message's sysFlag: compression of the body, transaction type, and host sizes.

Source: org.apache.rocketmq.common.sysflag.MessageSysFlag, 4.9.4 and later (older clients never set the
compression type, which then reads as 0 and means zlib).
"""

from __future__ import annotations

from enum import IntEnum, StrEnum

COMPRESSED = 0x0001
TRANSACTION_MASK = 0x000C
BORN_HOST_V6 = 0x0010
STORE_HOST_V6 = 0x0020
NEED_UNWRAP = 0x0040
INNER_BATCH = 0x0080
COMPRESSION_MASK = 0x0700
ZLIB_LEVEL = 5
"""Compression level of the Java client for zlib."""


class TransactionType(IntEnum):
    """Transaction type of a record, two bits; brokers store only NOT and COMMIT."""

    NOT = 0x0
    PREPARED = 0x4
    COMMIT = 0x8
    ROLLBACK = 0xC


class BodyCodec(StrEnum):
    """Compression of a stored body. UNKNOWN stands for flag bits that no released client writes."""

    NONE = "none"
    ZLIB = "zlib"
    LZ4 = "lz4"
    ZSTD = "zstd"
    UNKNOWN = "unknown"


_CODEC_BY_BITS = {0x000: BodyCodec.ZLIB, 0x100: BodyCodec.LZ4, 0x200: BodyCodec.ZSTD, 0x300: BodyCodec.ZLIB}
_BITS_BY_CODEC = {
    BodyCodec.NONE: 0,
    BodyCodec.ZLIB: COMPRESSED | 0x300,
    BodyCodec.LZ4: COMPRESSED | 0x100,
    BodyCodec.ZSTD: COMPRESSED | 0x200,
}


def transaction_type(sys_flag: int) -> TransactionType:
    """Return the transaction type of a record."""
    return TransactionType(sys_flag & TRANSACTION_MASK)


def body_codec(sys_flag: int) -> BodyCodec:
    """Return the compression of a stored body, as shown by the message's sysFlag."""
    if not sys_flag & COMPRESSED:
        return BodyCodec.NONE
    return _CODEC_BY_BITS.get(sys_flag & COMPRESSION_MASK, BodyCodec.UNKNOWN)


def compression_bits(codec: BodyCodec) -> int:
    """Return the flag bits that a 5.x producer sets for a codec.

    Raises:
        KeyError: for UNKNOWN, which must not be written.
    """
    return _BITS_BY_CODEC[codec]
