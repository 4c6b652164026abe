"""Dialects of the CommitLog: RocketMQ's, and that of BoltMQ, its reimplementation in Go.

Folders, files, and the fields of records, BLANKs and ConsumeQueue entries are the same. Differences:

                        RocketMQ                           BoltMQ
    magic of a record   DAA320A7 (V1), DAA320AB (V2)       DAA320B7; there is no V2
    magic of a BLANK    CBD43194                           CBD431A4
    body_crc            CRC-32, top bit cleared            CRC-32 as a signed int32, negative half the time
    after a BLANK       old bytes of the file              zeros
    tags_code           String.hashCode, 32 bit            FNV-1, 64 bit
    key_hash            abs of String.hashCode             abs of FNV-1a, 32 bit
    delayed messages    SCHEDULE_TOPIC_XXXX                SCHEDULE_TOPIC_XXX

Both compute the magics with one formula, in which Java evaluates `+` before `^`, and Go from left to right. BoltMQ has
no IPv6 hosts and no transactions, and never sets the bits of sys_flag for them.

BoltMQ's IndexFiles cannot be searched: their slots are zero, and an entry contains its own number instead of key_hash.
So `has_key_index` is False, and a search for a key must read the log.

A store has one dialect. A reader need not know which, because each record's magic shows it. Source: BoltMQ 1897b02
(2018-02-20), store/persistent/commit_log.go, consume_queue.go, index.go, schedule.go.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from commitlake.schemas.layouts.rocketmq import consumequeue, indexfile
from commitlake.schemas.layouts.rocketmq.key_hashes import fnv1_64, fnv1a_32
from commitlake.schemas.layouts.rocketmq.topics import BOLTMQ_SCHEDULE_TOPIC, SCHEDULE_TOPIC

_SEED, _STEP = 0xAABBCCDD, 1880681586
_BLANK_SEED = 0xBBCCDDEE


class Magic(IntEnum):
    """Magic code, the second field of each record and BLANK in a CommitLog, as a signed integer like in Java."""

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
    """Variant of the CommitLog format that a family of brokers writes, such as RocketMQ's or BoltMQ's.

    Attributes:
        name: name of the family of brokers, for messages.
        message: magic of a record with one byte for the topic's length.
        long_topic: magic of a record with two bytes for the topic's length, or None.
        blank: magic of the BLANK that closes a segment.
        crc_mask: bits of a body's CRC-32 that are stored.
        has_v6_hosts: whether hosts may have IPv6 addresses.
        has_transactions: whether half messages exist.
        tags_code: function that returns the code of a TAGS value in a ConsumeQueue entry; 0 if there is none.
        key_hash: function that returns the hash of a topic and a key in an index entry.
        has_key_index: whether keys can be found with the IndexFiles.
        schedule_topic: topic of delayed messages.
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
        """Return the checksum that a record stores for a body, as a signed integer; 0 for an empty body."""
        crc = zlib.crc32(body) & self.crc_mask
        return crc - (1 << 32) if crc >> 31 else crc

    @property
    def is_rocketmq(self) -> bool:
        """True for the dialect that RocketMQ's own brokers and clients use."""
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
"""Dialect of a record or a BLANK, by its magic."""
BLANK_MAGICS = frozenset(dialect.blank for dialect in DIALECTS)
MESSAGE_MAGICS = frozenset(DIALECT_BY_MAGIC) - BLANK_MAGICS
MESSAGE_MAGIC_NAMES = "DAA320A7, DAA320AB or DAA320B7"
"""Magics of records, for messages to users."""
