"""Tests of the CommitLog's records: fields and limits."""

from __future__ import annotations

import pytest

from commitlake.schemas.layouts.boltmq.dialect import Magic
from commitlake.schemas.layouts.errors import UnserializableError
from commitlake.schemas.layouts.rocketmq.commitlog import (
    MIN_RECORD_SIZE,
    body_crc,
    parse_message,
    serialize_blank,
)
from commitlake.schemas.layouts.rocketmq.hosts import Host
from tests.support.logs import new_message, records
from tests.support.record_vectors import BORN, STORED, VECTORS


@pytest.mark.parametrize("name", VECTORS)
def test_record_is_parsed_to_the_sent_message(name: str) -> None:
    record, sent, place, msg_id = VECTORS[name]
    parsed = parse_message(record)
    assert parsed is not None
    message, size = parsed
    assert size == message.size == len(record)
    assert (message.topic, message.body, message.queue_id) == (sent.topic, sent.body, sent.queue_id)
    assert (message.born_timestamp, message.store_timestamp) == (BORN, STORED)
    assert (message.born_host, message.store_host) == (sent.born_host, place["store_host"])
    assert message.property_pairs == list(sent.properties)
    assert message.reconsume_times == sent.reconsume_times
    assert message.physical_offset == place["physical_offset"]
    assert message.msg_id == msg_id


@pytest.mark.parametrize(
    ("body", "crc"),
    [(b"", 0), (b"a", 0x68B7BE43), (b"123456789", 0x4BF43926), (b"abc", 0x352441C2)],
)
def test_body_crc_has_its_top_bit_cleared(body: bytes, crc: int) -> None:
    assert body_crc(body) == crc


@pytest.mark.parametrize("length", [1, 126, 127])
def test_topics_up_to_127_characters_are_v1(length: int) -> None:
    parsed = parse_message(records([new_message(topic="t" * length)])[0])
    assert parsed is not None
    assert (parsed[0].magic, parsed[0].topic) == (Magic.V1, "t" * length)


@pytest.mark.parametrize("length", [128, 255, 256, 65535])
def test_longer_topics_are_v2(length: int) -> None:
    parsed = parse_message(records([new_message(topic="t" * length)])[0])
    assert parsed is not None
    assert (parsed[0].magic, parsed[0].topic) == (Magic.V2, "t" * length)


@pytest.mark.parametrize("topic", ["", "t" * 65536, "ü" * 127 + "ü" * 32641])
def test_topic_that_is_too_long_is_refused(topic: str) -> None:
    with pytest.raises(UnserializableError, match="topic"):
        records([new_message(topic=topic)])


def test_smallest_record_has_91_bytes_and_an_empty_body() -> None:
    smallest = bytearray(records([new_message(topic="t", body=b"", properties=())])[0])
    assert len(smallest) == MIN_RECORD_SIZE + 1
    assert parse_message(bytes(smallest)) is not None


def test_host_bits_follow_from_the_hosts() -> None:
    sent = new_message(sys_flag=0x31, born_host=Host.of("::1", 1))
    parsed = parse_message(records([sent])[0])
    assert parsed is not None
    assert parsed[0].sys_flag == 0x11
    assert str(parsed[0].born_host) == "[::1]:1"


def test_blank_is_as_the_broker_writes_it() -> None:
    assert serialize_blank(200) == bytes.fromhex("000000c8 cbd43194")


def test_repeated_keys_show_the_last_value_and_the_first_unique_key() -> None:
    pairs = (("UNIQ_KEY", "own"), ("WAIT", "true"), ("UNIQ_KEY", "batch"), ("KEYS", "a  b"))
    parsed = parse_message(records([new_message(properties=pairs)])[0])
    assert parsed is not None
    message = parsed[0]
    assert message.property_pairs == list(pairs)
    assert message.properties == {"UNIQ_KEY": "batch", "WAIT": "true", "KEYS": "a  b"}
    assert message.unique_key == "own"
    assert message.keys == ["a", "b"]
