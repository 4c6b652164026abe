"""Tests of single records, read by their offsets: on a disk, and in a copy in an object store."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from commitlake.connectors.formats.registry import COMMITLOGS
from commitlake.connectors.reading import single_records
from commitlake.connectors.reading.files.segment_files import OpenSegment
from commitlake.connectors.reading.single_records import LogRecords
from commitlake.connectors.reading.stores import find_stores
from tests.support.indexed_stores import SEGMENT_BYTES, write_indexed_store
from tests.support.message_stores import log_records as all_records
from tests.support.remote_copies import COPY, serve_copies, ship_copy

COUNT = 300


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with some segments."""
    return write_indexed_store(tmp_path / "store", COUNT)


@pytest.fixture
def copy(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Copy of the store in an object store; its newest segment is in parts."""
    serve_copies(tmp_path / "remote", monkeypatch)
    ship_copy(store, tmp_path / "remote")
    return COPY


@pytest.mark.parametrize("is_copy", [True, False])
def test_records_are_found_by_their_offsets_only(store: Path, copy: str, is_copy: bool) -> None:
    (found,) = find_stores(copy if is_copy else str(store), formats=COMMITLOGS)
    records = LogRecords(found.segments, found.format)
    expected = list(all_records(store))
    random.Random(3).shuffle(expected)
    assert [records.get_record(each.physical_offset) for each in expected] == expected
    assert len(expected) == COUNT
    end = max(each.physical_offset for each in expected)
    for offset in (-1, expected[0].physical_offset + 1, end + 1, 100 * SEGMENT_BYTES):
        assert records.get_record(offset) is None


def test_segments_of_a_copy_stay_open_up_to_a_limit(store: Path, copy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    open_segment = OpenSegment.__init__

    def note(segment: OpenSegment, path: str) -> None:
        opened.append(path)
        open_segment(segment, path)

    monkeypatch.setattr(OpenSegment, "__init__", note)
    (found,) = find_stores(copy, formats=COMMITLOGS)
    first, second, third = ([*all_records(store)][number].physical_offset for number in (0, 150, 299))
    monkeypatch.setattr(single_records, "_MAX_REMOTE_SEGMENTS", 2)
    records = LogRecords(found.segments, found.format)
    for offset in (first, second, first, third, first, second):  # the last one was closed
        message = records.get_record(offset)
        assert message is not None
        assert message.physical_offset == offset
    assert len(opened) == 4
    assert opened[1] == opened[3]


def test_record_of_a_deleted_segment_is_none(store: Path) -> None:
    (found,) = find_stores(str(store), formats=COMMITLOGS)
    Path(found.segments[0].path).unlink()
    assert LogRecords(found.segments, found.format).get_record(0) is None
