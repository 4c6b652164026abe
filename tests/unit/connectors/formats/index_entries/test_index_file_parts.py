"""Choice of the IndexFiles that a read of `indexfile` opens, by their headers and sizes."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from commitlake.connectors.formats.index_entries.entry_damage import Reason
from commitlake.connectors.formats.index_entries.entry_options import IndexFileOptions
from commitlake.connectors.formats.index_entries.index_file_parts import IndexPart, plan_index_files, written_end
from commitlake.connectors.reading.errors import StoreError
from commitlake.schemas.layouts.boltmq.dialect import BOLTMQ
from commitlake.schemas.layouts.rocketmq.indexfile import HEADER, Geometry
from tests.support.indexed_stores import OPTIONS, write_indexed_store

_GEOMETRY = Geometry(50, 200)


def plan(root: Path, **given: str) -> list[IndexPart]:
    options = IndexFileOptions.parse({"path": str(root), **given})
    return [part for parts in plan_index_files(options, options.to_read_filters) for part in parts]


def bad(parts: list[IndexPart]) -> list[tuple[int, int, Reason]]:
    return [(part.bad.start, part.bad.end, part.bad.reason) for part in parts if part.bad]


def first_file(store: Path) -> Path:
    return min((store / "index").iterdir())


def test_each_file_is_read_from_its_first_entry_on(plain_store: Path) -> None:
    parts = plan(plain_store)
    assert [part.file.name for part in parts] == sorted(path.name for path in (plain_store / "index").iterdir())
    assert {(part.start, part.end) for part in parts} == {(_GEOMETRY.entry_position(1), _GEOMETRY.file_size)}
    assert written_end(parts[0].file) == _GEOMETRY.file_size


def test_the_option_content_selects_slots_or_headers(plain_store: Path) -> None:
    assert {(part.start, part.end) for part in plan(plain_store, content="slots")} == {(40, 240)}
    assert {(part.start, part.end) for part in plan(plain_store, content="headers")} == {(0, 40)}


def test_a_size_of_no_known_geometry_is_bad_without_the_option(store: Path) -> None:
    size = _GEOMETRY.file_size
    os.truncate(first_file(store), size - 100)
    (found,) = [part.bad for part in plan(store) if part.bad]
    assert (found.start, found.end, found.reason) == (0, size - 100, Reason.SIZE)
    assert "indexSlots" in found.expected
    parts = plan(store, indexSlots="50", indexEntries="200")
    assert bad(parts) == [(size - 100, size, Reason.CUT)]
    assert parts[0].end == size - 100


def test_a_file_longer_than_its_geometry_is_bad_after_the_end(store: Path) -> None:
    size = _GEOMETRY.file_size
    os.truncate(first_file(store), size + 84)
    assert bad(plan(store, indexSlots="50", indexEntries="200")) == [(size, size + 84, Reason.SIZE)]


@pytest.mark.parametrize("size", [0, 39])
def test_a_file_without_a_whole_header_is_bad(store: Path, size: int) -> None:
    os.truncate(first_file(store), size)
    assert bad(plan(store)) == [(0, size, Reason.SIZE)]
    assert bad(plan(store, indexSlots="50", indexEntries="200")) == [(size, _GEOMETRY.file_size, Reason.CUT)]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("begin_timestamp", -1),
        ("end_timestamp", 1 << 62),
        ("begin_physical_offset", -1),
        ("used_slots", 51),
        ("index_count", 201),
        ("index_count", -1),
    ],
)
def test_a_header_that_contradicts_its_file_is_bad_and_ignored(store: Path, field: str, value: int) -> None:
    path = first_file(store)
    data = bytearray(path.read_bytes())
    place = HEADER.offset_of(field)
    width = 8 if place < 32 else 4
    data[place : place + width] = value.to_bytes(width, "big", signed=True)
    path.write_bytes(data)
    parts = plan(store)
    assert bad(parts) == [(0, HEADER.size, Reason.HEADER)]
    assert written_end(parts[1].file) == _GEOMETRY.entry_position(1)


def test_links_are_refused(store: Path, tmp_path: Path) -> None:
    first_file(store).rename(tmp_path / "moved")
    (store / "index" / "20200101000000000").symlink_to(tmp_path / "moved")
    with pytest.raises(StoreError, match="found a symbolic link"):
        plan(store)


def test_a_store_without_an_index_is_an_error(store: Path) -> None:
    (store / "index").rename(store / "elsewhere")
    with pytest.raises(StoreError, match="has no folder 'index'"):
        plan(store)


def test_keys_are_not_looked_up_in_an_index_without_chains(tmp_path: Path) -> None:
    store = write_indexed_store(tmp_path / "store", count=20, options=replace(OPTIONS, dialect=BOLTMQ))
    (store / "index" / "20180220120000000").write_bytes(bytes(_GEOMETRY.file_size))
    assert [part.file.name for part in plan(store)] == ["20180220120000000"]
    with pytest.raises(StoreError, match="BoltMQ writes no chains of keys into its own"):
        plan(store, topics="rare", keys="order-1")
