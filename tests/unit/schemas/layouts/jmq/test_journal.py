"""Tests of the journal's records: fields, limits, and compressed bodies."""

from __future__ import annotations

from dataclasses import replace

import pytest

from commitlake.schemas.layouts.errors import UnserializableError
from commitlake.schemas.layouts.jmq.journal import (
    HEAD,
    MIN_RECORD_SIZE,
    JournalMessage,
    compress_body,
    parse_message,
    serialize_filler,
)
from commitlake.schemas.layouts.rocketmq.hosts import Host
from tests.support.journal_vectors import CLIENT, MESSAGE, RECORD, SENT, SERVER, SMALLEST, VECTORS, serialize
from tests.support.journals import original_body


def parse(record: bytes) -> JournalMessage:
    """Parse the message of a complete record."""
    parsed = parse_message(record)
    assert parsed is not None
    assert parsed[1] == parsed[0].size == len(record)
    return parsed[0]


@pytest.mark.parametrize("name", VECTORS)
def test_vector_is_parsed_to_the_sent_message(name: str) -> None:
    record, sent, place, times = VECTORS[name]
    message = parse(record)
    for field in ("topic", "body", "app", "business_id", "business_tag", "priority", "is_ordered", "is_compressed"):
        assert getattr(message, field) == getattr(sent, field), field
    assert message.property_pairs == list(sent.properties)
    assert {field: getattr(message, field) for field in place} == place
    assert (message.client_address, message.server_address) == (CLIENT, SERVER)
    assert (message.send_timestamp, message.receive_timestamp, message.store_timestamp) == (SENT, *times)


def test_reserved_bits_are_ignored_and_never_written() -> None:
    record = bytearray(RECORD)
    record[HEAD.offset_of("sys_flag")] |= 0xFC
    message = parse(bytes(record))
    assert (message.is_ordered, message.is_compressed) == (True, False)
    assert parse(serialize(replace(MESSAGE, is_compressed=True))).sys_flag == 0x03


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("business_tag", 0), ("business_tag", 0xFFFF), ("priority", 0), ("priority", 0xFF),
        ("topic", "t" * 255), ("topic", "ü" * 127), ("app", "a" * 255), ("business_id", "b" * 255),
        ("business_id", "Ordnung-ü-订单-😀"), ("body", bytes(70_000)), ("body", b""),
        ("client_address", Host.of("255.255.255.255", 65535)), ("client_address", Host.of("0.0.0.0", 0)),
        ("send_timestamp", 0), ("send_timestamp", -1), ("send_timestamp", (1 << 62)),
        ("properties", ()), ("properties", (("k", ""), ("k", "a=b\\\n"), ("ü", "v"))),
    ],
)  # fmt: skip
def test_value_at_a_boundary_is_read_back(field: str, value: object) -> None:
    message = parse(serialize(replace(MESSAGE, **{field: value})))  # type: ignore[arg-type]
    found = tuple(message.property_pairs) if field == "properties" else getattr(message, field)
    assert found == value


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("topic", "t" * 256, "topic"),
        ("topic", "ü" * 128, "topic"),
        ("app", "a" * 256, "app"),
        ("business_id", "\ud800", "business_id"),
        ("business_tag", 0x10000, "business_tag"),
        ("business_tag", -1, "business_tag"),
        ("priority", 0x100, "priority"),
        ("send_timestamp", 1 << 63, "send_timestamp"),
        ("client_address", Host.of("::1", 1), "client_ip"),
        ("client_address", Host.of("10.0.0.1", 65536), "client_port"),
        ("properties", (("", "v"),), "properties"),
        ("properties", (("k", "v" * 65534),), "properties"),
        ("properties", (("k", "\ud800"),), "properties"),
    ],
)
def test_value_that_is_too_large_is_refused(field: str, value: object, named: str) -> None:
    with pytest.raises(UnserializableError) as caught:
        serialize(replace(MESSAGE, **{field: value}))  # type: ignore[arg-type]
    assert caught.value.field == named


@pytest.mark.parametrize("field", ["queue_id", "queue_offset", "journal_offset"])
def test_a_position_that_is_too_large_is_refused(field: str) -> None:
    with pytest.raises(UnserializableError, match=field):
        serialize(MESSAGE, **{field: -1})


@pytest.mark.parametrize(
    ("delay", "kept"),
    [
        (0, 0),
        (-1, -1),
        ((1 << 31) - 1, (1 << 31) - 1),
        (1 << 31, (1 << 31) - 1),
        (-(1 << 31), -(1 << 31)),
        (-(1 << 40), -(1 << 31)),
    ],
)
def test_receive_times_too_far_from_the_send_time_are_clamped(delay: int, kept: int) -> None:
    message = parse(serialize(MESSAGE, received=SENT + delay, stored=SENT + 1))
    assert (message.receive_timestamp, message.store_timestamp) == (SENT + kept, SENT + 1)


def test_store_time_is_relative_to_the_send_time_and_not_to_the_receive_time() -> None:
    record = serialize(MESSAGE, received=SENT + 5, stored=SENT + 9)
    assert record[HEAD.offset_of("store_delay") :][:4] == b"\0\0\0\x09"


def test_smallest_record_has_72_bytes() -> None:
    assert len(SMALLEST) == MIN_RECORD_SIZE == 72


def test_filler_has_the_bytes_left_and_its_magic() -> None:
    assert serialize_filler(200) == bytes.fromhex("000000c8 bbbb")


@pytest.mark.parametrize(
    ("body", "is_compressed"),
    [(b"", False), (b"a" * 100, False), (b"a" * 101, True), (bytes(range(256)), False)],
)
def test_only_longer_bodies_that_get_smaller_are_compressed(body: bytes, is_compressed: bool) -> None:
    stored, compressed = compress_body(body)
    assert compressed is is_compressed
    assert (stored == body) is not is_compressed
    message = parse(serialize(replace(MESSAGE, body=stored, is_compressed=compressed)))
    assert original_body(message) == body
