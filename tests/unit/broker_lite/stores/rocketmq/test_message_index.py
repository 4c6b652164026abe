"""Tests of the index: entries of a message, full files, and names of files."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from commitlake.broker_lite.stores.engine.mapped_file import MappedFile, MappedFiles
from commitlake.broker_lite.stores.rocketmq import MessageStore, StoreFilesError, StoreOptions
from commitlake.broker_lite.stores.rocketmq.message_index import IndexFile, MessageIndex, index_file_name
from commitlake.schemas.layouts.rocketmq.indexfile import (
    ENTRY,
    HEADER,
    SLOT,
    Geometry,
    Header,
    IndexFileEntry,
    key_hash,
    parse_entry,
    parse_header,
)
from tests.support.message_stores import SMALL, message
from tests.support.small_stores import STORED_MS, Clock

GEOMETRY = SMALL.index_geometry


def index_files(root: Path) -> list[bytes]:
    """Return the bytes of the index files, oldest first."""
    return [path.read_bytes() for path in sorted((root / "index").iterdir())]


def header_and_entries(data: bytes) -> tuple[Header, list[IndexFileEntry]]:
    """Return the header and the entries of a file, from entry 1 on."""
    header = parse_header(data)
    return header, [parse_entry(data, GEOMETRY.entry_position(number)) for number in range(1, header.index_count)]


def test_unique_key_comes_before_keys_and_tags(root: Path, store: MessageStore) -> None:
    properties = (("TAGS", "new"), ("KEYS", "a  b"), ("UNIQ_KEY", "u"), ("other", "x"))
    store.put(message(properties=properties))
    _, entries = header_and_entries(index_files(root)[0])
    assert [entry.key_hash for entry in entries] == [key_hash("orders", key) for key in ("u", "a", "b", "T#new")]


def test_tags_are_left_out_if_the_option_is_off_as_before_5_5(root: Path, clock: Clock) -> None:
    options = StoreOptions(segment_size_bytes=4096, index_slots=7, index_entries=24, index_tags=False)
    with MessageStore.open(root, options, clock=clock) as store:
        store.put(message(properties=(("TAGS", "new"), ("KEYS", "a"))))
    _, entries = header_and_entries(index_files(root)[0])
    assert [entry.key_hash for entry in entries] == [key_hash("orders", "a")]


@pytest.mark.parametrize(("transaction_type", "entries"), [(0x0, 1), (0x4, 1), (0x8, 1), (0xC, 0)])
def test_only_rolled_back_records_are_left_out(
    root: Path, store: MessageStore, transaction_type: int, entries: int
) -> None:
    store.put(message(sys_flag=transaction_type, properties=(("KEYS", "a"),)))
    assert len(header_and_entries(index_files(root)[0])[1]) == entries


def test_last_value_of_a_repeated_property_is_entered(store: MessageStore) -> None:
    store.put(message(properties=(("UNIQ_KEY", "own"), ("UNIQ_KEY", "of the batch"))))
    assert len(store.get_by_key("orders", "of the batch")) == 1
    assert store.get_by_key("orders", "own") == []


def test_first_message_makes_the_first_file_even_without_keys(root: Path, store: MessageStore) -> None:
    store.put(message(properties=()))
    (data,) = index_files(root)
    assert len(data) == GEOMETRY.file_size
    assert not any(data)


def test_file_is_full_one_entry_before_its_capacity(root: Path, store: MessageStore, clock: Clock) -> None:
    for number in range(23):
        store.put(message(number, properties=(("KEYS", f"k{number}"),)))
    assert len(index_files(root)) == 1
    clock.now_ms += 5
    store.put(message(23, properties=(("KEYS", "k23"),)))
    first, second = map(header_and_entries, index_files(root))
    assert (len(first[1]), len(second[1])) == (23, 1)
    assert second[0].begin_timestamp == clock.now_ms


def test_file_may_be_full_between_two_keys_of_one_message(root: Path, store: MessageStore) -> None:
    for number in range(22):
        store.put(message(number, properties=(("KEYS", f"k{number}"),)))
    store.put(message(22, properties=(("KEYS", "one two three"),)))
    first, second = map(header_and_entries, index_files(root))
    assert [len(first[1]), len(second[1])] == [23, 2]
    assert all(len(store.get_by_key("orders", key)) == 1 for key in ("one", "two", "three"))


def test_message_with_more_keys_than_a_file_holds_fills_several(root: Path, store: MessageStore) -> None:
    keys = [f"k{number}" for number in range(60)]
    store.put(message(properties=(("KEYS", " ".join(keys)),)))
    assert [len(header_and_entries(data)[1]) for data in index_files(root)] == [23, 23, 14]
    assert all(len(store.get_by_key("orders", key)) == 1 for key in keys)


def test_new_file_begins_with_the_end_of_the_previous_file(tmp_path: Path) -> None:
    previous = Header(1000, 2000, 0, 500, 3, 24)
    file = IndexFile.create(tmp_path / "20231114221320456", GEOMETRY, MappedFiles(), previous)
    assert parse_header((tmp_path / "20231114221320456").read_bytes()) == Header(2000, 2000, 500, 500, 0, 1)
    assert file.is_empty
    file.put([(1, 600)], 62_000)
    # The quirk: the first entry's time is counted from the previous end, the header's begin is its own.
    assert header_and_entries((tmp_path / "20231114221320456").read_bytes()) == (
        Header(62_000, 62_000, 600, 600, 1, 2),
        [IndexFileEntry(1, 600, 60, 0)],
    )


def test_entries_of_one_slot_are_chained_from_the_newest(tmp_path: Path) -> None:
    file = IndexFile.create(tmp_path / "20231114221320456", GEOMETRY, MappedFiles(), None)
    file.put([(key, 100) for key in (3, 3 + GEOMETRY.slots, 4, 3)], STORED_MS)
    header, entries = header_and_entries((tmp_path / "20231114221320456").read_bytes())
    assert [entry.previous_entry for entry in entries] == [0, 1, 0, 2]
    assert (header.used_slots, header.index_count) == (2, 5)


def killed_before_the_header_was_written(path: Path, put: Callable[[IndexFile], None]) -> IndexFile:
    """Return the file as a process leaves it that ends in a put: with new entries and slots, and the old header."""
    file = IndexFile(MappedFile(path, GEOMETRY.file_size, MappedFiles()), GEOMETRY)
    older = file._file.memory[: HEADER.size]
    put(file)
    file._file.memory[: HEADER.size] = older
    return IndexFile(MappedFile(path, GEOMETRY.file_size, MappedFiles()), GEOMETRY)


def test_older_entries_are_found_if_a_process_ended_between_entry_and_header(tmp_path: Path) -> None:
    path = tmp_path / "20231114221320456"
    IndexFile.create(path, GEOMETRY, MappedFiles(), None).put([(3, 100), (4, 150)], STORED_MS)
    file = killed_before_the_header_was_written(path, lambda file: file.put([(3, 200), (4, 200), (3, 200)], STORED_MS))
    assert [file.lookup(key, 0, 1 << 62) for key in (3, 4)] == [[100], [150]]
    for entry in ((3, 200), (4, 200), (3, 200)):
        file.put([entry], STORED_MS)
    assert [file.lookup(key, 0, 1 << 62) for key in (3, 4)] == [[200, 200, 100], [200, 150]]
    header, entries = header_and_entries(path.read_bytes())
    assert [entry.previous_entry for entry in entries] == [0, 0, 1, 2, 3]
    assert header.used_slots == 2


def test_uncounted_entries_of_a_damaged_file_end_a_chain(tmp_path: Path) -> None:
    path = tmp_path / "20231114221320456"
    IndexFile.create(path, GEOMETRY, MappedFiles(), None).put([(3, 100)], STORED_MS)
    file = IndexFile(MappedFile(path, GEOMETRY.file_size, MappedFiles()), GEOMETRY)
    slot = GEOMETRY.slot_position(3)
    for number in (-1, 2, 23, 24, (1 << 31) - 1):
        file._file.memory[slot : slot + SLOT.size] = SLOT.pack(number)
        assert file.lookup(3, 0, 1 << 62) == []


def test_lookup_ends_in_a_circular_chain(tmp_path: Path) -> None:
    file = IndexFile.create(tmp_path / "20231114221320456", GEOMETRY, MappedFiles(), None)
    file.put([(3, 100), (3, 100)], STORED_MS)
    memory = file._file.memory
    at = GEOMETRY.entry_position(1)
    memory[at : at + ENTRY.size] = ENTRY.pack(3, 100, 0, 2)
    assert list(file.lookup(3, 0, 1 << 62)) == [100, 100]


def test_file_never_flushed_counts_as_empty(tmp_path: Path) -> None:
    path = tmp_path / "20231114221320456"
    path.write_bytes(bytes(GEOMETRY.file_size))
    file = IndexFile(MappedFile(path, GEOMETRY.file_size, MappedFiles()), GEOMETRY)
    assert file.is_empty
    assert not file.overlaps_time_range(0, 1 << 62)
    assert file.header.index_count == 1


def test_files_are_named_by_local_time(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        with monkeypatch.context() as changed:
            changed.setenv("TZ", "Asia/Shanghai")
            time.tzset()
            assert index_file_name(1_700_000_000_456) == "20231115061320456"
            changed.setenv("TZ", "UTC")
            time.tzset()
            assert index_file_name(1_700_000_000_007) == "20231114221320007"
    finally:
        time.tzset()


@pytest.mark.parametrize("step_ms", [0, -3_600_000])
def test_names_increase_even_if_the_clock_stops_or_goes_back(
    root: Path, store: MessageStore, clock: Clock, step_ms: int
) -> None:
    for number in range(3 * 23):
        store.put(message(number, properties=(("KEYS", f"k{number}"),)))
        clock.now_ms += step_ms
    headers = [parse_header(data) for data in index_files(root)]
    assert len(headers) == 3
    assert [header.begin_physical_offset for header in headers] == sorted(
        header.begin_physical_offset for header in headers
    )


def test_no_message_is_lost_from_the_index_if_the_clock_is_set_back_before_a_crash(
    root: Path, tmp_path: Path, clock: Clock
) -> None:
    keys = [f"k{number}" for number in range(3 * 23)]
    for first, step_ms in ((0, 10_000), (23, -60_000)):
        store = MessageStore.open(root, SMALL, clock=clock)
        for key in keys[first:] if first else keys[:23]:
            if key == "k46":
                clock.now_ms += step_ms
            store.put(message(properties=(("KEYS", key),)))
        if first:
            shutil.copytree(root, tmp_path / "crashed", ignore=shutil.ignore_patterns("lock"))
        store.close()
        clock.now_ms += 10_000
    with MessageStore.open(tmp_path / "crashed", SMALL, clock=clock) as store:
        assert store.recovery.crashed
        assert [key for key in keys if len(store.get_by_key("orders", key)) != 1] == []


def test_file_of_another_size_is_an_error(root: Path) -> None:
    MessageStore.open(root, SMALL).close()
    (root / "index" / "20231114221320456").write_bytes(b"\0" * 100)
    with pytest.raises(
        StoreFilesError, match=r"20231114221320456: expected 548 bytes, which 7 slots and 24 .* found 100"
    ):
        MessageStore.open(root, SMALL)


def test_other_files_in_the_folder_are_left_unchanged(root: Path, clock: Clock) -> None:
    MessageStore.open(root, SMALL).close()
    (root / "index" / "README").write_text("mine")
    with MessageStore.open(root, SMALL, clock=clock) as store:
        store.put(message())
    assert (root / "index" / "README").read_text() == "mine"


def test_lookup_reads_the_newest_file_first(tmp_path: Path, clock: Clock) -> None:
    index = MessageIndex(tmp_path, Geometry(3, 4), MappedFiles(), clock)
    for number in range(9):
        index.put("orders", [(["same"], number * 100)], STORED_MS + number)
    assert list(index.lookup("orders", "same", 0, 1 << 62)) == [number * 100 for number in range(8, -1, -1)]
