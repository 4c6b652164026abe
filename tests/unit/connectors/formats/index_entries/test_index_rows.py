"""The rows of `indexfile`."""

from __future__ import annotations

import datetime
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from commitlake.connectors.formats.rocketmq.indexes import walk_index_files
from commitlake.connectors.reading.errors import CommitLogError, StoreError
from commitlake.connectors.reading.files import shipped_files
from commitlake.connectors.reading.files.store_files import open_store_files
from commitlake.schemas.layouts.rocketmq.indexfile import (
    HEADER,
    Geometry,
    IndexFileEntry,
    key_hash,
    parse_header,
    serialize_entry,
)
from tests.support.index_entries import Read
from tests.support.index_entry_rows import Rows, with_places_of
from tests.support.indexed_stores import RARE, unique_key

_GEOMETRY = Geometry(50, 200)


def milliseconds(time: datetime.datetime) -> int:
    return int(time.timestamp() * 1000)


def last_file(store: Path) -> Path:
    """Return the file that is not full."""
    return max((store / "index").iterdir())


def write_entry(path: Path, number: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(_GEOMETRY.entry_position(number))
        file.write(data)


def ranges(rows: Rows) -> list[tuple[int, int, str]]:
    """Return the bad ranges, in numbers of entries."""
    found = [row["_corrupt_record"] for row in rows if row["_corrupt_record"]]
    first = _GEOMETRY.entry_position(0)
    return [((each["start"] - first) // 20, (each["end"] - first) // 20, each["reason"]) for each in found]


def test_entries_equal_those_of_the_plain_reader(plain_store: Path, read_index: Read) -> None:
    rows = read_index(plain_store)
    names = ("file", "entry", "slot", "key_hash", "physical_offset", "previous_entry")
    assert [(*(row[name] for name in names), milliseconds(row["store_timestamp"])) for row in rows] == [
        (
            each.file,
            each.number,
            each.slot,
            each.entry.key_hash,
            each.entry.physical_offset,
            each.entry.previous_entry,
            each.store_timestamp,
        )
        for each in walk_index_files(open_store_files(str(plain_store)))
    ]
    assert len(rows) == 330 * 4  # a unique key, two keys and tags for each message


def test_slots_point_to_the_newest_entry_of_their_chain(plain_store: Path, read_index: Read) -> None:
    newest = {(row["file"], row["slot"]): row["entry"] for row in read_index(plain_store)}
    slots = read_index(plain_store, content="slots")
    assert {(row["file"], row["slot"]): row["newest_entry"] for row in slots} == newest
    assert len(slots) == len(newest)


def test_headers_are_one_row_for_each_file(plain_store: Path, read_index: Read) -> None:
    rows = read_index(plain_store, content="headers")
    for row, path in zip(rows, sorted((plain_store / "index").iterdir()), strict=True):
        header = parse_header(path.read_bytes()[: HEADER.size])
        assert (row["file"], row["slots"], row["entries"]) == (path.name, 50, 200)
        assert (row["used_slots"], row["index_count"]) == (header.used_slots, header.index_count)
        assert milliseconds(row["end_timestamp"]) == header.end_timestamp
        assert row["end_physical_offset"] == header.end_physical_offset


def test_keys_select_entries_by_their_hash(plain_store: Path, read_index: Read) -> None:
    keys = ("order-40", unique_key(40), "absent")
    rows = read_index(plain_store, topics=RARE, keys=",".join(keys))
    assert {row["key_hash"] for row in rows} == {key_hash(RARE, key) for key in keys[:2]}
    assert len({row["physical_offset"] for row in rows}) == 1


def test_offsets_select_entries(plain_store: Path, read_index: Read) -> None:
    every = read_index(plain_store)
    low, high = every[100]["physical_offset"], every[500]["physical_offset"]
    chosen = read_index(plain_store, startingOffset=low, endingOffset=high)
    assert chosen == [row for row in every if low <= row["physical_offset"] < high]


@pytest.mark.parametrize(
    "entry",
    [
        None,
        IndexFileEntry(-5, 0, 0, 0),
        IndexFileEntry(5, -1, 0, 0),
        IndexFileEntry(5, 0, -1, 0),
        IndexFileEntry(5, 0, 0, 7),
        IndexFileEntry(5, 0, 0, -7),
    ],
    ids=["zeros", "hash", "offset", "time", "newer entry", "previous entry"],
)
def test_an_impossible_entry_is_handled_according_to_the_mode(
    store: Path, read_index: Read, entry: IndexFileEntry | None
) -> None:
    path = last_file(store)
    every = len(read_index(store))
    write_entry(path, 7, bytes(20) if entry is None else serialize_entry(entry))
    with pytest.raises(CommitLogError, match=f"{path.name}, bytes 380 to 400: entry: expected an entry"):
        read_index(store)
    assert len(read_index(store, mode="DROPMALFORMED")) == every - 1
    rows = read_index(store, mode="PERMISSIVE")
    assert ranges(rows) == [(7, 8, "entry")]
    assert len(rows) == every


def test_unwritten_entries_that_the_header_counts_are_bad(store: Path, read_index: Read) -> None:
    path = last_file(store)
    count = parse_header(path.read_bytes()[: HEADER.size]).index_count
    write_entry(path, count - 2, bytes(40))
    assert ranges(read_index(store, mode="PERMISSIVE")) == [(count - 2, count, "entry")]


def test_entries_that_the_header_does_not_count_yet_are_rows(store: Path, read_index: Read) -> None:
    every = read_index(store)
    with last_file(store).open("r+b") as file:
        file.seek(HEADER.offset_of("index_count"))
        file.write((3).to_bytes(4, "big"))
    assert read_index(store) == every


def test_entries_of_a_file_with_a_bad_header_have_no_times(store: Path, read_index: Read) -> None:
    every = len(read_index(store))
    with last_file(store).open("r+b") as file:
        file.write(b"\xff" * HEADER.size)
    rows = read_index(store, mode="PERMISSIVE")
    assert len([row for row in rows if row["entry"]]) == every
    newest = [row for row in rows if row["file"] == last_file(store).name and row["entry"]]
    assert {row["store_timestamp"] for row in newest} == {None}
    assert [row["_corrupt_record"]["reason"] for row in rows if row["_corrupt_record"]] == ["header"]


def test_a_slot_that_points_to_no_entry_is_bad(store: Path, read_index: Read) -> None:
    every = read_index(store, content="slots")
    with last_file(store).open("r+b") as file:
        file.seek(_GEOMETRY.slot_position(every[-1]["slot"]))
        file.write((200).to_bytes(4, "big"))
    rows = read_index(store, content="slots", mode="PERMISSIVE")
    assert [row for row in rows if row["slot"] is not None] == every[:-1]
    assert [row["_corrupt_record"]["expected"] for row in rows if row["_corrupt_record"]] == [
        "the number of an entry, 0 to 199"
    ]


def test_files_of_another_geometry_are_read_with_it(tmp_path: Path, read_index: Read) -> None:
    from commitlake.broker_lite.stores.rocketmq import StoreOptions
    from tests.support.indexed_stores import write_indexed_store

    options = StoreOptions(segment_size_bytes=1 << 14, index_slots=30, index_entries=77)
    store = write_indexed_store(tmp_path / "store", count=50, options=options)
    rows = read_index(store, indexSlots=30, indexEntries=77)
    assert [row["key_hash"] for row in rows] == [
        each.entry.key_hash for each in walk_index_files(open_store_files(str(store)), Geometry(30, 77))
    ]
    with pytest.raises(CommitLogError, match="indexSlots and indexEntries"):
        read_index(store)


def without_newest(store: Path, rows: Rows) -> Rows:
    """Leave out the rows of the newest IndexFile, which is not copied."""
    return [row for row in rows if row["file"] != last_file(store).name]


@pytest.mark.parametrize("largest", [shipped_files.MAX_WHOLE_BYTES, 0])  # read whole, or ahead
@pytest.mark.parametrize(
    "given", [{}, {"content": "slots"}, {"content": "headers"}, {"topics": RARE, "keys": "order-40,order-200"}]
)
def test_rows_of_a_copy_equal_those_of_the_store_except_the_newest_file(
    plain_store: Path,
    ship: Callable[[Path], str],
    read_index: Read,
    monkeypatch: pytest.MonkeyPatch,
    given: dict[str, str],
    largest: int,
) -> None:
    monkeypatch.setattr(shipped_files, "MAX_WHOLE_BYTES", largest)
    rows = read_index(ship(plain_store), broker="b", **given)
    assert rows == without_newest(plain_store, read_index(plain_store, broker="b", **given))
    assert rows


def test_damage_is_found_alike_in_a_copy(store: Path, ship: Callable[[Path], str], read_index: Read) -> None:
    first, second, *_ = sorted((store / "index").iterdir())
    write_entry(first, 7, bytes(20))
    with second.open("r+b") as file:
        file.write(b"\xff" * HEADER.size)
    copy = ship(store)
    given = {"broker": "b", "mode": "PERMISSIVE", "indexSlots": 50, "indexEntries": 200}
    rows = with_places_of(store, without_newest(store, read_index(store, **given)))
    assert with_places_of(copy, read_index(copy, **given)) == rows
    assert [row["_corrupt_record"]["reason"] for row in rows if row["_corrupt_record"]] == ["entry", "header"]


def test_files_that_were_deleted_in_a_copy_are_bad(
    store: Path, ship: Callable[[Path], str], read_index: Read, remote: Path
) -> None:
    copy = ship(store)
    path = min((remote / "index").iterdir())
    path.unlink()
    with pytest.raises(
        CommitLogError, match=f"{copy}/index/{path.name}, bytes 0 to 4240: missing: expected a file, found none"
    ):
        read_index(copy)
    (bad,) = [row for row in read_index(copy, mode="PERMISSIVE") if row["_corrupt_record"]]
    assert (bad["file"], bad["_corrupt_record"]["reason"]) == (path.name, "missing")


@pytest.mark.parametrize("largest", [shipped_files.MAX_WHOLE_BYTES, 0])
def test_files_that_were_cut_in_a_copy_are_an_error(
    store: Path,
    ship: Callable[[Path], str],
    read_index: Read,
    remote: Path,
    monkeypatch: pytest.MonkeyPatch,
    largest: int,
) -> None:
    monkeypatch.setattr(shipped_files, "MAX_WHOLE_BYTES", largest)
    copy = ship(store)
    path = min((remote / "index").iterdir())
    os.truncate(path, 4239)
    with pytest.raises(StoreError, match=f"{path.name}: expected 4240 bytes, found 4239: the copy was changed"):
        read_index(copy, mode="PERMISSIVE")


def test_a_copy_without_index_files_has_no_rows_unless_it_has_no_queues_either(
    store: Path, ship: Callable[[Path], str], read_index: Read
) -> None:
    for path in sorted((store / "index").iterdir())[:-1]:
        path.unlink()
    assert read_index(ship(store)) == []
    shutil.rmtree(store / "consumequeue")
    with pytest.raises(StoreError, match="has no folder 'index'"):
        read_index(ship(store))
