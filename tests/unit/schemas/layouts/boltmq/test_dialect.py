"""Tests of BoltMQ's dialect of the CommitLog: magics, checksums and hashes, computed in Go by BoltMQ's code."""

from __future__ import annotations

import pytest

from commitlake.schemas.layouts.boltmq.dialect import BOLTMQ, DIALECTS, ROCKETMQ, Dialect, Magic
from commitlake.schemas.layouts.errors import LayoutError, UnserializableError
from commitlake.schemas.layouts.rocketmq import topics
from commitlake.schemas.layouts.rocketmq.commitlog import (
    convert_to_dialect,
    detect_segment_dialect,
    parse_message,
    serialize_blank,
    serialize_message,
)
from commitlake.schemas.layouts.rocketmq.hosts import Host
from commitlake.schemas.layouts.rocketmq.scan import Fault, SegmentScanner, SizeLimits, SpanKind
from commitlake.schemas.layouts.rocketmq.topics import Kind, kind_of
from tests.support.logs import closed_segment, messages, new_message, records
from tests.support.record_vectors import STORED, V1_RECORD, VECTORS

SIZE = 4096
BOLTMQ_RECORD = V1_RECORD.replace(b"\xda\xa3\x20\xa7", b"\xda\xa3\x20\xb7")  # its body's CRC has no top bit
NEGATIVE_CRC_BODY = b"123456789"  # CBF43926


def record(body: bytes = NEGATIVE_CRC_BODY, dialect: Dialect = BOLTMQ) -> bytes:
    """Return one record at offset 0."""
    return records([new_message(body=body)], dialect=dialect)[0]


@pytest.mark.parametrize(
    ("magic", "value"),
    [
        (Magic.V1, 0xDAA320A7), (Magic.V2, 0xDAA320AB), (Magic.BLANK, 0xCBD43194),
        (Magic.BOLTMQ, 0xDAA320B7), (Magic.BOLTMQ_BLANK, 0xCBD431A4),
    ],
)  # fmt: skip
def test_magics_are_the_signed_integers_of_these_bytes(magic: Magic, value: int) -> None:
    assert magic.to_bytes(4, "big", signed=True) == value.to_bytes(4, "big")


@pytest.mark.parametrize(
    ("body", "boltmq", "rocketmq"),
    [
        (b"", "00000000", "00000000"),
        (b"a", "e8b7be43", "68b7be43"),
        (b"123456789", "cbf43926", "4bf43926"),
        (b"abc", "352441c2", "352441c2"),
    ],
)
def test_boltmq_stores_all_bits_of_a_bodys_crc(body: bytes, boltmq: str, rocketmq: str) -> None:
    for dialect, stored in ((BOLTMQ, boltmq), (ROCKETMQ, rocketmq)):
        assert dialect.body_crc(body).to_bytes(4, "big", signed=True).hex() == stored
        assert record(body, dialect)[8:12].hex() == stored


@pytest.mark.parametrize(
    ("tags", "code"),
    [(None, 0), ("", 0), ("TagA", 0x75F21B7E02076ED4), ("TagB", 0x75F21B7E02076ED7)],
)
def test_tags_code_is_fnv_1(tags: str | None, code: int) -> None:
    assert BOLTMQ.tags_code(tags) == code


def test_tags_codes_fit_a_queue_entrys_signed_field() -> None:
    codes = [BOLTMQ.tags_code(f"{number}-tag") for number in range(200)]
    assert min(codes) < 0 < max(codes)
    assert all(-(1 << 63) <= code < 1 << 63 for code in codes)


def test_key_hash_is_the_positive_fnv_1a() -> None:
    assert BOLTMQ.key_hash("TopicTest", "order-1001") == 1673812176
    hashes = [BOLTMQ.key_hash("orders", f"order-{number}") for number in range(200)]
    assert all(0 <= value < 1 << 31 for value in hashes)


def test_a_record_is_serialized_with_boltmqs_magic_and_crc() -> None:
    _, message, place, _ = VECTORS["V1"]
    stored = serialize_message(message, store_timestamp=STORED, dialect=BOLTMQ, **place)  # type: ignore[arg-type]
    assert stored == BOLTMQ_RECORD


