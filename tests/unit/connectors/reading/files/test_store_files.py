"""Tests of the queues and indexes of a store, which read alike on a disk and in a copy in an object store."""

from __future__ import annotations

import pickle
import random
import shutil
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.fs as pafs
import pytest

from commitlake.broker_lite.stores.rocketmq import MessageStore
from commitlake.connectors.log_format.files import IndexedFile, StoreFiles
from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.reading.errors import StoreError
from commitlake.connectors.reading.files import shipped_files
from commitlake.connectors.reading.files.index_files import find_nonzero_window, read_range
from commitlake.connectors.reading.files.remote_files import RemoteFile
from commitlake.connectors.reading.files.segment_files import LocalFile
from commitlake.connectors.reading.files.shipped_files import ShippedStoreFiles
from commitlake.connectors.reading.files.shipped_stores import read_shipped_manifest
from commitlake.connectors.reading.files.store_files import open_store_files
from commitlake.schemas.shipped_manifest import (
    FILES_MANIFEST,
    PARTS,
    Manifest,
    Part,
    ShippedFile,
    part_name,
    serialize_manifest,
)
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
        found = read_range(file, start, end)
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
    for largest in (shipped_files.MAX_WHOLE_BYTES, 0):  # read whole, or ahead
        monkeypatch.setattr(shipped_files, "MAX_WHOLE_BYTES", largest)
        again = open_store_files(copy)
        for path in expected:
            data = (store / path).read_bytes()
            file = again.open(path)
            assert (file.size(), again.size_of(path)) == (len(data), len(data))
            assert content(file) == data
            assert read_range(file, len(data) - 3, len(data) + 9).tobytes() == data[-3:]
            file.close()
    assert of_copy.location_of("index/1") == f"{COPY}/index/1"
    assert of_store.location_of("index/1") == str(store / "index/1")


