"""Start positions of a stream."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from commitlake.connectors.formats.registry import COMMITLOGS
from commitlake.connectors.log_format.files import SegmentFile
from commitlake.connectors.reading.options import ReadOptions
from commitlake.connectors.reading.segment_walk import WalkStep, walk_records
from commitlake.connectors.reading.splits import Split
from commitlake.connectors.reading.stores import find_stores
from commitlake.connectors.sources import stream_start_positions
from commitlake.connectors.sources.stream_offsets import read_known_record
from commitlake.connectors.sources.stream_start_positions import first_positions, position_in_new_store
from commitlake.schemas.errors import UsageError
from tests.support.hostile import BEFORE_BODY, fake_record, store_record
from tests.support.logs import START_MS, closed_segment, messages, open_segment, records, write_store

SIZE = 16384
SECOND = START_MS + 1000  # when the first record of every segment was stored


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two stores: of three segments, of which each begins an hour later, and of one."""
    folder = tmp_path_factory.mktemp("start")
    segments = []
    for number in range(3):
        with mock.patch("tests.support.logs.START_MS", START_MS + number * 3_600_000):
            make = open_segment if number == 2 else closed_segment
            segments.append((number * SIZE, make(messages(20, seed=number), SIZE, number * SIZE)))
    write_store(folder / "a", segments)
    write_store(folder / "b", [(0, open_segment(messages(5, seed=7), SIZE))])
    return folder


def offsets(root: Path, **options: object) -> dict[str, int]:
    given = {"path": str(root / "{broker}"), **{name: str(value) for name, value in options.items()}}
    parsed = ReadOptions.parse(given, formats=COMMITLOGS).for_stream()
    positions = first_positions(find_stores(parsed.path, formats=COMMITLOGS), parsed)
    for store in find_stores(parsed.path, formats=COMMITLOGS):
        record = positions[store.broker].record
        assert record is None or record == read_known_record(store, record.offset)
    return {broker: position.offset for broker, position in positions.items()}


def starts(seed: int, base: int, count: int = 20) -> list[int]:
    """Return the starts of the records of a segment, and the end of the last."""
    found = [base]
    for record in records(messages(count, seed=seed), base):
        found.append(found[-1] + len(record))
    return found


END_A, END_B = starts(2, 2 * SIZE)[-1], starts(7, 0, 5)[-1]


def test_a_stream_begins_at_the_earliest_record(root: Path) -> None:
    assert offsets(root) == offsets(root, startingOffset="earliest") == {"a": 0, "b": 0}


def test_a_stream_can_begin_at_the_end(root: Path) -> None:
    assert offsets(root, startingOffset="latest") == {"a": END_A, "b": END_B}


def test_offsets_are_given_by_broker_and_the_others_begin_at_the_earliest(root: Path) -> None:
    third = starts(1, SIZE)[3]
    assert offsets(root, startingOffset=f'{{"a": {third}}}') == {"a": third, "b": 0}
    assert offsets(root, startingOffset=0) == {"a": 0, "b": 0}


@pytest.mark.parametrize("place", ["blank", "unwritten", "segment"])
def test_an_offset_may_be_in_a_part_without_records(root: Path, place: str) -> None:
    offset = {"blank": starts(0, 0)[-1], "unwritten": END_A, "segment": SIZE}[place]
    assert offsets(root, startingOffset=f'{{"a": {offset}}}')["a"] == offset


@pytest.mark.parametrize(
    ("start", "message"),
    [
        ('{"a": 1}', "at which a record of store 'a' begins, found 1, which is inside a record"),
        (f'{{"a": {3 * SIZE + 1}}}', f"from 0 to {3 * SIZE}, where its log ends, found {3 * SIZE + 1}"),
        ('{"a": -5}', "found -5"),
        ('{"c": 0}', "the broker 'c', but the path contains only a, b"),
        (7, "found 7, which is inside a record"),
    ],
)
def test_an_offset_at_which_no_record_begins_is_refused(root: Path, start: object, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        offsets(root, startingOffset=start)


def test_a_stream_can_begin_after_a_bad_range_or_before_it(tmp_path: Path) -> None:
    data = bytearray(open_segment(messages(20), SIZE))
    places = starts(1, 0)
    data[places[4] : places[6]] = b"\xff" * (places[6] - places[4])
    write_store(tmp_path / "a", [(0, bytes(data))])
    for place in (places[4], places[6]):
        assert offsets(tmp_path, startingOffset=f'{{"a": {place}}}') == {"a": place}
    with pytest.raises(UsageError, match=f"found {places[5]}, which is inside a record"):
        offsets(tmp_path, startingOffset=f'{{"a": {places[5]}}}')


@pytest.mark.parametrize(
    ("time", "segment", "record"),
    [
        (0, 0, 0),
        (SECOND + 3, 0, 3),
        (SECOND + 19, 0, 19),
        (SECOND + 20, 1, 0),  # later than all of the first segment
        (SECOND + 3_600_000 + 7, 1, 7),
        (SECOND + 2 * 3_600_000 + 19, 2, 19),
        (SECOND + 2 * 3_600_000 + 20, 2, 20),  # later than all: the end
        ("2023-11-14T23:13:21.007", 1, 7),
        ("2023-11-14T23:13:21.006001", 1, 7),
        ("2023-11-15T00:13:21.007+01:00", 1, 7),
    ],
)
def test_a_time_gives_the_first_record_stored_then_or_later(
    root: Path, time: int | str, segment: int, record: int
) -> None:
    assert offsets(root, startingTimestamp=time)["a"] == starts(segment, segment * SIZE)[record]


def test_a_time_opens_no_segment_that_is_too_old(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    walked: list[str] = []

    def seen(file: SegmentFile, split: Split, *given: Any, **more: Any) -> Iterator[WalkStep]:
        walked.append(split.path)
        return walk_records(file, split, *given, **more)

    monkeypatch.setattr(stream_start_positions, "walk_records", seen)
    offsets(root, startingTimestamp=SECOND + 2 * 3_600_000 + 1, clockTolerance=0)
    assert [Path(path).name for path in walked if "/a/" in path] == [f"{2 * SIZE:020d}"]


def test_a_store_that_appears_later_is_new_from_its_first_record(root: Path) -> None:
    for start in ("latest", '{"a": 0}', "earliest"):
        options = ReadOptions.parse({"path": str(root), "startingOffset": start}, formats=COMMITLOGS)
        assert [
            position_in_new_store(store, options).offset
            for store in find_stores(str(root / "{broker}"), formats=COMMITLOGS)
        ] == [0, 0]
    timed = ReadOptions.parse({"path": str(root), "startingTimestamp": str(SECOND + 2)}, formats=COMMITLOGS)
    (_, store) = find_stores(str(root / "{broker}"), formats=COMMITLOGS)
    assert position_in_new_store(store, timed).offset == starts(7, 0)[2]


def test_a_record_within_a_body_is_not_a_start(tmp_path: Path) -> None:
    data = store_record(lambda offset: fake_record(offset, 0) + b"behind it", 0)
    data += store_record(lambda _: b"body", len(data), 1)
    write_store(tmp_path / "a", [(0, data.ljust(SIZE, b"\0"))])
    with pytest.raises(UsageError, match=f"found {BEFORE_BODY}, which is inside a record"):
        offsets(tmp_path, startingOffset=f'{{"a": {BEFORE_BODY}}}')