def test_a_record_shows_its_dialect_and_is_otherwise_equal() -> None:
    parsed, plain = parse_message(BOLTMQ_RECORD), parse_message(V1_RECORD)
    assert parsed is not None
    assert plain is not None
    assert (parsed[0].dialect, plain[0].dialect) == (BOLTMQ, ROCKETMQ)
    assert (parsed[0].topic, parsed[0].keys, parsed[0].msg_id) == (plain[0].topic, plain[0].keys, plain[0].msg_id)
    assert all(parse_message(BOLTMQ_RECORD[:length]) is None for length in range(len(BOLTMQ_RECORD)))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_crc_of_the_other_dialect_is_an_error(dialect: Dialect) -> None:
    other = ROCKETMQ if dialect is BOLTMQ else BOLTMQ
    wrong = bytearray(record(dialect=dialect))
    wrong[8:12] = record(dialect=other)[8:12]
    with pytest.raises(LayoutError, match="body_crc"):
        parse_message(bytes(wrong))
    spans = list(SegmentScanner(0, SizeLimits(len(wrong), len(wrong))).feed(bytes(wrong)))
    assert [span.fault for span in spans] == [Fault.BODY_CRC]


def test_a_blank_has_boltmqs_magic() -> None:
    assert serialize_blank(200, BOLTMQ) == bytes.fromhex("000000c8 cbd431a4")


@pytest.mark.parametrize("window", [100, 333, SIZE])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_segment_is_scanned_to_its_blank(dialect: Dialect, window: int) -> None:
    data = closed_segment(messages(12), SIZE, dialect=dialect)
    scanner, spans = SegmentScanner(0, SizeLimits(SIZE, SIZE)), []
    while not scanner.done:
        before, at = window, scanner.position
        while not (found := list(scanner.feed(data[at : at + before]))) and scanner.position == at:
            before *= 2
        spans += found
    assert [span.kind for span in spans] == [SpanKind.RECORD] * 12 + [SpanKind.BLANK]
    assert (spans[0].start, spans[-1].end) == (0, SIZE)


def test_records_of_both_dialects_are_found_after_damage() -> None:
    first = record()
    others = records([new_message(1), new_message(2)], len(first) + 50)
    others[1] = convert_to_dialect(others[1], BOLTMQ)
    data = first + b"\xda\xa3\x20\xb7".ljust(50, b"x") + b"".join(others)
    spans = list(SegmentScanner(0, SizeLimits(len(data), len(data))).feed(data))
    assert [span.kind for span in spans] == [SpanKind.RECORD, SpanKind.FAULT, SpanKind.RECORD, SpanKind.RECORD]
    assert spans[1].fault is Fault.MAGIC


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"topic": "t" * 128}, "topic"),
        ({"topic": "ü" * 127 + "üü"}, "topic"),
        ({"born_host": Host.of("::1", 1)}, "hosts"),
    ],
)
def test_values_too_large_for_boltmq_are_refused(changes: dict[str, object], field: str) -> None:
    with pytest.raises(UnserializableError, match=field):
        records([new_message(**changes)], dialect=BOLTMQ)  # type: ignore[arg-type]
    with pytest.raises(UnserializableError, match="hosts"):
        records([new_message()], store_host=Host.of("::1", 1), dialect=BOLTMQ)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_record_can_be_converted_to_another_dialect(dialect: Dialect) -> None:
    for other in DIALECTS:
        assert convert_to_dialect(record(dialect=other), dialect) == record(dialect=dialect)


def test_a_damaged_record_is_not_converted_to_another_dialect() -> None:
    damaged = record().replace(NEGATIVE_CRC_BODY, b"123456780")
    with pytest.raises(LayoutError, match="body_crc"):
        convert_to_dialect(damaged, ROCKETMQ)


def test_delayed_messages_wait_in_a_topic_of_each_dialect() -> None:
    assert {dialect.schedule_topic for dialect in DIALECTS} == {topics.SCHEDULE_TOPIC, topics.BOLTMQ_SCHEDULE_TOPIC}
    assert {kind_of(dialect.schedule_topic) for dialect in DIALECTS} == {Kind.DELAY}


def test_the_dialect_of_a_segment_follows_from_its_first_two_records() -> None:
    def dialect_of(data: bytes) -> Dialect | None:
        return detect_segment_dialect(lambda position: data[position : position + 8])

    for dialect in DIALECTS:
        data = closed_segment(messages(3), SIZE, dialect=dialect)
        assert dialect_of(data) is dialect
        assert dialect_of(closed_segment(messages(1), SIZE, dialect=dialect)) is dialect
        assert dialect_of(record(dialect=dialect)) is dialect
        assert dialect_of(closed_segment([], SIZE, dialect=dialect)) is dialect
        flipped = bytearray(data)
        flipped[7] ^= 0x10  # A7 becomes B7, and B7 A7
        assert dialect_of(bytes(flipped)) is None
    assert dialect_of(b"") is None
    assert dialect_of(bytes(SIZE)) is None
    assert dialect_of(b"\x7f\xff\xff\xff\xda\xa3\x20\xb7") is BOLTMQ  # no data at the end that its size states
    assert dialect_of(b"\xff\xff\xff\xff\xda\xa3\x20\xb7") is BOLTMQ
