"""Row keys: fixed widths, the order of answers, and no two messages with one key."""

from __future__ import annotations

import random

import pytest

from commitlake.connectors.hbase.errors import HBaseError
from commitlake.connectors.hbase.keys import (
    BY_KEY,
    BY_UNIQUE_KEY,
    CONTROL,
    encode_position,
    encode_time,
    entry_prefix,
    key_hash,
    message_key,
    message_sort_key,
    offset_prefix,
    prefix_end,
    topic_hash,
    topic_prefix,
)
from commitlake.connectors.hbase.options import MAX_SALTS

TIMES = (-(1 << 62), -1, 0, 1, 1_795_281_516_446_000, 1 << 62, None)
# As they lie in tables: another key would not find them.
KNOWN_MESSAGE = "076dd5acebe867b47f4d800660cc8d0f413062726f6b65722d61008000000000001000"
KNOWN_ENTRY = "0c6b51846388a4afb0fdf64b2a7c7beb1c2b"
KNOWN_OFFSET = "02698000000000001000"
PLACES = [("a", 0), ("a", 1), ("a", 1 << 62), ("ab", 0), ("b", 5), ("ä", 0), ("東", 0)]


def test_keys_sort_as_time_broker_and_offset_do() -> None:
    ordered = [(time, place) for time in TIMES for place in PLACES]
    shuffled = random.Random(1).sample(ordered, len(ordered))
    found = sorted(shuffled, key=lambda pair: encode_time(pair[0]) + encode_position(*pair[1]))
    assert found == ordered


def test_a_message_without_a_time_sorts_after_every_time() -> None:
    assert encode_time(None) > encode_time((1 << 63) - 2)


def test_the_sorting_part_of_a_key_is_parsed() -> None:
    time, place = encode_time(5), encode_position("broker-a", 7)
    assert message_sort_key(message_key(16, topic_hash("orders"), time, place)) == time + place


def test_a_topics_messages_are_in_one_range_of_each_salt() -> None:
    for salts in (1, 16, MAX_SALTS):
        for offset in range(500):
            key = message_key(salts, topic_hash("orders"), encode_time(offset), encode_position("b", offset))
            assert key[0] < salts
            prefix = topic_prefix(key[0], "orders")
            assert prefix <= key < prefix_end(prefix)
            assert not key.startswith(topic_prefix(key[0], "orders-eu"))


def test_salts_spread_messages_of_one_time() -> None:
    keys = [message_key(16, topic_hash("orders"), encode_time(1), encode_position("b", 1000 * n)) for n in range(1600)]
    counts = [sum(key[0] == salt for key in keys) for salt in range(16)]
    assert min(counts) > 50


def test_kinds_of_entries_have_disjoint_key_ranges() -> None:
    hashed = key_hash("order-1")
    prefixes = {entry_prefix(1, BY_KEY, hashed), entry_prefix(1, BY_UNIQUE_KEY, hashed), offset_prefix(1, 1)}
    assert len(prefixes) == 3
    assert all(prefix < CONTROL for prefix in prefixes)


@pytest.mark.parametrize(
    ("prefix", "end"), [(b"a", b"b"), (b"a\xff", b"b"), (b"\x00m\xff\xff", b"\x00n"), (b"\xff", b"")]
)
def test_the_end_of_a_range_is_the_first_key_after_it(prefix: bytes, end: bytes) -> None:
    assert prefix_end(prefix) == end


def test_a_brokers_name_that_would_be_ambiguous_is_refused() -> None:
    with pytest.raises(HBaseError, match="without NUL characters"):
        encode_position("a\0b", 1)


def test_keys_do_not_change() -> None:
    place = encode_position("broker-a", 4096)
    assert message_key(16, topic_hash("orders"), encode_time(1_795_281_516_446_000), place).hex() == KNOWN_MESSAGE
    assert entry_prefix(16, BY_KEY, key_hash("order-4711")).hex() == KNOWN_ENTRY
    assert offset_prefix(16, 4096).hex() == KNOWN_OFFSET
