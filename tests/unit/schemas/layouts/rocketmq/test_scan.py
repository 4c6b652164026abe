"""Tests of BLANKs in places of a segment where no broker writes one."""

from __future__ import annotations

import pytest

from commitlake.schemas.layouts.rocketmq import scan as scanning
from commitlake.schemas.layouts.rocketmq.commitlog import serialize_blank
from commitlake.schemas.layouts.rocketmq.scan import SizeLimits
from tests.support.log_formats import LOG_FORMATS, kinds

ROCKETMQ = LOG_FORMATS["rocketmq"]
SIZE = 4096


def with_blank_in_body(number: int, count: int = 10) -> bytearray:
    """Return a closed segment with a BLANK that reaches its end in the body of one record."""
    sent = [ROCKETMQ.new_message(n, body=bytes(100)) for n in range(count)]
    start = sum(map(len, ROCKETMQ.records(sent)[:number]))
    sent[number] = ROCKETMQ.new_message(
        number, body=bytes(20) + serialize_blank(SIZE - start - ROCKETMQ.body_start - 20)[:8] + bytes(72)
    )
    return bytearray(ROCKETMQ.closed(sent, SIZE))


@pytest.mark.parametrize("window", [64, 300, 4096])
def test_blank_in_a_damaged_record_does_not_end_the_segment(window: int) -> None:
    data = with_blank_in_body(4)
    start = len(b"".join(ROCKETMQ.records([ROCKETMQ.new_message(n, body=bytes(100)) for n in range(4)])))
    data[start + 4] ^= 1
    spans = ROCKETMQ.scan(bytes(data), window)
    assert kinds(spans) == ["record"] * 4 + ["magic"] + ["record"] * 5 + ["blank"]


@pytest.mark.parametrize("window", [64, 300, 4096])
def test_a_blank_after_a_fault_ends_the_segment_if_no_record_follows(window: int) -> None:
    data = with_blank_in_body(9)
    start = len(b"".join(ROCKETMQ.records([ROCKETMQ.new_message(n, body=bytes(100)) for n in range(9)])))
    data[start + 4] ^= 1
    spans = ROCKETMQ.scan(bytes(data), window)
    assert kinds(spans) == ["record"] * 9 + ["magic", "blank"]
    assert [(span.start, span.end) for span in spans[-2:]] == [(start, start + 108), (start + 108, SIZE)]


def test_many_blanks_after_a_fault_are_each_examined_once(monkeypatch: pytest.MonkeyPatch) -> None:
    size = 1 << 18
    head = b"x" * 64
    count = (size - len(head)) // 8
    data = head + b"".join(serialize_blank(size - len(head) - 8 * number)[:8] for number in range(count))
    looked = []
    original = scanning.classify_span

    def counting(window: memoryview, position: int, physical_offset: int, bounds: SizeLimits) -> scanning.ScanFinding:
        looked.append(position)
        return original(window, position, physical_offset, bounds)

    monkeypatch.setattr(scanning, "classify_span", counting)
    assert kinds(ROCKETMQ.scan(data, 1 << 12)) == ["magic", "blank"]
    assert len(looked) < 2 * count
