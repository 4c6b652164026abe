"""Tests of byte sequences stored in files of one size."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from commitlake.broker_lite.stores.engine.file_queue import FileQueue
from commitlake.broker_lite.stores.engine.mapped_file import MappedFile, MappedFiles
from commitlake.broker_lite.stores.rocketmq import StoreFilesError
from commitlake.schemas.safe_store_files import remove_file


class KilledError(Exception):
    """Error that stands for the end of the process."""


def opened(folder: Path, mappings: MappedFiles | None = None) -> FileQueue:
    """Open the files of 10 bytes in a folder."""
    return FileQueue(folder, 10, "size_option", mappings or MappedFiles())


def names(folder: Path) -> list[int]:
    return sorted(int(path.name) for path in folder.iterdir())


def test_bytes_are_appended_and_files_added(tmp_path: Path) -> None:
    files = opened(tmp_path / "queue")
    assert (files.is_empty, files.free_bytes, files.end) == (True, 0, 0)
    for data in (b"01234", b"56789", b"ab"):
        files.append(data)
    assert (files.end, files.free_bytes, names(tmp_path / "queue")) == (12, 8, [0, 10])
    assert (files.read(3, 5), files.read(10, 2), list(files.file_starts)) == (b"34567", b"ab", [0, 10])


def test_existing_files_count_as_full_until_truncated(tmp_path: Path) -> None:
    files = opened(tmp_path)
    files.append(b"0123456789")
    files.append(b"abc")
    again = opened(tmp_path)
    assert (again.start, again.end, again.free_bytes) == (0, 20, 0)
    again.truncate(13)
    again.append(b"d")
    assert again.read(10, 10) == b"abcd" + bytes(6)


@pytest.mark.parametrize(
    ("end", "left"), [(25, [0, 10, 20]), (20, [0, 10]), (19, [0, 10]), (10, [0]), (1, [0]), (0, [])]
)
def test_truncate_deletes_the_files_after_the_new_end(tmp_path: Path, end: int, left: list[int]) -> None:
    files = opened(tmp_path)
    files.append(b"0123456789")
    files.create_files_for(20)
    files.end = 30
    files.truncate(end)
    assert (files.end, names(tmp_path)) == (end, left)


@pytest.mark.parametrize("survived", range(4))
@pytest.mark.parametrize("remove", [FileQueue.delete, lambda files: files.truncate(0)], ids=["delete", "truncate"])
def test_a_process_that_dies_while_files_are_deleted_leaves_no_hole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, remove: Callable[[FileQueue], None], survived: int
) -> None:
    files = opened(tmp_path)
    files.create_files_for(40)
    left = [None] * survived

    def remove_one(path: Path, *, trusted_root: Path | None) -> None:
        if not left:
            raise KilledError
        left.pop()
        remove_file(path, trusted_root=trusted_root)

    monkeypatch.setattr("commitlake.broker_lite.stores.engine.mapped_file.remove_file", remove_one)
    with pytest.raises(KilledError):
        remove(files)
    assert opened(tmp_path).end == 40 - 10 * survived


def test_rest_of_a_file_is_cleared_and_stays_sparse(tmp_path: Path) -> None:
    path = tmp_path / "file"
    size = 1 << 24
    file = MappedFile.create(path, size, MappedFiles())
    for position in (0, 5000, 5_000_000, size - 1):
        file.memory[position] = 1
    before = path.stat().st_blocks
    file.clear_from(5000)
    assert [file.memory[position] for position in (0, 5000, 5_000_000, size - 1)] == [1, 0, 0, 0]
    assert not any(path.read_bytes()[1:])
    assert path.stat().st_blocks <= before
    MappedFile.create(tmp_path / "never written", size, MappedFiles()).clear_from(0)
    assert (tmp_path / "never written").stat().st_blocks < size // 512


def test_queue_may_begin_anywhere(tmp_path: Path) -> None:
    files = opened(tmp_path)
    files.set_start(57)
    files.append(b"x")
    assert (files.start, files.end, names(tmp_path)) == (50, 51, [50])
    assert opened(tmp_path).start == 50


def test_prepare_adds_files_only_if_room_is_lacking(tmp_path: Path) -> None:
    files = opened(tmp_path)
    files.create_files_for(25)
    files.create_files_for(30)
    assert (files.free_bytes, files.end, names(tmp_path)) == (30, 0, [0, 10, 20])
    files.append(b"0123456789")
    assert (files.free_bytes, names(tmp_path)) == (20, [0, 10, 20])


def test_folders_and_files_with_other_names_are_ignored(tmp_path: Path) -> None:
    (tmp_path / "README").write_text("mine")
    (tmp_path / f"{0:020d}").mkdir()
    assert opened(tmp_path).is_empty


def test_file_of_another_size_is_an_error(tmp_path: Path) -> None:
    (tmp_path / f"{0:020d}").write_bytes(bytes(10))
    (tmp_path / f"{10:020d}").write_bytes(bytes(9))
    with pytest.raises(StoreFilesError, match=r"expected a size of 10 bytes, found 9$"):
        opened(tmp_path)
    (tmp_path / f"{0:020d}").unlink()
    with pytest.raises(StoreFilesError, match=r"found 9; open the store with size_option=9$"):
        opened(tmp_path)


def test_only_the_last_file_may_be_empty(tmp_path: Path) -> None:
    (tmp_path / f"{0:020d}").write_bytes(b"")
    (tmp_path / f"{10:020d}").write_bytes(b"")
    with pytest.raises(StoreFilesError, match="expected a size of 10 bytes, found 0"):
        opened(tmp_path)


def test_no_more_files_are_mapped_than_allowed(tmp_path: Path) -> None:
    mappings = MappedFiles(limit=2)
    files = opened(tmp_path, mappings)
    for number in range(5):
        files.append(bytes([number]) * 10)
    for number in (0, 4, 1, 3, 2, 0):
        assert files.read(number * 10, 10) == bytes([number]) * 10
        assert len(mappings._mapped) == 2
    mappings.unmap_all()
    assert not mappings._mapped
    assert files.read(20, 1) == b"\x02"


def test_sync_counts_the_bytes_on_the_disk(tmp_path: Path) -> None:
    files = opened(tmp_path)
    files.append(b"0123456789")
    files.append(b"abc")
    assert files.synced == 0
    files.sync(13)
    assert files.synced == 13
    files.truncate(5)
    assert files.synced == 5


def test_new_file_does_not_replace_an_existing_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"mine")
    with pytest.raises(StoreFilesError, match="one of this name exists already"):
        MappedFile.create(path, 10, MappedFiles())
    assert path.read_bytes() == b"mine"
