"""Spans of a segment: what is a record, what is not, and where the next one begins."""

from __future__ import annotations

import pytest

from commitlake.schemas.layouts.rocketmq import scan as scanning
from commitlake.schemas.layouts.rocketmq.commitlog import serialize_blank
from commitlake.schemas.layouts.rocketmq.scan import Bounds, Fault, SegmentScanner, Span, SpanKind
from tests.support.logs import closed_segment, messages, new_message, open_segment, records

SIZE = 4096


def scan(data: bytes, window: int = 1 << 20, segment_end: int | None = None, **bounds: int) -> list[Span]:
    """All spans of a segment, read in windows of a size, which doubles where nothing comes of one."""
    limits = Bounds(segment_end or len(data), len(data), **bounds)
    scanner, spans, size = SegmentScanner(0, limits), [], window
    while not scanner.done:
        position = scanner.position
        spans += list(scanner.feed(data[position : position + size]))
        if scanner.position == position:
            size *= 2
    return spans


def kinds(spans: list[Span]) -> list[str]:
    """What a test compares: the kind of each span, or its fault."""
    return [str(span.fault or span.kind) for span in spans]


def place(number: int, count: int = 10) -> tuple[int, int]:
    """First byte and end of one of the records that `messages(count)` gives."""
    sizes = [len(record) for record in records(messages(count))]
    return sum(sizes[:number]), sum(sizes[: number + 1])


def test_closed_segment_ends_in_its_blank() -> None:
    spans = scan(closed_segment(messages(10), SIZE))
    assert kinds(spans) == ["record"] * 10 + ["blank"]
    assert spans[-1].end == SIZE


def test_open_segment_ends_in_zeros() -> None:
    spans = scan(open_segment(messages(10), SIZE))
    assert kinds(spans) == ["record"] * 10 + ["unwritten"]


@pytest.mark.parametrize("window", [8, 64, 300, 1000, 4096])
def test_spans_do_not_depend_on_the_windows(window: int) -> None:
    data = bytearray(closed_segment(messages(10), SIZE))
    start, _ = place(4)
    data[start + 1] = 0xFF
    assert scan(bytes(data), window) == scan(bytes(data))


@pytest.mark.parametrize(
    ("position", "value", "fault"),
    [
        (0, 0x7F, Fault.SIZE),
        (3, 0x5A, Fault.SIZE),
        (4, 0x00, Fault.MAGIC),
        (28, 0x01, Fault.PHYSICAL_OFFSET),
        (39, 0x10, Fault.PART_LENGTHS),  # sys_flag: an IPv6 born host
        (84, 0x01, Fault.PART_LENGTHS),
        (88, None, Fault.BODY_CRC),
    ],
)
def test_damaged_record_is_one_bad_range_and_the_rest_is_kept(position: int, value: int | None, fault: Fault) -> None:
    data = bytearray(closed_segment(messages(10), SIZE))
    start, end = place(4)
    data[start + position] = data[start + position] ^ 0xFF if value is None else value
    spans = scan(bytes(data))
    assert kinds(spans) == ["record"] * 4 + [str(fault)] + ["record"] * 5 + ["blank"]
    assert (spans[4].start, spans[4].end) == (start, end)
    assert spans[4].expected
    assert spans[4].found


def test_damaged_last_record_ends_at_the_blank() -> None:
    data = bytearray(closed_segment(messages(10), SIZE))
    start, end = place(9)
    data[start] = 0xFF
    spans = scan(bytes(data))
    assert kinds(spans)[-2:] == ["total_size", "blank"]
    assert (spans[-2].start, spans[-2].end) == (start, end)


def test_blank_that_does_not_reach_the_end_is_a_fault() -> None:
    data = b"".join(records(messages(3)))
    data = (data + serialize_blank(100)).ljust(SIZE, b"\0")
    assert kinds(scan(data)) == ["record"] * 3 + ["blank_size"]


def test_zeros_before_a_record_are_a_hole() -> None:
    data = bytearray(closed_segment(messages(10), SIZE))
    start, _ = place(3)
    _, end = place(5)
    data[start:end] = bytes(end - start)
    spans = scan(bytes(data))
    assert kinds(spans) == ["record"] * 3 + ["hole"] + ["record"] * 4 + ["blank"]
    assert (spans[3].start, spans[3].end) == (start, end)


