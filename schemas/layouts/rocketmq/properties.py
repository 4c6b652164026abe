"""Message properties: `key 0x01 value 0x02`, repeated, in UTF-8.

Brokers 4.9.1 to 5.1.4 write no 0x02 after the last entry; both forms are read, and the newer one is written. Keys may
repeat (brokers 4.9.4 to 5.3.3 append the header properties of a batch to each of its messages): RocketMQ uses the last
value, and the message's own UNIQ_KEY is the first. Source: MessageDecoder.string2messageProperties.
"""

from __future__ import annotations

from collections.abc import Iterable

from commitlake.schemas.layouts.errors import UnserializableError
from commitlake.schemas.layouts.integer_parsing import parse_int32

NAME_VALUE_SEPARATOR = 0x01
PROPERTY_SEPARATOR = 0x02
MAX_SIZE = 32_767
"""Maximum size, because propertiesLength is an int16."""

KEYS = "KEYS"
TAGS = "TAGS"
UNIQ_KEY = "UNIQ_KEY"
DELAY = "DELAY"
REAL_TOPIC = "REAL_TOPIC"
REAL_QID = "REAL_QID"
RETRY_TOPIC = "RETRY_TOPIC"
DLQ_ORIGIN_TOPIC = "DLQ_ORIGIN_TOPIC"
ORIGIN_GROUP = "ORIGIN_GROUP"
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
TRAN_MSG = "TRAN_MSG"
PGROUP = "PGROUP"
WAIT = "WAIT"
TIMER_OUT = "TIMER_OUT_MS"
PRIORITY = "_SYS_MSG_PRIORITY_"
CLUSTER = "CLUSTER"
REGION = "MSG_REGION"
TRACE_ON = "TRACE_ON"
BROKER_MARKS = frozenset({CLUSTER, REGION, TRACE_ON})
"""Properties that a 5.x broker adds to every message."""
KEY_SEPARATOR = " "

Pairs = list[tuple[str, str]]


def parse_properties(data: bytes) -> Pairs:
    """Parse serialized properties into (key, value) pairs, in stored order and including repeated keys.

    As in the broker's decoder, an entry without a 0x01 that has at least one byte on both sides is skipped, and bytes
    that are not UTF-8 become U+FFFD; use `is_utf8` if that matters.
    """
    pairs: Pairs = []
    for entry in data.decode("utf-8", "replace").split("\x02"):
        key, separator, value = entry.partition("\x01")
        if key and separator and value:
            pairs.append((key, value))
    return pairs


def is_utf8(data: bytes) -> bool:
    """Return whether serialized properties are valid UTF-8, so that every decoder reads the same text."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def serialize_properties(pairs: Iterable[tuple[str, str]]) -> bytes:
    """Serialize properties with a 0x02 after every entry, as brokers since 5.2.0 do.

    Raises:
        UnserializableError: if a key or value is empty or contains a separator, or the result has more than 32,767
            bytes.
    """
    parts: list[str] = []
    for key, value in pairs:
        if not key or not value:
            raise UnserializableError("properties", "keys and values of at least one character", f"{key!r}={value!r}")
        parts.append(f"{key}\x01{value}\x02")
    text = "".join(parts)
    # Two counts over the whole text are much cheaper than a search in every key and value, and this runs for each
    # message.
    if text.count("\x01") != len(parts) or text.count("\x02") != len(parts):
        bad = next(part for part in parts if part.count("\x01") != 1 or part.count("\x02") != 1)
        raise UnserializableError("properties", "no 0x01 or 0x02 in keys and values", repr(bad))
    data = text.encode()
    if len(data) > MAX_SIZE:
        raise UnserializableError("properties", f"at most {MAX_SIZE} bytes", f"{len(data)} bytes")
    return data


def split_keys(value: str) -> list[str]:
    """Split a KEYS property at spaces into business keys, without empty parts."""
    return [key for key in value.split(KEY_SEPARATOR) if key]


def first_value(pairs: Pairs, key: str) -> str | None:
    """Return the value of a key's first entry, or None."""
    return next((value for name, value in pairs if name == key), None)


def parse_priority(value: str | None) -> int | None:
    """Parse a priority property; return None if it is missing or not a 32-bit integer."""
    return parse_int32(value)
