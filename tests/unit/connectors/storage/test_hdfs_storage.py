"""A target in HDFS whose requests fail, with a NameNode in memory; tests/integration/copies has a real one."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import hdfs_native
import pytest

from commitlake.connectors.shipping.ship_target import ShipError, ShipNameError, ShipUnavailableError
from commitlake.connectors.shipping.storage_target import StorageTarget
from commitlake.connectors.storage import hdfs_clients, hdfs_storage
from commitlake.connectors.storage.hdfs_storage import HdfsStorage
from commitlake.schemas.shipped_manifest import LOG_MANIFEST, Part, ShippedFile, part_name

FOLDER = f"/copy/{LOG_MANIFEST}"
DATA = b"bytes of a part"
PART = Part(0, len(DATA), zlib.crc32(DATA))
FILE = ShippedFile("commitlog/0", len(DATA), parts=(PART,))


@dataclass
class Stored:
    """A file in memory."""

    data: bytes
    time: int


class Cluster:
    """The part of hdfs-native's client that is used, with files in memory.

    Attributes:
        files: the files by path; folders are those above them.
        before: called with the name and the path of each request.
    """

    def __init__(self) -> None:
        self.files: dict[str, Stored] = {}
        self.before: Callable[[str, str], None] = lambda _name, _path: None
        self._time = 0

    def numbers(self) -> list[int]:
        """Return the numbers of the versions of the log's manifest."""
        return sorted(int(path.rpartition("/")[2]) for path in self.files if path.startswith(f"{FOLDER}/"))

    def forget_versions(self) -> None:
        """Delete all versions of the log's manifest."""
        for path in [each for each in self.files if each.startswith(f"{FOLDER}/")]:
            del self.files[path]

    def list_status(self, folder: str, _recursive: bool) -> list[Any]:
        """Return the files below a folder."""
        self.before("list", folder)
        return [
            SimpleNamespace(path=path, isdir=False, length=len(stored.data), modification_time=stored.time)
            for path, stored in self.files.items()
            if path.startswith(f"{folder}/") or path == folder
        ]

    def get_file_info(self, path: str) -> Any:
        """Return the status of a file."""
        if path not in self.files:
            raise FileNotFoundError(path)
        return self.list_status(path, False)[0]

    def read(self, path: str) -> Any:
        """Open a file."""
        self.before("open", path)
        if path not in self.files:
            raise FileNotFoundError(path)
        return Reader(self, path, self.files[path].data)

    def mkdirs(self, path: str, _mode: int, _with_parents: bool) -> None:
        """Do nothing."""
        self.before("mkdirs", path)

    def delete(self, path: str, _recursive: bool) -> None:
        """Delete a file, if it exists."""
        self.files.pop(path, None)

    def create(self, path: str, _options: object) -> Any:
        """Create a file."""
        self._time += 1
        stored = self.files[path] = Stored(b"", self._time)

        def write(piece: bytes) -> None:
            stored.data += piece

        return hdfs_native.FileWriter(SimpleNamespace(write=write, close=lambda: None))  # type: ignore[arg-type]

    def rename(self, source: str, path: str, replace: bool) -> None:
        """Rename a file."""
        self.before("rename", path)
        if source not in self.files:
            raise FileNotFoundError(source)
        if path in self.files and not replace:
            raise FileExistsError(path)
        self.files[path] = self.files.pop(source)
        self.before("renamed", path)


@dataclass
class Reader:
    """An open file."""

    cluster: Cluster
    path: str
    data: bytes

    def __len__(self) -> int:
        return len(self.data)

    def read_range(self, start: int, size: int) -> bytes:
        """Return a range."""
        self.cluster.before("read", self.path)
        return self.data[start : start + size]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """An empty cluster, and no pauses between attempts."""
    found = Cluster()
    monkeypatch.setattr(hdfs_clients, "_client", lambda _: found)
    for module in (hdfs_clients, hdfs_storage):
        monkeypatch.setattr(module, "pause_before_retry", lambda _: None)
    return found


@pytest.fixture
def targets(cluster: Cluster) -> Callable[[], StorageTarget]:
    """Return targets that have read the manifest."""

    def create() -> StorageTarget:
        target = StorageTarget(HdfsStorage("hdfs://host:8020/copy"))
        target.read_manifest(LOG_MANIFEST)
        return target

    return create


def once(cluster: Cluster, name: str, action: Callable[[], object]) -> None:
    """Do something before the next request of a kind to the versions of the log's manifest."""

    def before(found: str, path: str) -> None:
        if found == name and path.startswith(FOLDER):
            cluster.before = lambda _name, _path: None
            action()

    cluster.before = before


def write(target: StorageTarget, count: int) -> None:
    """Write some versions."""
    for number in range(count):
        target.replace_manifest(LOG_MANIFEST, b"%d of %d" % (number, count))


