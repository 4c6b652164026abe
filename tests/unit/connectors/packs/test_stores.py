"""The local folder of packs: a name is of a whole pack, whatever happens to its writer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from connectors.packs.errors import PackError, PackNameError
from connectors.packs.stores import LocalPackStore, is_temporary, open_store
from tests.unit.connectors.packs.making import NAME

KILLED_WRITER = f"""
import os, signal, sys
from connectors.packs.stores import LocalPackStore
with LocalPackStore(sys.argv[1]).open_write({NAME!r}) as output:
    output.write(memoryview(b"half"))
    os.kill(os.getpid(), signal.SIGKILL)
"""


def files_of(root: Path) -> list[str]:
    """Names of all files below."""
    return sorted(path.name for path in root.rglob("*") if path.is_file())


def test_a_pack_is_there_once_it_is_whole(tmp_path: Path) -> None:
    store = LocalPackStore(tmp_path / "bodies")
    with store.open_write(NAME) as output:
        output.write(memoryview(b"one "))
        assert not (tmp_path / "bodies" / NAME).exists()
        output.write(memoryview(b"two"))
    assert (tmp_path / "bodies" / NAME).read_bytes() == b"one two"
    assert files_of(tmp_path) == [NAME.split("/")[-1]]


def test_a_pack_replaces_one_of_its_name(tmp_path: Path) -> None:
    store = LocalPackStore(tmp_path)
    for content in (b"first and longer", b"second"):
        with store.open_write(NAME) as output:
            output.write(memoryview(content))
    assert store.read_range(NAME, 0, 100) == b"second"


def test_two_writers_of_one_name_do_not_meet(tmp_path: Path) -> None:
    store = LocalPackStore(tmp_path)
    with store.open_write(NAME) as one, store.open_write(NAME) as other:
        one.write(memoryview(b"same"))
        other.write(memoryview(b"same"))
    assert store.read_range(NAME, 0, 100) == b"same"
    assert files_of(tmp_path) == [NAME.split("/")[-1]]


def test_a_writer_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def fail() -> None:
        with LocalPackStore(tmp_path).open_write(NAME) as output:
            output.write(memoryview(b"half"))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert files_of(tmp_path) == []


def test_a_killed_writer_leaves_no_pack_but_a_file_that_is_recognised(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED_WRITER, tmp_path], check=False)
    assert done.returncode == -signal.SIGKILL
    (left,) = files_of(tmp_path)
    assert is_temporary(left)
    assert not is_temporary(NAME.split("/")[-1])
    with pytest.raises(PackError, match="found none"):
        LocalPackStore(tmp_path).size(NAME)


def test_ranges_end_where_the_pack_ends(tmp_path: Path) -> None:
    store = LocalPackStore(tmp_path)
    with store.open_write(NAME) as output:
        output.write(memoryview(b"0123456789"))
    assert store.size(NAME) == 10
    assert store.read_range(NAME, 2, 3) == b"234"
    assert store.read_range(NAME, 8, 1 << 60) == b"89"
    assert store.read_range(NAME, 10, 1) == b""
    assert store.read_range(NAME, (1 << 63) - 1, 1) == b""


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", NAME + "\0"])
def test_no_method_opens_another_name(name: str, tmp_path: Path) -> None:
    store = LocalPackStore(tmp_path / "bodies")
    (tmp_path / "secret").write_bytes(b"secret")
    with pytest.raises(PackNameError):
        store.size(name)
    with pytest.raises(PackNameError):
        store.read_range(name, 0, 6)
    with pytest.raises(PackNameError), store.open_write(name):
        pass


def test_a_pack_that_may_not_be_read_is_said_so(tmp_path: Path) -> None:
    (tmp_path / NAME).mkdir(parents=True)  # opens, as a folder does, and cannot be read
    with pytest.raises(PackError, match="to read, found Is a directory"):
        LocalPackStore(tmp_path).read_range(NAME, 0, 1)


def test_roots_are_folders_or_file_uris(tmp_path: Path) -> None:
    folder = tmp_path / "with space"
    with open_store(str(folder)).open_write(NAME) as output:
        output.write(memoryview(b"x"))
    assert open_store(folder.as_uri()).read_range(NAME, 0, 1) == b"x"
    for root in ("s3://bucket/bodies", "file://elsewhere/bodies"):
        with pytest.raises(ValueError, match="expected a folder of this machine"):
            open_store(root)


def test_what_is_written_is_synced_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, synced = LocalPackStore(tmp_path), []
    real = os.fsync

    def note(descriptor: int) -> None:
        synced.append((Path(f"/proc/self/fd/{descriptor}").readlink().name, (tmp_path / NAME).exists()))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    with store.open_write(NAME) as output:
        output.write(memoryview(b"x"))
    folder = (tmp_path / NAME).parent.name
    assert is_temporary(synced[-2][0])
    assert [was_there for _, was_there in synced[-2:]] == [False, True]
    assert synced[-1][0] == folder
