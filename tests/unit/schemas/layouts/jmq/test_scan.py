"""Spans of a journal file: what is a record, what is not, and where the next one begins."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from commitlake.schemas.layouts.jmq.journal import (
    MIN_RECORD_SIZE,
    NewJournalMessage,
    serialize_filler,
    serialize_message,
)
from commitlake.schemas.layouts.jmq.scan import JournalScanner
from commitlake.schemas.layouts.rocketmq.hosts import Host
from commitlake.schemas.layouts.rocketmq.scan import Bounds, Fault, Span, SpanKind

SIZE = 4096
SENT = 1_700_000_000_123
ADDRESS = Host.of("10.0.0.1", 50123)


def message(number: int = 0, body: bytes = b"body", topic: str = "orders") -> NewJournalMessage:
    """A message that differs by its number."""
    return NewJournalMessage(topic, body, SENT + number, ADDRESS, "shop", f"order-{number}")


def records(messages: Iterable[NewJournalMessage], start: int = 0) -> list[bytes]:
    """Records one behind the other, from a journal offset on."""
    offset, out = start, []
    for number, new in enumerate(messages):
        out.append(
            serialize_message(
                new,
                queue_id=0,
                queue_offset=number,
                journal_offset=offset,
                receive_timestamp=SENT,
                store_timestamp=SENT,
                server_address=ADDRESS,
            )
        )
        offset += len(out[-1])
    return out


def opened(messages: Iterable[NewJournalMessage], start: int = 0, size: int = SIZE) -> bytes:
    """A file that is still written: records, zeros."""
    return b"".join(records(messages, start)).ljust(size, b"\0")


def closed(messages: Iterable[NewJournalMessage], start: int = 0, size: int = SIZE) -> bytes:
    """A file that the broker has left: records, FILLER, zeros."""
    data = b"".join(records(messages, start))
    return (data + serialize_filler(size - len(data))).ljust(size, b"\0")


TEN = [message(number, bytes(range(number * 10))) for number in range(10)]


def scan(data: bytes, window: int = 1 << 20, start: int = 0, segment_end: int | None = None) -> list[Span]:
    """All spans of a file, read in windows of a size, which doubles where nothing comes of one."""
    bounds = Bounds(start + len(data) if segment_end is None else segment_end, start + len(data))
    scanner, spans, size = JournalScanner(start, bounds), [], window
    while not scanner.done:
        position = scanner.position
        spans += list(scanner.feed(data[position - start : position - start + size]))
        if scanner.position == position:
            size *= 2
    return spans


def kinds(spans: list[Span]) -> list[str]:
    """What a test compares: the kind of each span, or its fault."""
    return [str(span.fault or span.kind) for span in spans]


def place(number: int) -> tuple[int, int]:
    """First byte and end of one of the ten records."""
    sizes = [len(record) for record in records(TEN)]
    return sum(sizes[:number]), sum(sizes[: number + 1])


def test_closed_file_ends_in_its_filler() -> None:
    spans = scan(closed(TEN))
    assert kinds(spans) == ["record"] * 10 + ["blank"]
    assert spans[-1].end == SIZE


def test_open_file_ends_in_zeros() -> None:
    assert kinds(scan(opened(TEN))) == ["record"] * 10 + ["unwritten"]


@pytest.mark.parametrize("left", range(6))
def test_file_without_room_for_a_filler_ends_in_zeros(left: int) -> None:
    data = b"".join(records(TEN))
    spans = scan(data + bytes(left))
    assert kinds(spans) == ["record"] * 10 + ["blank"] * bool(left)
    if left:
        assert kinds(scan(data + bytes(left - 1) + b"x"))[-1] == ("cut" if left < 6 else "magic")
        # The same in a file that is cut: what is there is not its end.
        assert kinds(scan(data + bytes(left), segment_end=SIZE))[-1] == "unwritten"


@pytest.mark.parametrize("start", [0, (1 << 32) - 500, 1 << 40])
def test_places_are_those_of_the_journal(start: int) -> None:
    data = bytearray(closed(TEN, start))
    begin, end = place(4)
    data[begin] = 0xFF
    spans = scan(bytes(data), start=start)
    assert kinds(spans) == ["record"] * 4 + ["total_size"] + ["record"] * 5 + ["blank"]
    assert (spans[4].start, spans[4].end) == (start + begin, start + end)


@pytest.mark.parametrize("window", [16, 64, 300, 1000, 4096])
def test_spans_do_not_depend_on_the_windows(window: int) -> None:
    data = bytearray(closed(TEN))
    data[place(4)[0] + 1] = 0xFF
    assert scan(bytes(data), window) == scan(bytes(data))


@pytest.mark.parametrize(
    ("position", "value", "fault"),
    [
        (0, 0x7F, Fault.SIZE),
        (3, 0x47, Fault.SIZE),
        (4, 0x00, Fault.MAGIC),
        (10, 0x01, Fault.PHYSICAL_OFFSET),
        (63, 0x01, Fault.PART_LENGTHS),
        (107, 0x00, Fault.PART_LENGTHS),  # a topic of no length
        (67, 0xFF, Fault.BODY_CRC),
    ],
)
def test_damaged_record_is_one_bad_range_and_the_rest_is_kept(position: int, value: int, fault: Fault) -> None:
    data = bytearray(closed(TEN))
    start, end = place(4)
    data[start + position] = value
    spans = scan(bytes(data))
    assert kinds(spans) == ["record"] * 4 + [str(fault)] + ["record"] * 5 + ["blank"]
    assert (spans[4].start, spans[4].end) == (start, end)
    assert spans[4].expected
    assert spans[4].found


def test_record_without_a_topic_is_a_fault() -> None:
    (spans,) = [scan(closed([message(1), message(2, topic=""), message(3)]))]
    assert kinds(spans) == ["record", "part_lengths", "record", "blank"]


def test_record_with_a_wrong_body_behind_damage_is_a_bad_range_of_its_own() -> None:
    data = bytearray(closed(TEN))
    data[place(3)[0]] = 0xFF
    data[place(4)[0] + 67] ^= 0xFF
    assert kinds(scan(bytes(data))) == ["record"] * 3 + ["total_size", "body_crc"] + ["record"] * 5 + ["blank"]


def test_damaged_last_record_ends_at_the_filler() -> None:
    data = bytearray(closed(TEN))
    data[place(9)[0]] = 0xFF
    assert kinds(scan(bytes(data)))[-2:] == ["total_size", "blank"]


def test_filler_that_does_not_reach_the_end_is_a_fault() -> None:
    data = (b"".join(records(TEN)) + serialize_filler(100)).ljust(SIZE, b"\0")
    assert kinds(scan(data)) == ["record"] * 10 + ["blank_size"]


def test_zeros_before_a_record_are_a_hole() -> None:
    data = bytearray(closed(TEN))
    (start, _), (_, end) = place(3), place(5)
    data[start:end] = bytes(end - start)
    spans = scan(bytes(data))
    assert kinds(spans) == ["record"] * 3 + ["hole"] + ["record"] * 4 + ["blank"]
    assert (spans[3].start, spans[3].end) == (start, end)


def test_stale_bytes_of_another_place_are_no_records() -> None:
    stale = b"".join(records(TEN[5:], start=100_000))
    data = (b"".join(records(TEN[:3])) + stale).ljust(SIZE, b"\0")
    assert kinds(scan(data)) == ["record"] * 3 + ["physical_offset"]


def test_file_cut_anywhere_keeps_every_whole_record() -> None:
    whole = closed(TEN[:4], size=1024)
    ends = [place(number)[1] for number in range(4)]
    for length in range(len(whole)):
        spans = scan(whole[:length], segment_end=len(whole))
        intact = [span for span in spans if span.kind is SpanKind.RECORD]
        assert [span.end for span in intact] == [end for end in ends if end <= length]
        assert [span.start for span in spans[1:]] == [span.end for span in spans[:-1]]
        if 0 < length < ends[-1] and length not in ends:
            assert kinds(spans)[-1] in {"cut", "unwritten"}  # the first bytes of a size are zeros


def test_record_in_a_body_changes_nothing() -> None:
    inner = records([message(7, b"fake")], start=67)[0]  # it even knows its place
    assert kinds(scan(closed([message(1, inner), message(2)]))) == ["record", "record", "blank"]


def test_body_of_magics_is_searched_in_a_moment() -> None:
    data = bytearray(closed([message(1), message(2, b"\x12\x34\xbb\xbb" * (1 << 18)), message(3)], size=2 << 20))
    data[len(records([message(1)])[0])] = 0xFF
    assert kinds(scan(bytes(data))) == ["record", "total_size", "record", "blank"]


def test_spans_follow_one_another_without_a_gap() -> None:
    data = bytearray(closed(TEN))
    data[500:600] = b"\xff" * 100
    spans = scan(bytes(data))
    assert spans[0].start == 0
    assert [span.start for span in spans[1:]] == [span.end for span in spans[:-1]]
    assert spans[-1].end == SIZE


def test_empty_file_has_no_spans() -> None:
    assert scan(b"", segment_end=100) == []


def test_smallest_size_is_that_of_a_record_with_no_part() -> None:
    data = bytearray(closed([message(1), message(2)]))
    data[:4] = MIN_RECORD_SIZE.to_bytes(4, "big")
    assert kinds(scan(bytes(data))) == ["part_lengths", "record", "blank"]
