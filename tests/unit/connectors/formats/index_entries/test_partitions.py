"""Files divided among partitions."""

from __future__ import annotations

import pytest

from commitlake.connectors.formats.index_entries import partitions
from commitlake.connectors.formats.index_entries.partitions import PlannedStore, divide_entry_range


def test_ranges_are_divided_between_entries() -> None:
    ranges = list(divide_entry_range(40, 40 + 20 * 10_000_000, 20))
    assert ranges[0][0] == 40
    assert ranges[-1][1] == 40 + 20 * 10_000_000
    assert all((end - start) % 20 == 0 and 0 < end - start <= 64 << 20 for start, end in ranges)
    assert list(divide_entry_range(40, 40, 20)) == []


def test_stores_are_opened_once_for_a_read(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []
    monkeypatch.setattr(
        partitions, "open_store_files", lambda root, *, is_read_once: opened.append((root, is_read_once))
    )
    for read_id in ("first", "first", "second"):
        PlannedStore("b", "s3://logs/b", read_id).open_files()
    PlannedStore("a", "s3://logs/a", "second").open_files()
    assert opened == [("s3://logs/b", True), ("s3://logs/b", True), ("s3://logs/a", True)]


def test_places_of_files_are_paths_or_uris() -> None:
    assert PlannedStore("b", "/data/store", "").location_of("index/1") == "/data/store/index/1"
    assert PlannedStore("b", "s3://logs/b/", "").location_of("index/1") == "s3://logs/b/index/1"
