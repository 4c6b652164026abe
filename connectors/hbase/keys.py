"""Row keys of the projection: one table with a row for each message, and index entries that point to it.

    m   salt · "m" · topic · time · place                     the message, all columns; value: see `cells`
    i   salt · "i" · offset · broker                          by offset message id; value: the key of its row m
    u   salt · "u" · unique key · time · place                by client message id; value as above
    k   salt · "k" · business key · time · place              one for each key; value as above

    salt    1 byte; computed from the place for m, from the search value for the others
    topic   8 bytes, BLAKE2b of its name; unique key, business key: 16 bytes, likewise
    time    8 bytes, store time in µs since 1970, big-endian with the top bit inverted; null is all ones and sorts last
    place   broker's name (UTF-8) · 0 · physical offset (8 bytes, as the time): the primary key of `messages`

Reasons for this design: there are three kinds of look-up (by id, by business key, by topic and time), but a row has
only one key. The message itself is stored under topic and time, because that look-up has the largest answers: it reads
a range sequentially. Ids and keys lead to few rows, which are then fetched by key. There is one table, because it is
dropped, created and updated as one; a second table of indexes could disagree with it.

    look-up                 costs, for n messages found
    offset message id       1 scan (1 row, or one for each broker that has a record at that offset), 1 get of n rows
    client message id, key  1 scan of n entries, 1 get of n rows; pages of both if n is large
    topic and time          a scan for each salt, merged: n rows, and at most one unneeded page for each salt

Brokers write in the order of time, so all keys that begin with a time would go to the last region. The salt spreads
rows of the same time over several regions. An entry's salt is computed from the search value, so one scan finds it.

All parts have a fixed width or a terminator, so different messages never share a key, and a longer topic name is never
in the range of a shorter one. Keys and topics are hashed because they may be long (a row key has at most 32 KiB) and
contain any characters. Hash collisions do no harm, because results are compared with the search value. Entries sort by
time, broker and offset, as `query`'s answers do, so a query with a limit reads no more rows than it returns.

JoyQueue's HBase store has two of these paths: by topic and time, and by topic and business id. It stores the message
with its body twice, once for each path; uses topic numbers from a counter in a second table; makes ids from a hash of
texts joined without separators; and has no salt. Here the message is stored once, without its body, and keys depend
only on the message.
"""

from __future__ import annotations

import struct
import zlib
from hashlib import blake2b

from commitlake.connectors.hbase.errors import HBaseError

CONTROL = b"\xff"
"""First byte of rows that are not messages; salts are smaller."""
MESSAGE, BY_OFFSET, BY_UNIQUE_KEY, BY_KEY = b"m", b"i", b"u", b"k"
NO_TIME = (1 << 64) - 1
_TOP_BIT = 1 << 63
_U64 = struct.Struct(">Q")
_TOPIC_BYTES = 8
_KEY_BYTES = 16


def encode_time(store_us: int | None) -> bytes:
    """Return a store time as bytes of a key, which sort like the time; null sorts last."""
    return _U64.pack(NO_TIME if store_us is None else store_us + _TOP_BIT)


def encode_position(broker: str, physical_offset: int) -> bytes:
    """Return a message's primary key, broker and offset, as bytes of a row key.

    Raises:
        HBaseError: if the name is not valid for a broker.
    """
    name = broker.encode()
    if b"\0" in name:
        raise HBaseError(f"expected the name of a broker without NUL characters, found {broker!r}")
    return name + b"\0" + _U64.pack(physical_offset + _TOP_BIT)


def topic_hash(topic: str | None) -> bytes:
    """Return a topic's hash as bytes of a key; zeros if there is no topic."""
    return bytes(_TOPIC_BYTES) if topic is None else blake2b(topic.encode(), digest_size=_TOPIC_BYTES).digest()


def key_hash(key: str) -> bytes:
    """Return the hash of a unique key or business key as bytes of a row key."""
    return blake2b(key.encode(), digest_size=_KEY_BYTES).digest()


def message_key(salt_count: int, topic: bytes, time: bytes, position: bytes) -> bytes:
    """Return the key of a message's row."""
    return bytes((zlib.crc32(position) % salt_count,)) + MESSAGE + topic + time + position


def offset_prefix(salt_count: int, physical_offset: int) -> bytes:
    """Return the common key prefix of all index entries for a physical offset, whatever their broker."""
    offset = _U64.pack(physical_offset + _TOP_BIT)
    return bytes((zlib.crc32(offset) % salt_count,)) + BY_OFFSET + offset


def entry_prefix(salt_count: int, entry_kind: bytes, key_hash_bytes: bytes) -> bytes:
    """Return the key prefix of index entries for a unique key or business key.

    Args:
        salt_count: the table's number of salts.
        entry_kind: `BY_UNIQUE_KEY` or `BY_KEY`.
        key_hash_bytes: result of `key_hash`.
    """
    return bytes((zlib.crc32(key_hash_bytes) % salt_count,)) + entry_kind + key_hash_bytes


def topic_prefix(salt: int, topic: str) -> bytes:
    """Return the key prefix of a topic's messages under one salt."""
    return bytes((salt,)) + MESSAGE + topic_hash(topic)


def prefix_end(prefix: bytes) -> bytes:
    """Return the end, exclusive, of the range of all keys with a prefix."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes((stem[-1] + 1,)) if stem else b""


def message_sort_key(key: bytes) -> bytes:
    """Return the part of a message's row key by which results are sorted: time, broker, offset."""
    return key[2 + _TOPIC_BYTES :]
