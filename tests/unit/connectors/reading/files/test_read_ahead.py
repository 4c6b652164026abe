"""Tests of reading ahead: what is requested, and when, and that the caller gets the bytes of the file."""

from __future__ import annotations

import random
import threading

import numpy as np
import pytest

from commitlake.connectors.reading.files import read_ahead
from commitlake.connectors.reading.files.read_ahead import ReadAhead
from commitlake.connectors.reading.files.segment_files import Window

WAIT_SECONDS = 60
DATA = random.Random(11).randbytes(5000)


class ListedReads:
    """A file in memory that lists what was requested of it, and answers when the test lets it."""

    def __init__(self, data: bytes = DATA) -> None:
        self.data, self.asked = data, set[tuple[int, int]]()
        self.may_answer, self._changed = threading.Event(), threading.Condition()
        self.may_answer.set()
        self.errors: dict[int, Exception] = {}

    def read_at(self, size: int, position: int) -> Window:
        """See RemoteSegment."""
        with self._changed:
            self.asked.add((position, position + size))
            self._changed.notify_all()
        assert self.may_answer.wait(WAIT_SECONDS)
        if position in self.errors:
            raise self.errors[position]
        return np.frombuffer(self.data[position : position + size], np.uint8)

    def read_into(self, window: Window, position: int) -> int:
        """See SegmentFile."""
        found = self.read_at(len(window), position)
        window[: len(found)] = found
        return len(found)

    def size(self) -> int:
        """See SegmentFile."""
        return len(self.data)

    def close(self) -> None:
        """See SegmentFile."""

    def wait_for(self, expected: set[tuple[int, int]]) -> None:
        """Wait until exactly these ranges were requested."""
        with self._changed:
            self._changed.wait_for(lambda: len(self.asked) >= len(expected), WAIT_SECONDS)
            assert self.asked == expected


@pytest.fixture
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests of 100 bytes."""
    monkeypatch.setattr(read_ahead, "RANGE_BYTES", 100)


def taken(reader: ReadAhead, position: int, size: int, limit: int = len(DATA)) -> bytes:
    """Return the bytes of one read."""
    window = np.full(size, 255, np.uint8)
    return window[: reader.read_into(window, position, limit)].tobytes()


@pytest.mark.usefixtures("small_ranges")
def test_a_first_read_is_one_request_for_its_own_bytes() -> None:
    file = ListedReads()
    assert taken(ReadAhead(file), 1000, 240) == DATA[1000:1240]
    file.wait_for({(1000, 1240)})


@pytest.mark.usefixtures("small_ranges")
def test_the_next_ranges_are_requested_before_they_are_needed() -> None:
    file = ListedReads()
    reader = ReadAhead(file)
    taken(reader, 0, 50)
    expected = {(0, 50)}
    for position, following in [
        (40, [(40, 90), (90, 140), (140, 190), (190, 240), (240, 290)]),
        (85, []),
        (135, [(290, 390)]),
        (190, [(390, 490), (490, 590)]),
    ]:
        taken(reader, position, 50)
        expected.update(following)
        file.wait_for(expected)


@pytest.mark.usefixtures("small_ranges")
def test_few_ranges_of_a_large_read_are_requested_at_a_time() -> None:
    file = ListedReads()
    reader = ReadAhead(file)
    taken(reader, 0, 200)
    file.may_answer.clear()
    found: list[bytes] = []
    thread = threading.Thread(target=lambda: found.append(taken(reader, 200, 1000)))
    thread.start()
    expected = {(0, 200), *((start, start + 100) for start in range(200, 600, 100))}
    file.wait_for(expected)
    file.may_answer.set()
    thread.join(WAIT_SECONDS)
    assert found == [DATA[200:1200]]
    assert len(reader._ranges) <= 6


@pytest.mark.usefixtures("small_ranges")
def test_nothing_is_requested_twice_or_after_the_limit() -> None:
    file = ListedReads()
    reader = ReadAhead(file)
    for position in range(0, 990, 30):
        assert taken(reader, position, 50, limit=1040) == DATA[position : position + 50]
    asked = sorted(file.asked)[1:]
    assert asked[0][0] == 30
    assert [start for start, _ in asked[1:]] == [end for _, end in asked[:-1]]
    assert asked[-1][1] == 1040


@pytest.mark.usefixtures("small_ranges")
def test_only_what_is_needed_is_requested_beyond_the_limit() -> None:
    file = ListedReads()
    reader = ReadAhead(file)
    taken(reader, 0, 50, limit=60)
    assert taken(reader, 40, 50, limit=60) == DATA[40:90]
    file.wait_for({(0, 50), (40, 90)})


@pytest.mark.usefixtures("small_ranges")
def test_a_read_from_before_what_is_in_memory_requests_that_again() -> None:
    file = ListedReads()
    reader = ReadAhead(file)
    taken(reader, 0, 50)
    taken(reader, 50, 700)
    assert taken(reader, 60, 900) == DATA[60:960]
    assert 60 in {start for start, _ in file.asked}


@pytest.mark.usefixtures("small_ranges")
def test_a_file_that_was_cut_before_what_is_in_memory_ends_there() -> None:
    file = ListedReads()
    reader = ReadAhead(file)
    taken(reader, 0, 50)
    taken(reader, 50, 700)
    file.data = DATA[:300]
    assert taken(reader, 60, 900) == DATA[60:300]


@pytest.mark.usefixtures("small_ranges")
def test_reads_in_any_order_return_the_bytes_of_the_file() -> None:
    draw = random.Random(5)
    for _ in range(20):
        reader = ReadAhead(ListedReads())
        position = 0
        for _ in range(60):
            position = draw.choice([position, position + draw.randrange(120), draw.randrange(len(DATA) + 50)])
            size = draw.randrange(300)
            assert taken(reader, position, size, position + size + draw.randrange(900)) == DATA[position:][:size]


@pytest.mark.usefixtures("small_ranges")
def test_a_file_that_is_shorter_than_expected_ends_the_read() -> None:
    file = ListedReads(DATA[:120])
    reader = ReadAhead(file)
    taken(reader, 0, 50)
    assert taken(reader, 50, 60) == DATA[50:110]
    assert taken(reader, 100, 60) == DATA[100:120]
    assert taken(reader, 110, 10, limit=120) == DATA[110:120]


@pytest.mark.usefixtures("small_ranges")
def test_an_error_is_raised_where_its_bytes_are_needed() -> None:
    file = ListedReads()
    file.errors[150] = OSError("the connection ended")
    reader = ReadAhead(file)
    taken(reader, 0, 50)
    assert taken(reader, 50, 50) == DATA[50:100]
    assert taken(reader, 90, 50) == DATA[90:140]
    with pytest.raises(OSError, match="the connection ended"):
        taken(reader, 140, 50)
