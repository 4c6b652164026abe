"""Tests of the records of a log, both ways, against vectors written by hand or by a real broker's encoder."""

from __future__ import annotations

import pytest

from commitlake.schemas.layouts.errors import LayoutError
from tests.support.log_formats import LOG_FORMATS

VECTORS = [(name, vector) for name, known in LOG_FORMATS.items() for vector in known.vectors]
FULL = {name: next(iter(known.vectors.values()))[0] for name, known in LOG_FORMATS.items()}
"""The record of each format that has all parts, with the body `Hello …`."""
each_format = pytest.mark.parametrize("name", LOG_FORMATS)
each_vector = pytest.mark.parametrize(("name", "vector"), VECTORS)


@each_vector
def test_message_is_serialized_to_the_vector(name: str, vector: str) -> None:
    record, serialize = LOG_FORMATS[name].vectors[vector]
    assert serialize() == record


@each_vector
def test_record_cut_at_any_length_is_incomplete(name: str, vector: str) -> None:
    record, _ = LOG_FORMATS[name].vectors[vector]
    assert all(LOG_FORMATS[name].parse(record[:length]) is None for length in range(len(record)))


@each_vector
def test_record_is_found_between_other_bytes(name: str, vector: str) -> None:
    parse, (record, _) = LOG_FORMATS[name].parse, LOG_FORMATS[name].vectors[vector]
    parsed = parse(b"before" + record + b"after", 6)
    assert parsed is not None
    assert parsed == parse(record)


@pytest.mark.parametrize(
    ("name", "position", "data", "field"),
    [
        ("rocketmq", 4, b"\0\0\0\0", "magic"),
        ("rocketmq", 4, b"\xcb\xd4\x31\x94", "magic"),
        ("rocketmq", 0, b"\0\0\0\x5a", "total_size"),  # one byte less than the smallest record
        ("rocketmq", 0, b"\xff\xff\xff\xff", "total_size"),
        ("rocketmq", 84, b"\xff\xff\xff\xff", "body_length"),
        ("rocketmq", 84, b"\x7f\xff\xff\xff", "body_length"),
        ("rocketmq", 102, b"\xff", "topic_length"),
        ("rocketmq", 112, b"\xff\xff", "properties_length"),
        ("rocketmq", 112, b"\x00\x43", "properties_length"),  # one byte less than there are
        ("rocketmq", 88, b"h", "body_crc"),
        ("jmq", 4, b"\0\0", "magic"),
        ("jmq", 4, b"\xbb\xbb", "magic"),
        ("jmq", 0, b"\0\0\0\x47", "total_size"),  # one byte less than the smallest record
        ("jmq", 0, b"\0\0\0\0", "total_size"),
        ("jmq", 63, b"\xff\xff\xff\xff", "body_length"),
        ("jmq", 63, b"\x00\x00\x00\x25", "body_length"),  # one byte more than there is room for
        ("jmq", 76, b"\xff", "topic_length"),
        ("jmq", 87, b"\xff", "app_length"),
        ("jmq", 92, b"\xff", "business_id_length"),
        ("jmq", 103, b"\xff\xff", "properties_length"),
        ("jmq", 103, b"\x00\x02", "properties_length"),  # one byte less than there are
        ("jmq", 67, b"h", "body_crc"),
        ("jmq", 55, b"\0\0\0\1", "body_crc"),  # the upper half counts
    ],
)
def test_wrong_byte_is_an_error_that_names_its_field(name: str, position: int, data: bytes, field: str) -> None:
    record = bytearray(FULL[name])
    record[position : position + len(data)] = data
    with pytest.raises(LayoutError) as caught:
        LOG_FORMATS[name].parse(bytes(record))
    assert caught.value.field == field
    assert caught.value.expected
    assert caught.value.found


@pytest.mark.parametrize(("name", "size"), [("rocketmq", b"\x7f\xff\xff\xff"), ("jmq", b"\xff\xff\xff\xff")])
def test_record_with_a_size_beyond_the_data_is_incomplete(name: str, size: bytes) -> None:
    assert LOG_FORMATS[name].parse(size + FULL[name][4:]) is None


@each_format
def test_body_that_fails_its_crc_can_be_read_on_request(name: str) -> None:
    parsed = LOG_FORMATS[name].parse(FULL[name].replace(b"Hello", b"hello"), verify_crc=False)
    assert parsed is not None
    assert parsed[0].body.startswith(b"hello ")


@each_format
def test_properties_are_not_covered_by_the_crc(name: str) -> None:
    record = bytearray(FULL[name])
    record[-2] ^= 1
    parsed = LOG_FORMATS[name].parse(bytes(record))
    assert parsed is not None
    assert parsed[0].property_pairs != LOG_FORMATS[name].parse(FULL[name])[0].property_pairs  # type: ignore[index]