def test_unwritten_end_of_a_copied_file_is_a_hole(store: Path, copy: str) -> None:
    path = f"consumequeue/rare/0/{0:020}"
    file = open_store_files(copy).open(path)
    written = -(-len((store / path).read_bytes().rstrip(b"\0")) // 20) * 20
    assert 0 < written < file.size()
    assert file.next_hole(0) == written
    assert file.next_data(written - 1) == written - 1
    assert file.next_data(written) is None
    assert not read_range(file, written, file.size()).any()


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
    monkeypatch.setattr(shipped_files, "_MAX_KEPT_BYTES", 5000)
    files = open_store_files(copy)
    paths = paths_below(files, "index")  # of 4,240 bytes each
    first = files.open(paths[0])
    assert files.open(paths[0]) is first
    files.open(paths[1])
    again = files.open(paths[0])
    assert again is not first
    assert content(again) == content(first)


def test_nothing_is_kept_of_files_that_are_read_once(copy: str) -> None:
    files = open_store_files(copy, is_read_once=True)
    (path, *_) = paths_below(files, "index")
    first = files.open(path)
    assert files.open(path) is not first
    assert content(first) == content(files.open(path))


@pytest.mark.parametrize("is_copy", [True, False])
def test_a_file_has_data_up_to_its_last_byte_that_is_not_zero(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_copy: bool
) -> None:
    folder = store / "consumequeue" / "rare" / "0"
    size = (folder / f"{0:020}").stat().st_size
    (folder / f"{size:020}").write_bytes(bytes(size))
    (folder / f"{2 * size:020}").write_bytes((b"x" * 20).ljust(size, b"\0"))
    (folder / f"{3 * size:020}").write_bytes(bytes(size))
    serve_copies(tmp_path / "remote", monkeypatch)
    ship_copy(store, tmp_path / "remote")
    files = open_store_files(COPY if is_copy else str(store))
    paths = [f"consumequeue/rare/0/{name}" for name in files.files_in("consumequeue/rare/0")]
    assert len(paths) == (3 if is_copy else 4)  # a file that the broker has not written to yet is not copied
    assert [files.has_data(path) for path in paths] == [True, False, True, False][: len(paths)]
    assert [files.data_end(path) for path in paths] == ([size, size, 20] if is_copy else [size] * 4)


def test_data_of_a_growing_file_is_known_without_reading_it(
    store: Path, copy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"consumequeue/rare/0/{0:020}"
    files = open_store_files(copy)
    monkeypatch.setattr(files, "open", None)
    assert files.has_data(path)
    assert files.data_end(path) == len((store / path).read_bytes().rstrip(b"\0"))


def test_no_more_is_read_ahead_than_was_asked_for(copy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipped_files, "MAX_WHOLE_BYTES", 0)
    (path, *_) = paths_below(open_store_files(copy), "index")
    asked = []
    read_at = RemoteFile.read_at

    def note(file: RemoteFile, size: int, start: int) -> Array:
        asked.append(start + size)
        return read_at(file, size, start)

    monkeypatch.setattr(RemoteFile, "read_at", note)
    monkeypatch.setattr(shipped_files, "BLOCK_BYTES", 16)
    with closing(open_store_files(copy).open(path, 400)) as file:
        for start in range(0, 400, 40):
            assert len(read_range(file, start, start + 40)) == 40
    assert max(asked) == 400


@pytest.mark.parametrize("largest", [shipped_files.MAX_WHOLE_BYTES, 0])
@pytest.mark.parametrize("size", [0, -1])
def test_copy_that_was_changed_is_an_error_and_not_a_shorter_file(
    copy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, largest: int, size: int
) -> None:
    monkeypatch.setattr(shipped_files, "MAX_WHOLE_BYTES", largest)
    (path, *_) = paths_below(open_store_files(copy), "index")
    place = tmp_path / "remote" / "copy" / path
    place.write_bytes(place.read_bytes()[:size])
    with pytest.raises(StoreError, match=rf"copy/{path}: expected \d+ bytes, found \d+: the copy was changed"):
        open_store_files(copy).open(path)


def test_manifest_is_read_once_for_all_files_whose_parts_were_merged(
    store: Path, copy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = open_store_files(copy)
    queues = [f"consumequeue/{topic}/{queue}" for topic in files.folders_in("consumequeue") for queue in range(3)]
    paths = [f"{queue}/{files.files_in(queue)[-1]}" for queue in queues]
    before = {path: (files.data_end(path), (store / path).read_bytes()) for path in paths}
    before = {path: (end, data) for path, (end, data) in before.items() if end < len(data)}
    for path, (end, _) in before.items():
        with (store / path).open("r+b") as file:
            file.seek(end)
            file.write(b"\1" * 20)
    ship_copy(store, tmp_path / "remote")  # an agent that has shipped nothing yet, so that other parts are there
    read: list[object] = []

    def note(*given: Any) -> Manifest | None:
        read.append(given)
        return read_shipped_manifest(*given)

    monkeypatch.setattr(shipped_files, "read_shipped_manifest", note)
    for path, (end, data) in before.items():
        assert read_range(files.open(path), 0, end).tobytes() == data[:end]
    assert len(read) == 1
    assert len(before) > 3


CHANGES: dict[str, tuple[Callable[[ShippedFile], ShippedFile | None], str]] = {
    "fewer bytes": (
        lambda entry: replace(entry, parts=(Part(0, 20, 1),)),
        r"expected \d+ bytes, found 20: the copy was changed",
    ),
    "other first bytes": (
        lambda entry: replace(entry, parts=(Part(0, entry.shipped_bytes, 1),), head_crc=entry.head_crc ^ 1),
        r"expected that the first \d+ bytes have the CRC-32 [0-9a-f]{8}, found [0-9a-f]{8}: the copy was changed",
    ),
    "no such file": (lambda _: None, r"expected \d+ bytes, found 0: the copy was changed"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_newer_manifest_that_has_not_the_same_bytes_is_an_error(copy: str, tmp_path: Path, change: str) -> None:
    path, folder = f"consumequeue/rare/0/{0:020}", tmp_path / "remote" / "copy"
    files = open_store_files(copy)
    assert isinstance(files, ShippedStoreFiles)
    entry = files.manifest.files[path]
    assert 20 < entry.shipped_bytes < entry.size
    newer = CHANGES[change][0](entry)
    shutil.rmtree(folder / PARTS / f"of-{path}")
    others = {name: each for name, each in files.manifest.files.items() if name != path}
    manifest = replace(files.manifest, files=others if newer is None else {**others, path: newer})
    (folder / FILES_MANIFEST).write_bytes(serialize_manifest(manifest))
    for part in () if newer is None else newer.parts:
        place = folder / part_name(path, part)
        place.parent.mkdir()
        place.write_bytes(b"\1" * part.size)
    with pytest.raises(StoreError, match=f"copy/{path}: {CHANGES[change][1]}"):
        read_range(files.open(path), 0, entry.shipped_bytes)


@pytest.mark.parametrize("size", [(1 << 31) - 1, 1 << 31])
def test_manifest_with_a_file_larger_than_those_of_brokers_is_refused(copy: str, tmp_path: Path, size: int) -> None:
    path, files = f"consumequeue/rare/0/{0:020}", open_store_files(copy)
    assert isinstance(files, ShippedStoreFiles)
    manifest = files.manifest.with_file(replace(files.manifest.files[path], size=size))
    (tmp_path / "remote" / "copy" / FILES_MANIFEST).write_bytes(serialize_manifest(manifest))
    if size < 1 << 31:
        assert open_store_files(copy).size_of(path) == size
        return
    with pytest.raises(StoreError, match=f"copy/{path}: .* has {size} bytes: expected at most 2147483647 bytes"):
        open_store_files(copy)


def test_place_without_a_manifest_is_refused(copy: str, tmp_path: Path) -> None:
    (tmp_path / "remote" / "copy" / FILES_MANIFEST).unlink()
    with pytest.raises(StoreError, match="expected a copy that 'commitlake ship' made"):
        open_store_files(copy)


def test_ranges_after_the_end_are_empty(store: Path) -> None:
    file = open_store_files(str(store)).open(f"consumequeue/rare/0/{0:020}")
    assert read_range(file, 5, 5).dtype == np.uint8
    assert len(read_range(file, 5, 3)) == 0
    file.close()


def test_find_data_gives_the_place_of_a_window_with_data(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(1 << 17) + b"\1")
    with closing(LocalFile(str(path))) as file:
        assert find_nonzero_window(file, 0, 1 << 18) == 1 << 17
        assert find_nonzero_window(file, 0, 1 << 17) is None


def test_missing_object_of_a_copy_is_an_error_and_not_a_missing_file(copy: str, tmp_path: Path) -> None:
    (path, *_) = paths_below(open_store_files(copy), "index")
    (tmp_path / "remote" / "copy" / path).unlink()
    with pytest.raises(StoreError, match=rf"copy/{path}: expected \d+ bytes, found no such object: the copy was"):
        open_store_files(copy).open(path)


def test_small_reads_near_each_other_are_one_request(copy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipped_files, "MAX_WHOLE_BYTES", 0)
    read = RemoteFile.read_at
    requests: list[tuple[int, int]] = []

    def read_at(file: RemoteFile, size: int, position: int) -> Array:
        requests.append((position, size))
        return read(file, size, position)

    monkeypatch.setattr(RemoteFile, "read_at", read_at)
    monkeypatch.setattr(shipped_files, "BLOCK_BYTES", 1000)
    files = open_store_files(copy)
    (path, *_) = paths_below(files, "index")
    for position in (1900, 1100, 1500, 1990):  # the last one needs two blocks
        read_range(files.open(path), position, position + 20)
    assert requests == [(1000, 1000), (2000, 1000)]


def test_pickled_copy_is_opened_when_it_is_used_and_once_in_a_process(
    copy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = open_store_files(copy)
    first, second = (pickle.loads(pickle.dumps(files)) for _ in range(2))
    late = pickle.loads(pickle.dumps(open_store_files(copy)))
    opened: list[str] = []

    def read_manifest(filesystem: pafs.FileSystem, store: str, manifest: str) -> Manifest | None:
        opened.append(store)
        return read_shipped_manifest(filesystem, store, manifest)

    monkeypatch.setattr(shipped_files, read_shipped_manifest.__name__, read_manifest)
    for again in (first, pickle.loads(pickle.dumps(second))):
        assert paths_below(again, "consumequeue") == paths_below(files, "consumequeue")
        path = paths_below(again, "index")[0]
        assert content(again.open(path)) == content(files.open(path))
        for each in (StoreFiles.size_of, StoreFiles.location_of, StoreFiles.data_end, StoreFiles.has_data):
            assert getattr(again, each.__name__)(path) == getattr(files, each.__name__)(path)
        assert again.has_folder("index")
        assert not again.has_folder("none")
    assert len(opened) == 1
    (tmp_path / "remote" / "copy" / FILES_MANIFEST).unlink()
    with pytest.raises(StoreError, match="expected a copy that 'commitlake ship' made"):
        late.size_of(path)
