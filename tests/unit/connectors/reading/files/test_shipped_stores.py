"""Tests of reading a shipped store in an object store: segments in parts, also while an agent changes them."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pytest

from commitlake.connectors.formats.registry import COMMITLOGS
from commitlake.connectors.reading.errors import StoreError
from commitlake.connectors.reading.files import shipped_stores
from commitlake.connectors.reading.files.segment_files import open_remote
from commitlake.connectors.reading.files.shipped_stores import (
    open_small_files_folder,
    read_shipped_manifest,
    resolve_filesystem,
    shipped_file_sizes,
)
from commitlake.connectors.reading.stores import find_stores
from commitlake.pipelines.ship.agent import ShipAgent
from commitlake.pipelines.ship.settings import ShipSettings
from commitlake.pipelines.ship.source_store import SourceStore
from commitlake.schemas.layouts.segment_names import segment_name
from commitlake.schemas.shipped_manifest import FILES_MANIFEST, LOG_MANIFEST, Manifest, ShippedFile, serialize_manifest
from tests.support.indexed_stores import write_indexed_store
from tests.support.logs import closed_segment, messages, open_segment, write_store
from tests.support.remote_copies import COPY, publish, serve_copies, ship_copy
from tests.support.ship_targets import MemoryTarget, folder_target

SIZE = 1 << 14
SETTINGS = ShipSettings("broker-a", part_bytes=1500, full_part_bytes=1000)
PATH = f"copy/commitlog/{segment_name(0)}"


@pytest.fixture
def target() -> MemoryTarget:
    """An object store without objects."""
    return MemoryTarget()


@pytest.fixture
def filesystem(tmp_path: Path) -> pafs.FileSystem:
    """A filesystem that does not count as this machine's."""
    (tmp_path / "remote" / "copy").mkdir(parents=True)
    return pafs.SubTreeFileSystem(str(tmp_path / "remote"), pafs.LocalFileSystem())


def ship(store: Path, target: MemoryTarget, tmp_path: Path, agent: ShipAgent | None = None) -> ShipAgent:
    """Ship what a store has."""
    agent = agent or ShipAgent(SourceStore(str(store)), target, SETTINGS)
    agent.ship_round()
    publish(target, tmp_path / "remote")
    return agent


def read(file: object, position: int, size: int) -> bytes:
    """Read a range."""
    window = np.full(size, 255, np.uint8)
    return window[: file.read_into(window, position)].tobytes()  # type: ignore[attr-defined]


def test_segment_in_parts_reads_like_the_file_of_the_broker(
    tmp_path: Path, target: MemoryTarget, filesystem: pafs.FileSystem
) -> None:
    data = open_segment(messages(40), SIZE)
    agent = ship(write_store(tmp_path / "store", [(0, data)]), target, tmp_path)
    shipped = agent.log_manifest.files[f"commitlog/{segment_name(0)}"].shipped_bytes
    expected = data[:shipped].ljust(SIZE, b"\0")
    file = open_remote(filesystem, PATH)
    assert file.size() == SIZE
    assert shipped > 4000
    for position in (0, 1, 999, 1500, 2999, shipped - 1, shipped, shipped + 1, SIZE - 1, SIZE, SIZE + 5):
        for size in (0, 1, 700, 5000, SIZE):
            assert read(file, position, size) == expected[position : position + size], (position, size)
    file.close()


def test_reader_continues_while_parts_are_merged_and_sealed(
    tmp_path: Path, target: MemoryTarget, filesystem: pafs.FileSystem
) -> None:
    store = write_store(tmp_path / "store", [(0, open_segment(messages(40), SIZE))])
    agent = ship(store, target, tmp_path)
    shipped = agent.log_manifest.files[f"commitlog/{segment_name(0)}"].shipped_bytes
    file = open_remote(filesystem, PATH)
    closed = closed_segment(messages(40), SIZE)
    assert read(file, 0, 100) == closed[:100]
    write_store(store, [(0, closed), (SIZE, open_segment(messages(1), SIZE, SIZE))])
    ship(store, target, tmp_path, agent)
    assert read(file, 0, shipped) == closed[:shipped]
    file.close()