@pytest.mark.parametrize("count", [1, 2, 15, 16, 17])
def test_an_agent_whose_copy_was_replaced_writes_no_manifest(
    cluster: Cluster, targets: Callable[[], StorageTarget], count: int
) -> None:
    first = targets()
    write(first, 16)
    assert cluster.numbers() == [15, 16]
    cluster.forget_versions()
    second = targets()
    write(second, count)  # also exactly as many as the first one
    there, requests = cluster.numbers(), []
    cluster.before = lambda name, _path: requests.append(name)
    with pytest.raises(ShipError, match="or the copy was deleted"):
        first.replace_manifest(LOG_MANIFEST, b"old")
    assert cluster.numbers() == there
    assert "rename" not in requests  # not even for a moment, in which a kill would leave it
    second.replace_manifest(LOG_MANIFEST, b"new")
    assert second.read_manifest(LOG_MANIFEST) == b"new"


def test_an_agent_whose_copy_was_deleted_writes_no_manifest(
    cluster: Cluster, targets: Callable[[], StorageTarget]
) -> None:
    target = targets()
    write(target, 3)
    cluster.forget_versions()
    for _ in range(2):
        with pytest.raises(ShipError, match="another agent"):
            target.replace_manifest(LOG_MANIFEST, b"old")
    assert not cluster.numbers()


@pytest.mark.parametrize("step", ["rename", "renamed"])
def test_an_agent_takes_back_its_manifest_if_the_copy_is_replaced_meanwhile(
    cluster: Cluster, targets: Callable[[], StorageTarget], step: str
) -> None:
    first = targets()
    write(first, 16)
    second: list[StorageTarget] = []

    def replace_copy() -> None:
        kept = {path: stored for path, stored in cluster.files.items() if path.endswith("17")}
        cluster.forget_versions()
        second.append(targets())
        write(second[0], 2)
        cluster.files.update(kept)

    once(cluster, step, replace_copy)
    with pytest.raises(ShipError, match="another agent"):
        first.replace_manifest(LOG_MANIFEST, b"old")
    assert cluster.numbers() == [1, 2]
    write(second[0], 1)
    assert cluster.numbers() == [2, 3]


@pytest.mark.parametrize("step", ["list", "rename", "renamed", "open", "read"])
def test_a_manifest_is_replaced_though_an_answer_is_lost(
    cluster: Cluster, targets: Callable[[], StorageTarget], step: str
) -> None:
    target = targets()
    write(target, 3)

    def lose() -> None:
        raise OSError("connection reset")

    once(cluster, step, lose)
    target.replace_manifest(LOG_MANIFEST, b"next")
    assert target.read_manifest(LOG_MANIFEST) == b"next"
    assert cluster.numbers() == [3, 4]


def test_a_part_that_cannot_be_read_is_tried_a_few_times(
    cluster: Cluster, targets: Callable[[], StorageTarget]
) -> None:
    target = targets()
    target.write_part(FILE, PART, DATA)
    reads = []

    def fail(name: str, path: str) -> None:
        if name == "read":
            reads.append(path)
            raise RuntimeError('DataTransferError("no such block")')

    cluster.before = fail
    with pytest.raises(ShipUnavailableError):
        target.seal(FILE)
    assert len(reads) == 16
    cluster.before = lambda _name, _path: None
    target.seal(FILE)
    assert target.sealed_size(FILE) == len(DATA)


def test_errors_of_paths_say_what_to_do(cluster: Cluster, targets: Callable[[], StorageTarget]) -> None:
    target = targets()
    target.write_part(FILE, PART, DATA)
    calls = []

    def fail(name: str, path: str) -> None:
        if name == "open" and path.endswith(part_name(FILE.name, PART)):
            calls.append(path)
            raise IsADirectoryError(path)
        if name == "mkdirs" and path.endswith("of-queue"):
            raise RuntimeError(
                'RPCError("org.apache.hadoop.hdfs.protocol.FSLimitException$PathComponentTooLongException", "limit 9")'
            )

    cluster.before = fail
    with pytest.raises(ShipError, match=r"of-commitlog/0/"):
        target.seal(FILE)
    assert len(calls) == 1
    with pytest.raises(ShipNameError, match="too long"):
        target.write_file("of-queue/0", b"x")


def test_a_manifest_that_is_one_file_is_not_a_missing_one(
    cluster: Cluster, targets: Callable[[], StorageTarget]
) -> None:
    cluster.files[FOLDER] = Stored(b"{}", 1)
    with pytest.raises(ShipError, match=r"expected a folder, but .*log\.json is a file"):
        targets()


def test_an_error_of_the_place_itself_names_it_once(cluster: Cluster, targets: Callable[[], StorageTarget]) -> None:
    target = targets()

    def fail(name: str, path: str) -> None:
        if name == "mkdirs":
            raise NotADirectoryError(f"{path} is a file")

    cluster.before = fail
    with pytest.raises(ShipError) as raised:
        target.claim()
    assert str(raised.value).startswith("hdfs://host:8020/copy: ")
