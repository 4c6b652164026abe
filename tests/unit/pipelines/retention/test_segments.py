"""The archived part of a segment, and the state of its file."""

from __future__ import annotations

import datetime
import os
from pathlib import Path

import pytest

from commitlake.connectors.formats.registry import COMMITLOGS
from commitlake.connectors.reading.stores import Store, find_stores
from commitlake.pipelines.retention.segments import ArchivedShare, read_segments
from tests.support.logs import closed_segment, messages, open_segment, records, write_store

SIZE = 8192
FIRST = messages(20)
END_OF_FIRST = sum(map(len, records(FIRST)))
END_OF_SECOND = sum(map(len, records(messages(5), SIZE)))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A full segment, one that is being written, and one made in advance."""
    folder = tmp_path / "broker-a"
    write_store(
        folder,
        [
            (0, closed_segment(FIRST, SIZE)),
            (SIZE, open_segment(messages(5), SIZE, SIZE)),
            (2 * SIZE, bytes(SIZE)),
        ],
    )
    (found,) = find_stores(str(folder), formats=COMMITLOGS)
    return found


@pytest.mark.parametrize(
    ("end", "archived"),
    [
        (0, ("no", "no", "no")),
        (1, ("partly", "no", "no")),
        (END_OF_FIRST, ("yes", "no", "no")),  # what is left of it is a filler
        (SIZE, ("yes", "no", "no")),
        (SIZE + 100, ("yes", "partly", "no")),
        (SIZE + END_OF_SECOND, ("yes", "yes", "no")),  # nothing is written after it yet
        (2 * SIZE, ("yes", "yes", "no")),
    ],
)
def test_the_archived_part_of_each_segment_is_found(store: Store, end: int, archived: tuple[str, ...]) -> None:
    assert tuple(segment.archived for segment in read_segments(store, end)) == tuple(map(ArchivedShare, archived))


def test_size_age_and_state_are_read_from_the_file(store: Store) -> None:
    os.utime(store.segments[0].path, (1_700_000_000, 1_700_000_000))
    first, second, third = read_segments(store, 0)
    assert first.modified == datetime.datetime.fromtimestamp(1_700_000_000, datetime.UTC)
    assert (first.base_offset, first.size, first.name) == (0, SIZE, f"{0:020}")
    assert (first.begun, second.begun, third.begun) == (True, True, False)


def test_a_segment_deleted_meanwhile_is_left_out(store: Store) -> None:
    Path(store.segments[0].path).unlink()
    assert [segment.base_offset for segment in read_segments(store, 10)] == [SIZE, 2 * SIZE]


def test_a_store_in_an_object_store_is_read_by_its_uri(store: Store) -> None:
    (found,) = find_stores(f"file://{store.root}", formats=COMMITLOGS)
    assert [segment.archived for segment in read_segments(found, SIZE)] == ["yes", "no", "no"]


@pytest.mark.parametrize("written", [1, 60_000, 70_000, 500_000, 1 << 20])
def test_the_written_part_of_the_newest_is_found_by_bisection(tmp_path: Path, written: int) -> None:
    data = (b"\x01" * written).ljust(1 << 20, b"\0")
    write_store(tmp_path / "broker-a", [(0, data), (1 << 20, data)])
    (store,) = find_stores(str(tmp_path / "broker-a"), formats=COMMITLOGS)
    first, last = read_segments(store, 0)
    assert first.unwritten_bytes == 0
    assert last.written is not None
    assert written <= last.written < written + (64 << 10)
