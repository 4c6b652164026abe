"""Tests of the queues and indexes of a store, which read alike on a disk and in a copy in an object store."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from commitlake.broker_lite.stores.rocketmq import MessageStore
from commitlake.connectors.arrays import Array
from commitlake.connectors.formats.engine import store_files
from commitlake.connectors.formats.engine.errors import StoreError
from commitlake.connectors.formats.engine.remote_files import RemoteFile
from commitlake.connectors.formats.engine.store_files import IndexedFile, StoreFiles, open_store_files, read_all
from commitlake.schemas.shipped import FILES_MANIFEST
from tests.support.indexed_stores import OPTIONS, Clock, message
from tests.support.remote_copies import COPY, serve_copies, ship_copy

FOLDERS = ("consumequeue", "index")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with some files in each queue, of which the last ones are not full, and with two full IndexFiles."""
    chance = random.Random(6)
    with MessageStore.open(tmp_path / "store", OPTIONS, clock=Clock()) as opened:
        for number in range(220):
            opened.put(message(number, chance))
    return tmp_path / "store"


@pytest.fixture
def copy(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Copy of the store in an object store."""
    serve_copies(tmp_path / "remote", monkeypatch)
    ship_copy(store, tmp_path / "remote")
    return COPY


def paths_below(files: StoreFiles, folder: str) -> list[str]:
    """Return the paths of all files below a folder."""
    found = [f"{folder}/{name}" for name in files.files_in(folder)]
    return found + [path for name in files.folders_in(folder) for path in paths_below(files, f"{folder}/{name}")]


def content(file: IndexedFile) -> bytes:
    """Read a file by its holes and data, from ranges of an odd size."""
    data, position = bytearray(file.size()), 0
    while (start := file.next_data(position)) is not None and start < file.size():
        end = min(file.next_hole(start), start + 77)
        assert end > start
        found = read_all(file, start, end)
        data[start : start + len(found)] = found.tobytes()
        position = start + len(found)
    return bytes(data)


def test_copy_has_the_files_of_the_store(store: Path, copy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    of_store, of_copy = open_store_files(str(store)), open_store_files(copy)
    expected = [path for folder in FOLDERS for path in paths_below(of_store, folder)]
    newest_index = max(path for path in expected if path.startswith("index/"))
    expected.remove(newest_index)  # which is not copied
    assert [path for folder in FOLDERS for path in paths_below(of_copy, folder)] == expected
    assert len(expected) > 10
    assert of_copy.folders_in("consumequeue") == of_store.folders_in("consumequeue") != []
    assert of_copy.files_in("index", lambda name: not name) == []
    for largest in (store_files.MAX_WHOLE_BYTES, 0):  # read whole, or ahead
        monkeypatch.setattr(store_files, "MAX_WHOLE_BYTES", largest)
        again = open_store_files(copy)
        for path in expected:
            data = (store / path).read_bytes()
            file = again.open(path)
            assert (file.size(), again.size_of(path)) == (len(data), len(data))
            assert content(file) == data
            assert read_all(file, len(data) - 3, len(data) + 9).tobytes() == data[-3:]
            file.close()
    assert of_copy.place_of("index/1") == f"{COPY}/index/1"
    assert of_store.place_of("index/1") == str(store / "index/1")


def test_unwritten_end_of_a_copied_file_is_a_hole(store: Path, copy: str) -> None:
    path = f"consumequeue/rare/0/{0:020}"
    file = open_store_files(copy).open(path)
    written = -(-len((store / path).read_bytes().rstrip(b"\0")) // 20) * 20
    assert 0 < written < file.size()
    assert file.next_hole(0) == written
    assert file.next_data(written - 1) == written - 1
    assert file.next_data(written) is None
    assert not read_all(file, written, file.size()).any()


@pytest.mark.parametrize("is_copy", [True, False])
def test_missing_files_and_folders_are_told_from_empty_ones(store: Path, copy: str, is_copy: bool) -> None:
    files = open_store_files(copy if is_copy else str(store))
    assert files.has_folder("consumequeue/rare")
    assert not files.has_folder("consumequeue/none")
    assert files.folders_in("consumequeue/none") == files.files_in("consumequeue/none") == []
    with pytest.raises(FileNotFoundError):
        files.open("index/1")
    with pytest.raises(FileNotFoundError):
        files.size_of("index/1")


def test_last_files_are_kept_up_to_a_limit(copy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_files, "_MAX_KEPT_BYTES", 5000)
    files = open_store_files(copy)
    paths = paths_below(files, "index")  # of 4,240 bytes each
    first = files.open(paths[0])
    assert files.open(paths[0]) is first
    files.open(paths[1])
    again = files.open(paths[0])
    assert again is not first
    assert content(again) == content(first)


def test_copy_that_was_changed_is_an_error_and_not_a_shorter_file(copy: str, tmp_path: Path) -> None:
    (path, *_) = paths_below(open_store_files(copy), "index")
    place = tmp_path / "remote" / "copy" / path
    place.write_bytes(place.read_bytes()[:-1])
    with pytest.raises(StoreError, match=rf"copy/{path}: expected \d+ bytes, found \d+: the copy was changed"):
        open_store_files(copy).open(path)


def test_place_without_a_manifest_is_refused(copy: str, tmp_path: Path) -> None:
    (tmp_path / "remote" / "copy" / FILES_MANIFEST).unlink()
    with pytest.raises(StoreError, match="expected a copy that 'commitlake ship' made"):
        open_store_files(copy)


def test_ranges_after_the_end_are_empty(store: Path) -> None:
    file = open_store_files(str(store)).open(f"consumequeue/rare/0/{0:020}")
    assert read_all(file, 5, 5).dtype == np.uint8
    assert len(read_all(file, 5, 3)) == 0
    file.close()


def test_missing_object_of_a_copy_is_an_error_and_not_a_missing_file(copy: str, tmp_path: Path) -> None:
    (path, *_) = paths_below(open_store_files(copy), "index")
    (tmp_path / "remote" / "copy" / path).unlink()
    with pytest.raises(StoreError, match=rf"copy/{path}: expected \d+ bytes, found no such object: the copy was"):
        open_store_files(copy).open(path)


def test_large_file_of_a_copy_that_became_shorter_is_an_error(
    copy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_files, "MAX_WHOLE_BYTES", 0)
    (path, *_) = paths_below(open_store_files(copy), "index")
    place = tmp_path / "remote" / "copy" / path
    place.write_bytes(place.read_bytes()[:-1])
    for block_bytes in (store_files.BLOCK_BYTES, 16):  # in blocks, or ahead
        monkeypatch.setattr(store_files, "BLOCK_BYTES", block_bytes)
        file = open_store_files(copy).open(path)
        with pytest.raises(StoreError, match=rf"copy/{path}: expected \d+ bytes, found \d+: the copy was changed"):
            read_all(file, 0, file.size())


def test_small_reads_near_each_other_are_one_request(copy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_files, "MAX_WHOLE_BYTES", 0)
    read = RemoteFile.read_at
    requests: list[tuple[int, int]] = []

    def read_at(file: RemoteFile, size: int, position: int) -> Array:
        requests.append((position, size))
        return read(file, size, position)

    monkeypatch.setattr(RemoteFile, "read_at", read_at)
    monkeypatch.setattr(store_files, "BLOCK_BYTES", 1000)
    files = open_store_files(copy)
    (path, *_) = paths_below(files, "index")
    for position in (1900, 1100, 1500, 1990):  # the last one needs two blocks
        read_all(files.open(path), position, position + 20)
    assert requests == [(1000, 1000), (2000, 1000)]
