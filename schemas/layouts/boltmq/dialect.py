"""Dialects of the CommitLog: what BoltMQ, RocketMQ's re-implementation in Go, writes otherwise than RocketMQ.

Folders, files, and the fields of records, BLANKs and ConsumeQueue entries are the same. What differs:

                        RocketMQ                           BoltMQ
    magic of a record   DAA320A7 (V1), DAA320AB (V2)       DAA320B7; there is no V2
    magic of a BLANK    CBD43194                           CBD431A4
    body_crc            CRC-32, top bit cleared            CRC-32 as a signed int32, negative half the time
    behind a BLANK      what stood there before            zeros
    tags_code           String.hashCode, 32 bit            FNV-1, 64 bit
    key_hash            abs of String.hashCode             abs of FNV-1a, 32 bit
    delayed messages    SCHEDULE_TOPIC_XXXX                SCHEDULE_TOPIC_XXX

Both compute the magics with one formula, of which Java takes `+` before `^`, and Go one after the other. BoltMQ knows
no IPv6 hosts and no transactions, and never writes the bits of sys_flag that stand for them.

BoltMQ's IndexFiles cannot be searched: its slots stay zero, and where an entry's key_hash should stand, it writes the
entry's own number. `has_key_index` tells; who needs a key reads the log.

A store is of one dialect. A reader need not know which: each record tells by its magic. Source: BoltMQ 1897b02
(2018-02-20), store/persistent/commit_log.go, consume_queue.go, index.go, schedule.go.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from commitlake.schemas.layouts.rocketmq import consumequeue, indexfile
from commitlake.schemas.layouts.rocketmq.hashing import fnv1_64, fnv1a_32
from commitlake.schemas.layouts.rocketmq.topics import BOLTMQ_SCHEDULE_TOPIC, SCHEDULE_TOPIC

_SEED, _STEP = 0xAABBCCDD, 1880681586
_BLANK_SEED = 0xBBCCDDEE


class Magic(IntEnum):
    """The second field of everything in a CommitLog, as the signed integer that Java sees."""

    V1 = -626843481
    V2 = -626843477
    BLANK = -875286124
    BOLTMQ = -626843465
    BOLTMQ_BLANK = -875286108


assert (Magic.V1 & 0xFFFFFFFF, Magic.BOLTMQ & 0xFFFFFFFF) == (_SEED ^ (_STEP + 8), (_SEED ^ _STEP) + 8)
assert (Magic.BLANK & 0xFFFFFFFF, Magic.BOLTMQ_BLANK & 0xFFFFFFFF) == (
    _BLANK_SEED ^ (_STEP + 8),
    (_BLANK_SEED ^ _STEP) + 8,
)


def _boltmq_tags_code(tags: str | None) -> int:
    code = fnv1_64(tags.encode()) if tags else 0
    return code - (1 << 64) if code >> 63 else code


def _boltmq_key_hash(topic: str, key: str) -> int:
    value = fnv1a_32(f"{topic}#{key}".encode())
    return 0 if value == 1 << 31 else min(value, (1 << 32) - value)


@dataclass(frozen=True)
class Dialect:
    """How the brokers of one family write a CommitLog and what follows from it.

    Attributes:
        name: whose it is, for a sentence.
        message: magic of a record whose topic's length has one byte.
        long_topic: magic of one whose topic's length has two, None where there is none.
        blank: magic of what closes a segment.
        crc_mask: the bits of a body's CRC-32 that are stored.
        has_v6_hosts: whether hosts may have IPv6 addresses.
        has_transactions: whether half messages are kept.
        tags_code: what a ConsumeQueue entry has for a TAGS value; 0 where there is none.
        key_hash: what an index entry is to have for a topic and a key.
        has_key_index: whether keys can be looked up in the IndexFiles.
        schedule_topic: where delayed messages wait.
    """

    name: str
    message: Magic
    long_topic: Magic | None
    blank: Magic
    crc_mask: int
    has_v6_hosts: bool
    has_transactions: bool
    tags_code: Callable[[str | None], int]
    key_hash: Callable[[str, str], int]
    has_key_index: bool
    schedule_topic: str

    def body_crc(self, body: bytes | bytearray | memoryview) -> int:
        """The checksum that a record stores for a body, as a signed integer; 0 for an empty one."""
        crc = zlib.crc32(body) & self.crc_mask
        return crc - (1 << 32) if crc >> 31 else crc

    @property
    def is_rocketmq(self) -> bool:
        """Whether it is what RocketMQ's own brokers and clients read."""
        return self.message is Magic.V1


ROCKETMQ = Dialect(
    name="RocketMQ",
    message=Magic.V1,
    long_topic=Magic.V2,
    blank=Magic.BLANK,
    crc_mask=0x7FFFFFFF,
    has_v6_hosts=True,
    has_transactions=True,
    tags_code=consumequeue.tags_code,
    key_hash=indexfile.key_hash,
    has_key_index=True,
    schedule_topic=SCHEDULE_TOPIC,
)
BOLTMQ = Dialect(
    name="BoltMQ",
    message=Magic.BOLTMQ,
    long_topic=None,
    blank=Magic.BOLTMQ_BLANK,
    crc_mask=0xFFFFFFFF,
    has_v6_hosts=False,
    has_transactions=False,
    tags_code=_boltmq_tags_code,
    key_hash=_boltmq_key_hash,
    has_key_index=False,
    schedule_topic=BOLTMQ_SCHEDULE_TOPIC,
)
DIALECTS = (ROCKETMQ, BOLTMQ)

DIALECT_BY_MAGIC = {
    magic: dialect
    for dialect in DIALECTS
    for magic in (dialect.message, dialect.long_topic, dialect.blank)
    if magic is not None
}
"""Whose a record or a BLANK is."""
BLANK_MAGICS = frozenset(dialect.blank for dialect in DIALECTS)
MESSAGE_MAGICS = frozenset(DIALECT_BY_MAGIC) - BLANK_MAGICS
MESSAGE_MAGIC_NAMES = "DAA320A7, DAA320AB or DAA320B7"
"""The magics of records, for a message to people."""