def test_zeros_before_other_bytes_are_a_hole_up_to_the_end() -> None:
    data = open_segment(messages(3), SIZE)[:-1] + b"x"
    assert kinds(scan(data)) == ["record"] * 3 + ["hole"]


def test_file_cut_anywhere_keeps_every_whole_record() -> None:
    whole = closed_segment(messages(4), 1024)
    ends = [place(number, 4)[1] for number in range(4)]
    for length in range(len(whole)):
        spans = scan(whole[:length], segment_end=len(whole))
        intact = [span for span in spans if span.kind is SpanKind.RECORD]
        assert [span.end for span in intact] == [end for end in ends if end <= length]
        assert [span.start for span in spans[1:]] == [span.end for span in spans[:-1]]
        if 0 < length < ends[-1] and length not in ends:
            assert kinds(spans)[-1] in {"cut", "unwritten"}  # the first bytes of a size are zeros


def test_record_in_a_body_changes_nothing() -> None:
    inner = records([new_message(7, body=b"fake")], base_offset=88)[0]  # it even knows its place
    outer = new_message(1, body=inner)
    spans = scan(closed_segment([outer, new_message(2)], SIZE))
    assert kinds(spans) == ["record", "record", "blank"]


def test_size_beyond_the_limit_is_a_fault_even_where_all_else_fits() -> None:
    data = closed_segment([new_message(1), new_message(2, body=bytes(500)), new_message(3)], SIZE)
    assert kinds(scan(data, max_record_bytes=400)) == ["record", "total_size", "record", "blank"]


def test_spans_follow_one_another_without_a_gap() -> None:
    data = bytearray(closed_segment(messages(10), SIZE))
    data[500:600] = b"\xff" * 100
    spans = scan(bytes(data))
    assert spans[0].start == 0
    assert [span.start for span in spans[1:]] == [span.end for span in spans[:-1]]
    assert spans[-1].end == SIZE


def test_empty_file_has_no_spans() -> None:
    assert scan(b"", segment_end=100) == []


def with_blank_in_body(number: int, count: int = 10) -> bytearray:
    """A closed segment with a BLANK that reaches its end in the body of one record."""
    sent = [new_message(n, body=bytes(100)) for n in range(count)]
    start = sum(map(len, records(sent)[:number]))
    sent[number] = new_message(number, body=bytes(20) + serialize_blank(SIZE - start - 88 - 20)[:8] + bytes(72))
    return bytearray(closed_segment(sent, SIZE))


@pytest.mark.parametrize("window", [64, 300, 4096])
def test_blank_in_a_damaged_record_ends_nothing(window: int) -> None:
    data = with_blank_in_body(4)
    start = len(b"".join(records([new_message(n, body=bytes(100)) for n in range(4)])))
    data[start + 4] ^= 1
    spans = scan(bytes(data), window)
    assert kinds(spans) == ["record"] * 4 + ["magic"] + ["record"] * 5 + ["blank"]


@pytest.mark.parametrize("window", [64, 300, 4096])
def test_blank_behind_a_fault_counts_where_no_record_follows(window: int) -> None:
    data = with_blank_in_body(9)
    start = len(b"".join(records([new_message(n, body=bytes(100)) for n in range(9)])))
    data[start + 4] ^= 1
    spans = scan(bytes(data), window)
    assert kinds(spans) == ["record"] * 9 + ["magic", "blank"]
    assert [(span.start, span.end) for span in spans[-2:]] == [(start, start + 108), (start + 108, SIZE)]


def test_many_blanks_behind_a_fault_are_each_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    size = 1 << 18
    head = b"x" * 64
    count = (size - len(head)) // 8
    data = head + b"".join(serialize_blank(size - len(head) - 8 * number)[:8] for number in range(count))
    looked = []
    original = scanning.examine

    def counting(window: memoryview, position: int, physical_offset: int, bounds: Bounds) -> scanning.Finding:
        looked.append(position)
        return original(window, position, physical_offset, bounds)

    monkeypatch.setattr(scanning, "examine", counting)
    assert kinds(scan(data, 1 << 12)) == ["magic", "blank"]
    assert len(looked) < 2 * count
