"""Logs in several folders, between which a broker divides its segments."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from commitlake.connectors.formats.registry import COMMITLOGS
from commitlake.connectors.reading.errors import StoreError
from commitlake.connectors.reading.settings_files import use_settings_file
from commitlake.connectors.reading.snapshots import take_snapshot
from commitlake.connectors.reading.stores import Store, find_stores
from commitlake.pipelines.ship.source_store import SourceStore
from commitlake.schemas.layouts.segment_names import segment_name
from tests.support.indexed_stores import SEGMENT_BYTES, write_indexed_store

BASES = [number * SEGMENT_BYTES for number in range(4)]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store of four segments with queues and indexes."""
    return write_indexed_store(tmp_path_factory.mktemp("made") / "store", count=200)


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    """Return a copy whose segments 1 and 3 are in a second folder, `b`, which a broker.conf above the store names."""
    root = Path(shutil.copytree(made, tmp_path / "broker-a" / "store"))
    other = root.parent / "b"
    other.mkdir()
    for base in BASES[1::2]:
        (root / "commitlog" / segment_name(base)).rename(other / segment_name(base))
    write_conf(root, [root / "commitlog", other])
    return root


def write_conf(root: Path, folders: Sequence[Path], name: str = "storePathCommitLog", separator: str = ",") -> None:
    (root.parent / "broker.conf").write_text(f"{name}={separator.join(map(str, folders))}\n")


def find(root: Path) -> Store:
    (store,) = find_stores(str(root), formats=COMMITLOGS)
    return store


def names(root: Path) -> list[tuple[str, int]]:
    """Return the folder and the base offset of each segment."""
    return [(Path(segment.path).parent.name, segment.base_offset) for segment in find(root).segments]


def newer(root: Path) -> tuple[str, ...]:
    (found,) = take_snapshot([find(root)]).ranges.values()
    return found.newer


IN_TURN = list(zip(["commitlog", "b"] * 2, BASES, strict=True))


def test_segments_of_all_folders_are_one_log(root: Path) -> None:
    assert names(root) == IN_TURN
    assert newer(root) == ()


def test_other_separator_and_read_only_folders(root: Path) -> None:
    folders = [root / "commitlog", root.parent / "b"]
    write_conf(root, folders, separator=":")
    assert names(root) == IN_TURN
    (root.parent / "broker.conf").write_text(
        f"storePathRootDir={root}\nstorePathCommitLog={folders[0]}\nreadOnlyCommitLogStorePaths={folders[1]}\n"
    )
    assert names(root) == IN_TURN


def test_folder_that_is_named_twice_is_read_once(root: Path) -> None:
    (root.parent / "link").symlink_to(root.parent / "b")
    write_conf(root, [root / "commitlog", root.parent / "b", root.parent / "link", root / "commitlog"])
    assert names(root) == IN_TURN


def test_settings_file_of_the_command_is_used(root: Path, tmp_path: Path) -> None:
    (root.parent / "broker.conf").rename(tmp_path / "broker-a.conf")
    assert names(root) == IN_TURN[::2]
    with use_settings_file(str(tmp_path / "{broker}.conf")):
        assert names(root) == IN_TURN


def test_folder_that_only_the_store_names_is_not_read(root: Path) -> None:
    (root.parent / "broker.conf").rename(root / "broker.conf")
    assert names(root) == IN_TURN[::2]


def test_settings_of_another_store_are_not_used(root: Path) -> None:
    write_conf(root, [Path("/data/store/commitlog"), root.parent / "b"])
    assert names(root) == IN_TURN[::2]


@pytest.mark.parametrize("folder", ["commitlog", "../b"])
def test_segment_with_data_is_used_instead_of_an_empty_one(root: Path, folder: str) -> None:
    for base in BASES:
        path = root / folder / segment_name(base)
        if not path.exists():
            path.write_bytes(bytes(SEGMENT_BYTES))
    assert names(root) == IN_TURN
    assert newer(root) == ()


def test_two_segments_of_one_offset_with_data_are_an_error(root: Path) -> None:
    shutil.copy(root / "commitlog" / segment_name(0), root.parent / "b")
    with pytest.raises(StoreError, match=r"b/0{20}: expected data of this segment in one folder.*move away the copy"):
        find(root)


def test_link_in_a_further_folder_is_an_error(root: Path) -> None:
    (root.parent / "b" / segment_name(BASES[-1] + SEGMENT_BYTES)).symlink_to("/etc/passwd")
    with pytest.raises(StoreError, match="symbolic link"):
        find(root)


def test_log_without_a_segment_in_its_own_folder(root: Path) -> None:
    for base in BASES[::2]:
        (root / "commitlog" / segment_name(base)).rename(root.parent / "b" / segment_name(base))
    assert names(root) == [("b", base) for base in BASES]


def test_copy_has_the_segments_of_all_folders(root: Path) -> None:
    source = SourceStore(str(root), "broker-a")
    assert [file.base_offset for file in source.log_files()] == BASES
    for name, folder in [(segment_name(0), root / "commitlog"), (segment_name(SEGMENT_BYTES), root.parent / "b")]:
        with source.open(f"commitlog/{name}") as file:
            assert file is not None
            assert file.read_range(0, SEGMENT_BYTES) == (folder / name).read_bytes()
    assert source.newer_data_sentences() == []
