"""Row keys of the projection: one table with a row for each message, and index entries that point to it.

    m   salt · "m" · topic · time · place                     the message, all columns; value: see `cells`
    i   salt · "i" · offset · broker                          by offset message id; value: the key of its row m
    u   salt · "u" · unique key · time · place                by client message id; value as above
    k   salt · "k" · business key · time · place              one for each key; value as above

    salt    1 byte; of the place for m, of what is looked up for the others
    topic   8 bytes, BLAKE2b of its name; unique key, business key: 16 bytes, likewise
    time    8 bytes, store time in µs since 1970, big-endian with the top bit turned; all ones for none: last, as in SQL
    place   broker's name (UTF-8) · 0 · physical offset (8 bytes, as the time): what `messages` has as its primary key

Why so. Three questions are asked (an id, a business key, a topic and a time), and a row has one key. The message itself
stands where the question with the largest answers finds it: a range of a topic is read straight on, while ids and keys
lead to few rows, which are then got by key. One table, because it is dropped, made and follows the lake as one; a
second table of indexes could disagree with it.

    look-up                 costs, for n messages found
    offset message id       1 scan (1 row, or one for each broker that has a record at that offset), 1 get of n rows
    client message id, key  1 scan of n entries, 1 get of n rows; pages of both where n is large
    topic and time          a scan for each salt, merged: n rows, and at most a page for each salt that is not wanted

Brokers write in time's order, so that keys which begin with a time would all go to the last region. The salt spreads
what is written at one time over as many places. An entry's salt comes from what is asked for, so that one scan finds
it.

All parts have fixed widths or an end, so that different messages never share a key, and a longer topic is not mistaken
for a range of a shorter one. Keys and topics are hashed because they may be long (a row key may have 32 KiB) and of any
characters; a hash that two share does no harm, as what is found is compared with what was asked for. Entries sort by
time, broker and offset, which is the order of `query`'s answers: a limit needs no more rows than it gives.

JoyQueue's HBase store has two of these paths, by topic and time and by topic and business id. It stores the message
with its body twice, once for each; asks for the topic's number, which a counter in a second table gives; knows ids by a
hash of texts joined without separators; and has no salt. Here the message is stored once, without its body, and no key
depends on anything but the message.
"""

from __future__ import annotations

import struct
import zlib
from hashlib import blake2b

from commitlake.connectors.hbase.errors import RowError

CONTROL = b"\xff"
"""First byte of rows that are not messages: no salt is as large."""
MESSAGE, BY_OFFSET, BY_UNIQUE_KEY, BY_KEY = b"m", b"i", b"u", b"k"
NO_TIME = (1 << 64) - 1
_TOP_BIT = 1 << 63
_U64 = struct.Struct(">Q")
_TOPIC_BYTES = 8
_KEY_BYTES = 16


def time_bytes(store_us: int | None) -> bytes:
    """Return a time as part of a key that sorts like the time; null sorts last."""
    return _U64.pack(NO_TIME if store_us is None else store_us + _TOP_BIT)


def place_bytes(broker: str, physical_offset: int) -> bytes:
    """Return a message's primary key as part of a row key.

    Raises:
        RowError: for a broker's name that no broker can have.
    """
    name = broker.encode()
    if b"\0" in name:
        raise RowError(f"the broker's name {broker!r} has a NUL character: expected a name without")
    return name + b"\0" + _U64.pack(physical_offset + _TOP_BIT)


def topic_hash(topic: str | None) -> bytes:
    """Return a topic as part of a key; zeros for none."""
    return bytes(_TOPIC_BYTES) if topic is None else blake2b(topic.encode(), digest_size=_TOPIC_BYTES).digest()


def key_hash(key: str) -> bytes:
    """Return a unique key or a business key as part of a row key."""
    return blake2b(key.encode(), digest_size=_KEY_BYTES).digest()


def message_key(salts: int, topic: bytes, time: bytes, place: bytes) -> bytes:
    """Return the key of a message's row."""
    return bytes((zlib.crc32(place) % salts,)) + MESSAGE + topic + time + place


def offset_prefix(salts: int, physical_offset: int) -> bytes:
    """Return the key prefix of index entries for an offset, one entry for each broker's message."""
    offset = _U64.pack(physical_offset + _TOP_BIT)
    return bytes((zlib.crc32(offset) % salts,)) + BY_OFFSET + offset


def entry_prefix(salts: int, kind: bytes, hashed: bytes) -> bytes:
    """Return the key prefix of index entries for a unique key or business key.

    Args:
        salts: the table's number of salts.
        kind: `BY_UNIQUE_KEY` or `BY_KEY`.
        hashed: from `key_hash`.
    """
    return bytes((zlib.crc32(hashed) % salts,)) + kind + hashed


def topic_prefix(salt: int, topic: str) -> bytes:
    """Return the key prefix of a topic's messages in one salt."""
    return bytes((salt,)) + MESSAGE + topic_hash(topic)


def end_of(prefix: bytes) -> bytes:
    """Return the first key after all keys with a prefix."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes((stem[-1] + 1,)) if stem else b""


def sort_key(key: bytes) -> bytes:
    """Return the sorting part of a message's row key: time, broker, offset."""
    return key[2 + _TOPIC_BYTES :]
