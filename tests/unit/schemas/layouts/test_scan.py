"""Tests of the spans of a segment in each format: records, faults, and the start of the next record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from commitlake.schemas.layouts.rocketmq.scan import Fault, SpanKind
from tests.support.log_formats import LOG_FORMATS, LogFormat, kinds

SIZE = 4096


@pytest.fixture(params=LOG_FORMATS)
def known(request: pytest.FixtureRequest) -> LogFormat:
    """Return the format of a test."""
    return LOG_FORMATS[request.param]


@pytest.fixture
def ten(known: LogFormat) -> Sequence[Any]:
    """Ten messages, each with a longer body than the one before it."""
    return ten_messages(known)


def ten_messages(known: LogFormat) -> Sequence[Any]:
    return [known.new_message(number, body=bytes(range(number * 10))) for number in range(10)]


def test_closed_segment_ends_in_its_filler(known: LogFormat, ten: Sequence[Any]) -> None:
    spans = known.scan(known.closed(ten, SIZE))
    assert kinds(spans) == ["record"] * 10 + ["blank"]
    assert spans[-1].end == SIZE


def test_open_segment_ends_in_zeros(known: LogFormat, ten: Sequence[Any]) -> None:
    assert kinds(known.scan(known.opened(ten, SIZE))) == ["record"] * 10 + ["unwritten"]


@pytest.mark.parametrize("start", [0, (1 << 32) - 500, 1 << 40])
def test_spans_have_positions_in_the_log(known: LogFormat, ten: Sequence[Any], start: int) -> None:
    data = bytearray(known.closed(ten, SIZE, start))
    begin, end = known.place(ten, 4)
    data[begin] = 0xFF
    spans = known.scan(bytes(data), start=start)
    assert kinds(spans) == ["record"] * 4 + ["total_size"] + ["record"] * 5 + ["blank"]
    assert (spans[4].start, spans[4].end) == (start + begin, start + end)


@pytest.mark.parametrize("window", [8, 16, 64, 300, 1000, 4096])
def test_spans_do_not_depend_on_the_windows(known: LogFormat, ten: Sequence[Any], window: int) -> None:
    data = bytearray(known.closed(ten, SIZE))
    data[known.place(ten, 4)[0] + 1] = 0xFF
    assert known.scan(bytes(data), window) == known.scan(bytes(data))


@pytest.mark.parametrize(
    ("name", "position", "value", "fault"),
    [
        ("rocketmq", 0, 0x7F, Fault.SIZE),
        ("rocketmq", 3, 0x5A, Fault.SIZE),
        ("rocketmq", 4, 0x00, Fault.MAGIC),
        ("rocketmq", 28, 0x01, Fault.PHYSICAL_OFFSET),
        ("rocketmq", 39, 0x10, Fault.PART_LENGTHS),  # sys_flag: an IPv6 born host
        ("rocketmq", 84, 0x01, Fault.PART_LENGTHS),
        ("rocketmq", 88, 0xFF, Fault.BODY_CRC),
        ("jmq", 0, 0x7F, Fault.SIZE),
        ("jmq", 3, 0x47, Fault.SIZE),
        ("jmq", 4, 0x00, Fault.MAGIC),
        ("jmq", 10, 0x01, Fault.PHYSICAL_OFFSET),
        ("jmq", 63, 0x01, Fault.PART_LENGTHS),
        ("jmq", 107, 0x00, Fault.PART_LENGTHS),  # a topic of no length
        ("jmq", 67, 0xFF, Fault.BODY_CRC),
    ],
)
def test_damaged_record_is_one_bad_range_and_the_rest_is_kept(
    name: str, position: int, value: int, fault: Fault
) -> None:
    known = LOG_FORMATS[name]
    ten = ten_messages(known)
    data = bytearray(known.closed(ten, SIZE))
    start, end = known.place(ten, 4)
    data[start + position] = value
    spans = known.scan(bytes(data))
    assert kinds(spans) == ["record"] * 4 + [str(fault)] + ["record"] * 5 + ["blank"]
    assert (spans[4].start, spans[4].end) == (start, end)
    assert spans[4].expected
    assert spans[4].found


def test_damaged_last_record_ends_at_the_filler(known: LogFormat, ten: Sequence[Any]) -> None:
    data = bytearray(known.closed(ten, SIZE))
    start, end = known.place(ten, 9)
    data[start] = 0xFF
    spans = known.scan(bytes(data))
    assert kinds(spans)[-2:] == ["total_size", "blank"]
    assert (spans[-2].start, spans[-2].end) == (start, end)


def test_filler_that_does_not_reach_the_end_is_a_fault(known: LogFormat, ten: Sequence[Any]) -> None:
    data = (b"".join(known.records(ten)) + known.serialize_filler(100)).ljust(SIZE, b"\0")
    assert kinds(known.scan(data)) == ["record"] * 10 + ["blank_size"]


def test_zeros_before_a_record_are_a_hole(known: LogFormat, ten: Sequence[Any]) -> None:
    data = bytearray(known.closed(ten, SIZE))
    (start, _), (_, end) = known.place(ten, 3), known.place(ten, 5)
    data[start:end] = bytes(end - start)
    spans = known.scan(bytes(data))
    assert kinds(spans) == ["record"] * 3 + ["hole"] + ["record"] * 4 + ["blank"]
    assert (spans[3].start, spans[3].end) == (start, end)


def test_zeros_before_other_bytes_are_a_hole_up_to_the_end(known: LogFormat, ten: Sequence[Any]) -> None:
    data = known.opened(ten[:3], SIZE)[:-1] + b"x"
    assert kinds(known.scan(data)) == ["record"] * 3 + ["hole"]


def test_stale_bytes_from_another_position_are_not_records(known: LogFormat, ten: Sequence[Any]) -> None:
    stale = b"".join(known.records(ten[5:], 100_000))
    data = (b"".join(known.records(ten[:3])) + stale).ljust(SIZE, b"\0")
    assert kinds(known.scan(data)) == ["record"] * 3 + ["physical_offset"]


def test_segment_cut_anywhere_keeps_every_whole_record(known: LogFormat, ten: Sequence[Any]) -> None:
    whole = known.closed(ten[:4], 1024)
    ends = [known.place(ten, number)[1] for number in range(4)]
    for length in range(len(whole)):
        spans = known.scan(whole[:length], segment_end=len(whole))
        intact = [span for span in spans if span.kind is SpanKind.RECORD]
        assert [span.end for span in intact] == [end for end in ends if end <= length]
        assert [span.start for span in spans[1:]] == [span.end for span in spans[:-1]]
        if 0 < length < ends[-1] and length not in ends:
            assert kinds(spans)[-1] in {"cut", "unwritten"}  # the first bytes of a size are zeros


def test_record_inside_a_body_is_not_a_record_of_the_log(known: LogFormat) -> None:
    inner = known.records([known.new_message(7, body=b"fake")], known.body_start)[0]  # with the right offset
    outer = known.new_message(1, body=inner)
    assert kinds(known.scan(known.closed([outer, known.new_message(2)], SIZE))) == ["record", "record", "blank"]


def test_size_beyond_the_limit_is_a_fault_in_an_otherwise_valid_record(known: LogFormat) -> None:
    sent = [known.new_message(1), known.new_message(2, body=bytes(500)), known.new_message(3)]
    spans = known.scan(known.closed(sent, SIZE), max_record_bytes=400)
    assert kinds(spans) == ["record", "total_size", "record", "blank"]


def test_smallest_accepted_size_is_that_of_a_record_without_parts(known: LogFormat) -> None:
    data = bytearray(known.closed([known.new_message(1), known.new_message(2)], SIZE))
    data[:4] = known.min_record_size.to_bytes(4, "big")
    assert kinds(known.scan(bytes(data))) == ["part_lengths", "record", "blank"]


def test_spans_are_consecutive_without_a_gap(known: LogFormat, ten: Sequence[Any]) -> None:
    data = bytearray(known.closed(ten, SIZE))
    data[500:600] = b"\xff" * 100
    spans = known.scan(bytes(data))
    assert spans[0].start == 0
    assert [span.start for span in spans[1:]] == [span.end for span in spans[:-1]]
    assert spans[-1].end == SIZE


def test_empty_segment_has_no_spans(known: LogFormat) -> None:
    assert known.scan(b"", segment_end=100) == []