def test_missing_part_is_an_error_and_not_the_end_of_the_log(
    tmp_path: Path, target: MemoryTarget, filesystem: pafs.FileSystem
) -> None:
    ship(write_store(tmp_path / "store", [(0, open_segment(messages(40), SIZE))]), target, tmp_path)
    part = sorted((tmp_path / "remote").rglob("of-*/*/*"))[1]
    data = part.read_bytes()
    part.unlink()
    with pytest.raises(StoreError, match="missing"):
        read(open_remote(filesystem, PATH), 0, SIZE)
    part.write_bytes(data[:-1])
    with pytest.raises(StoreError, match="found fewer"):
        read(open_remote(filesystem, PATH), 0, SIZE)


def test_files_that_no_manifest_names_do_not_exist(tmp_path: Path, filesystem: pafs.FileSystem) -> None:
    with pytest.raises(FileNotFoundError):
        open_remote(filesystem, PATH)
    (tmp_path / "remote" / "copy" / "shipped").mkdir(parents=True)
    (tmp_path / "remote" / "copy" / LOG_MANIFEST).write_bytes(b"{}")
    with pytest.raises(StoreError, match="expected the manifest"):
        open_remote(filesystem, PATH)


def test_sizes_are_those_of_the_manifest_and_of_listed_objects(
    tmp_path: Path, target: MemoryTarget, filesystem: pafs.FileSystem
) -> None:
    store = write_store(tmp_path / "store", [(0, closed_segment(messages(20), SIZE))])
    write_store(store, [(SIZE, open_segment(messages(5), SIZE, SIZE))])
    ship(store, target, tmp_path)
    manifest = read_shipped_manifest(filesystem, "copy")
    assert manifest is not None
    first, second = segment_name(0), segment_name(SIZE)
    listed = {first: SIZE, "00000000000000000077": 5}  # the other is a foreign object
    assert shipped_file_sizes(manifest, "commitlog", listed) == {first: SIZE, second: SIZE}
    assert shipped_file_sizes(manifest, "commitlog", {}) == {second: SIZE}
    assert read_shipped_manifest(filesystem, "other", FILES_MANIFEST) is None


class Objects:
    """A filesystem without folders of their own."""

    type_name = "objects"

    def __init__(self, filesystem: pafs.FileSystem) -> None:
        self.get_file_info = filesystem.get_file_info
        self._filesystem = filesystem

    def open_input_file(self, path: str) -> pa.NativeFile:
        """Open a file."""
        if self.get_file_info(path).type != pafs.FileType.File:
            raise FileNotFoundError(path)
        return self._filesystem.open_input_file(path)


@pytest.mark.parametrize("is_local", [True, False])
def test_manifest_in_the_form_of_hdfs_is_not_a_missing_one(
    tmp_path: Path, target: MemoryTarget, filesystem: pafs.FileSystem, is_local: bool
) -> None:
    store = write_store(tmp_path / "store", [(0, closed_segment(messages(20), SIZE))])
    write_store(store, [(SIZE, open_segment(messages(5), SIZE, SIZE))])
    ship(store, target, tmp_path)
    folder = tmp_path / "remote" / "copy"
    for name in (LOG_MANIFEST, FILES_MANIFEST):  # as a tool that copies folders moves them out of HDFS
        (folder / name).rename(folder / "moved")
        (folder / name).mkdir()
        (folder / "moved").rename(folder / name / f"{17:020d}")
    where: tuple[pafs.FileSystem, str] = (Objects(filesystem), "copy")
    if is_local:
        where = (pafs.LocalFileSystem(), str(folder))
        for path in (folder, folder / "commitlog", tmp_path / "remote" / "{broker}"):
            with pytest.raises(StoreError, match="another tool moved the copy out of HDFS"):
                find_stores(str(path), broker="b", formats=COMMITLOGS)
    for name in (LOG_MANIFEST, FILES_MANIFEST):
        with pytest.raises(StoreError, match="ship --store hdfs://… --to FOLDER --once"):
            read_shipped_manifest(*where, name)
    (folder / LOG_MANIFEST / f"{17:020d}").unlink()
    if not is_local:
        assert read_shipped_manifest(*where) is None


