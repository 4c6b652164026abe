"""Records of the journal, both ways, against vectors that were written by hand from the table of fields."""

from __future__ import annotations

from dataclasses import replace

import pytest

from commitlake.schemas.layouts.errors import LayoutError, UnserializableError
from commitlake.schemas.layouts.jmq.body import compress_body, original_body
from commitlake.schemas.layouts.jmq.journal import (
    HEAD,
    MIN_RECORD_SIZE,
    JournalMessage,
    NewJournalMessage,
    parse_message,
    serialize_filler,
    serialize_message,
)
from commitlake.schemas.layouts.rocketmq.hosts import Host

CLIENT, SERVER = Host.of("10.0.0.1", 50123), Host.of("10.0.0.2", 50088)
SENT = 1_700_000_000_123
RECORD = bytes.fromhex(
    "0000006c 12340200 00000000 00000000 00000100 00000000 0000000a 000001c3"
    "cb0a0000 02c3a800 00018bcf e5687b00 00000500 00000900 000000b7 8ee54000"
    "00000948 656c6c6f 204a4d51 0a6f7264 65725f70 61696404 73686f70 0a6f7264"
    "65722d31 30303100 036b3d76"
)
SMALLEST = bytes.fromhex(
    "00000048 12340000 00000000 00000000 006c0000 00000000 0000000a 000001c3"
    "cb0a0000 02c3a800 00018bcf e5687b00 00000000 00000000 00000000 00000000"
    "00000000 00000000"
)
MESSAGE = NewJournalMessage(
    "order_paid", b"Hello JMQ", SENT, CLIENT, "shop", "order-1001", is_ordered=True, properties=(("k", "v"),)
)
EMPTY = NewJournalMessage("", b"", SENT, CLIENT)

VECTORS = {
    "full": (RECORD, MESSAGE, {"queue_id": 1, "queue_offset": 0, "journal_offset": 0}, (SENT + 5, SENT + 9)),
    "smallest": (SMALLEST, EMPTY, {"queue_id": 0, "queue_offset": 0, "journal_offset": 108}, (SENT, SENT)),
}


def serialize(message: NewJournalMessage, received: int = SENT, stored: int = SENT, **place: int) -> bytes:
    """A record, by default the first of the journal."""
    values = {"queue_id": 0, "queue_offset": 0, "journal_offset": 0} | place
    return serialize_message(
        message, receive_timestamp=received, store_timestamp=stored, server_address=SERVER, **values
    )


def parse(record: bytes) -> JournalMessage:
    """The message of a whole record."""
    parsed = parse_message(record)
    assert parsed is not None
    assert parsed[1] == parsed[0].size == len(record)
    return parsed[0]


@pytest.mark.parametrize("name", VECTORS)
def test_message_is_serialized_to_the_vector(name: str) -> None:
    record, message, place, times = VECTORS[name]
    assert serialize(message, *times, **place) == record


@pytest.mark.parametrize("name", VECTORS)
def test_vector_is_parsed_to_what_was_sent(name: str) -> None:
    record, sent, place, times = VECTORS[name]
    message = parse(record)
    for field in ("topic", "body", "app", "business_id", "business_tag", "priority", "is_ordered", "is_compressed"):
        assert getattr(message, field) == getattr(sent, field), field
    assert message.property_pairs == list(sent.properties)
    assert {field: getattr(message, field) for field in place} == place
    assert (message.client_address, message.server_address) == (CLIENT, SERVER)
    assert (message.send_timestamp, message.receive_timestamp, message.store_timestamp) == (SENT, *times)


@pytest.mark.parametrize("name", VECTORS)
def test_record_cut_at_any_length_is_not_all_here_yet(name: str) -> None:
    record = VECTORS[name][0]
    assert all(parse_message(record[:length]) is None for length in range(len(record)))


@pytest.mark.parametrize("name", VECTORS)
def test_record_is_found_behind_other_bytes_and_before_others(name: str) -> None:
    record = VECTORS[name][0]
    assert parse_message(b"before" + record + b"after", 6) == parse_message(record)


@pytest.mark.parametrize(
    ("position", "data", "field"),
    [
        (4, b"\0\0", "magic"),
        (4, b"\xbb\xbb", "magic"),
        (0, b"\0\0\0\x47", "total_size"),  # one byte less than the smallest record
        (0, b"\0\0\0\0", "total_size"),
        (63, b"\xff\xff\xff\xff", "body_length"),
        (63, b"\x00\x00\x00\x25", "body_length"),  # one byte more than there is room for
        (76, b"\xff", "topic_length"),
        (87, b"\xff", "app_length"),
        (92, b"\xff", "business_id_length"),
        (103, b"\xff\xff", "properties_length"),
        (103, b"\x00\x02", "properties_length"),  # one byte less than there are
        (67, b"h", "body_crc"),
        (55, b"\0\0\0\1", "body_crc"),  # the upper half counts
    ],
)
def test_wrong_byte_is_an_error_that_names_its_field(position: int, data: bytes, field: str) -> None:
    record = bytearray(RECORD)
    record[position : position + len(data)] = data
    with pytest.raises(LayoutError) as caught:
        parse_message(bytes(record))
    assert caught.value.field == field
    assert caught.value.expected
    assert caught.value.found


def test_size_that_claims_more_than_there_is_waits_for_it() -> None:
    assert parse_message(b"\xff\xff\xff\xff" + RECORD[4:]) is None


def test_body_that_fails_its_crc_can_be_read_on_request() -> None:
    parsed = parse_message(RECORD.replace(b"Hello", b"hello"), verify_crc=False)
    assert parsed is not None
    assert parsed[0].body == b"hello JMQ"


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
def test_value_at_a_boundary_comes_back(field: str, value: object) -> None:
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
def test_value_without_room_is_refused(field: str, value: object, named: str) -> None:
    with pytest.raises(UnserializableError) as caught:
        serialize(replace(MESSAGE, **{field: value}))  # type: ignore[arg-type]
    assert caught.value.field == named


@pytest.mark.parametrize("field", ["queue_id", "queue_offset", "journal_offset"])
def test_place_without_room_is_refused(field: str) -> None:
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
def test_times_far_from_the_producers_are_kept_as_near_as_they_can_be(delay: int, kept: int) -> None:
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


STREAM = compress_body(b"a" * 1000)[0]


@pytest.mark.parametrize(
    ("stored", "found"),
    [
        (b"no stream", "a zlib stream"),
        (STREAM[:-1], "cut"),
        (b"", "cut"),
        (STREAM + b"x", "1 bytes behind it"),
    ],
)
def test_body_that_is_no_zlib_stream_is_an_error(stored: bytes, found: str) -> None:
    message = parse(serialize(replace(MESSAGE, body=stored, is_compressed=True)))
    with pytest.raises(LayoutError, match=found):
        original_body(message)


def test_body_is_decompressed_up_to_a_limit_only() -> None:
    message = parse(serialize(replace(MESSAGE, body=STREAM, is_compressed=True)))
    assert len(original_body(message, 1000)) == 1000
    with pytest.raises(LayoutError, match="at most 999 bytes"):
        original_body(message, 999)
