"""Tests of the spans of a journal file where JMQ's rules differ from the CommitLog's."""

from __future__ import annotations

import pytest

from tests.support.log_formats import LOG_FORMATS, kinds

JMQ = LOG_FORMATS["jmq"]
SIZE = 4096
TEN = [JMQ.new_message(number, body=bytes(range(number * 10))) for number in range(10)]


@pytest.mark.parametrize("left", range(6))
def test_file_without_room_for_a_filler_ends_in_zeros(left: int) -> None:
    data = b"".join(JMQ.records(TEN))
    assert kinds(JMQ.scan(data + bytes(left))) == ["record"] * 10 + ["blank"] * bool(left)
    if left:
        assert kinds(JMQ.scan(data + bytes(left - 1) + b"x"))[-1] == "cut"
        # The same in a truncated file: the last bytes are not its end.
        assert kinds(JMQ.scan(data + bytes(left), segment_end=SIZE))[-1] == "unwritten"


def test_record_without_a_topic_is_a_fault() -> None:
    sent = [JMQ.new_message(1), JMQ.new_message(2, topic=""), JMQ.new_message(3)]
    assert kinds(JMQ.scan(JMQ.closed(sent, SIZE))) == ["record", "part_lengths", "record", "blank"]


def test_a_record_with_a_wrong_body_after_damage_is_a_separate_bad_range() -> None:
    data = bytearray(JMQ.closed(TEN, SIZE))
    data[JMQ.place(TEN, 3)[0]] = 0xFF
    data[JMQ.place(TEN, 4)[0] + JMQ.body_start] ^= 0xFF
    assert kinds(JMQ.scan(bytes(data))) == ["record"] * 3 + ["total_size", "body_crc"] + ["record"] * 5 + ["blank"]


def test_search_through_a_body_of_magics_finds_the_next_record() -> None:
    sent = [JMQ.new_message(1), JMQ.new_message(2, body=b"\x12\x34\xbb\xbb" * (1 << 18)), JMQ.new_message(3)]
    data = bytearray(JMQ.closed(sent, 2 << 20))
    data[JMQ.place(sent, 1)[0]] = 0xFF
    assert kinds(JMQ.scan(bytes(data))) == ["record", "total_size", "record", "blank"]