def test_globs_in_uris_are_kept(tmp_path: Path) -> None:
    filesystem, path = resolve_filesystem(f"file://{tmp_path}/{{broker}}/[ab]*/store")
    assert isinstance(filesystem, pafs.LocalFileSystem)
    assert path == f"{tmp_path}/{{broker}}/[ab]*/store"


def test_folder_is_a_store_with_the_name_of_the_broker(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", [(0, open_segment(messages(5), SIZE))])
    (store / "checkpoint").write_bytes(b"x" * 4096)
    target = folder_target(tmp_path / "copy")
    ShipAgent(SourceStore(str(store)), target, SETTINGS).ship_round()
    (found,) = find_stores(str(tmp_path / "copy"), formats=COMMITLOGS)
    assert found.broker == "broker-a"
    assert [segment.file_size for segment in found.segments] == [SIZE]
    with open_small_files_folder(found.root) as folder:
        assert folder == tmp_path / "copy"
    copied = (tmp_path / "copy" / "checkpoint").stat().st_mtime
    assert abs(copied - (store / "checkpoint").stat().st_mtime) < 0.01 < time.time()


@pytest.mark.parametrize("names", [("config/" + "x" * 300,), ("config/a", "config/a/b")])
def test_names_that_no_file_can_have_are_refused_with_the_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...]
) -> None:
    serve_copies(tmp_path / "remote", monkeypatch)
    ship_copy(write_store(tmp_path / "store", [(0, open_segment(messages(5), SIZE))]), tmp_path / "remote")
    manifest = tmp_path / "remote" / "copy" / FILES_MANIFEST
    files = {name: ShippedFile(name, 1, is_sealed=True, crc=0, modified_ms=1) for name in names}
    monkeypatch.setattr(shipped_stores, "_copy_small_file", copy_nothing)
    manifest.write_bytes(serialize_manifest(Manifest("broker-a", "commitlog", files)))
    refused = f"copy/{FILES_MANIFEST}: lists a file whose name is not possible here"
    with pytest.raises(StoreError, match=refused), open_small_files_folder(f"{COPY}/commitlog"):
        pass


def copy_nothing(_filesystem: object, _store: str, _file: ShippedFile, path: Path) -> None:
    """Write an empty file in place of a copied one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"")


def test_copy_of_small_files_has_folders_of_topics_only_if_they_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve_copies(tmp_path / "remote", monkeypatch)
    ship_copy(write_indexed_store(tmp_path / "store"), tmp_path / "remote")
    with open_small_files_folder(f"{COPY}/commitlog") as folder:
        assert folder is not None
        assert not (folder / "consumequeue").exists()
        assert (folder / "checkpoint").is_file()
    with open_small_files_folder(f"{COPY}/commitlog", with_topics=True) as folder:
        assert folder is not None
        assert {path.name for path in (folder / "consumequeue").iterdir()} == {"rare", "topic-0", "topic-1", "topic-2"}
        assert not any(path for path in (folder / "consumequeue").glob("*/*"))


def test_client_of_a_bucket_is_shared_until_the_settings_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    made: list[str] = []

    def make(uri: str) -> tuple[pafs.FileSystem, str]:
        made.append(uri)
        return pafs.LocalFileSystem(), ""

    monkeypatch.setattr(pafs, "FileSystem", SimpleNamespace(from_uri=make))
    shipped_stores._open_bucket_filesystem.cache_clear()
    first, path = resolve_filesystem("s3://logs/broker-a/")
    assert path == "logs/broker-a"
    assert resolve_filesystem("s3://logs/broker-b/commitlog")[0] is first
    assert resolve_filesystem("s3://other/broker-b")[0] is not first
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:10")
    assert resolve_filesystem("s3://logs/broker-a")[0] is not first
    assert made == ["s3://logs", "s3://other", "s3://logs"]
    shipped_stores._open_bucket_filesystem.cache_clear()
