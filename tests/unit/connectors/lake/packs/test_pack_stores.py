"""The local folder of packs: a name always refers to a complete pack, even if its writer fails."""

from __future__ import annotations

import datetime
import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from commitlake.connectors.lake.packs.errors import PackError, PackNameError, PackStoreError
from commitlake.connectors.lake.packs.location import pack_location
from commitlake.connectors.lake.packs.names import pack_name
from commitlake.connectors.lake.packs.pack_stores import open_pack_store
from commitlake.connectors.storage.errors import ObjectStoreError
from tests.support.packs import NAME, TOKEN, folder_store

KILLED_WRITER = f"""
import os, signal, sys
from commitlake.connectors.lake.packs.location import pack_location
from commitlake.connectors.lake.packs.pack_stores import open_pack_store
with open_pack_store(pack_location(sys.argv[1])).open_write({NAME!r}) as output:
    output.write(memoryview(b"half"))
    os.kill(os.getpid(), signal.SIGKILL)
"""


def files_of(root: Path) -> list[str]:
    """Return the paths of all files below a folder."""
    return sorted(path.name for path in root.rglob("*") if path.is_file())


def test_a_pack_exists_only_once_it_is_complete(tmp_path: Path) -> None:
    store = folder_store(tmp_path / "bodies")
    with store.open_write(NAME) as output:
        output.write(memoryview(b"one "))
        assert not (tmp_path / "bodies" / NAME).exists()
        output.write(memoryview(b"two"))
    assert (tmp_path / "bodies" / NAME).read_bytes() == b"one two"
    assert files_of(tmp_path) == [NAME.split("/")[-1]]


def test_a_pack_replaces_one_of_its_name(tmp_path: Path) -> None:
    store = folder_store(tmp_path)
    for content in (b"first and longer", b"second"):
        with store.open_write(NAME) as output:
            output.write(memoryview(content))
    assert store.read_range(NAME, 0, 100) == b"second"


def test_two_writers_of_one_name_do_not_conflict(tmp_path: Path) -> None:
    store = folder_store(tmp_path)
    with store.open_write(NAME) as one, store.open_write(NAME) as other:
        one.write(memoryview(b"same"))
        other.write(memoryview(b"same"))
    assert store.read_range(NAME, 0, 100) == b"same"
    assert files_of(tmp_path) == [NAME.split("/")[-1]]


def test_a_failed_writer_leaves_no_file(tmp_path: Path) -> None:
    def fail() -> None:
        with folder_store(tmp_path).open_write(NAME) as output:
            output.write(memoryview(b"half"))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert files_of(tmp_path) == []


def test_a_killed_writer_leaves_no_pack_but_a_file_that_is_recognised(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED_WRITER, tmp_path], check=False)
    assert done.returncode == -signal.SIGKILL
    (left,) = files_of(tmp_path)
    assert left.startswith(f".{NAME.split('/')[-1]}.")
    with pytest.raises(PackError, match="found none"):
        folder_store(tmp_path).size(NAME)


def test_ranges_end_where_the_pack_ends(tmp_path: Path) -> None:
    store = folder_store(tmp_path)
    with store.open_write(NAME) as output:
        output.write(memoryview(b"0123456789"))
    assert store.size(NAME) == 10
    assert store.read_range(NAME, 2, 3) == b"234"
    assert store.read_range(NAME, 8, 1 << 60) == b"89"
    assert store.read_range(NAME, 10, 1) == b""
    assert store.read_range(NAME, (1 << 63) - 1, 1) == b""


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", NAME + "\0"])
def test_no_method_opens_another_name(name: str, tmp_path: Path) -> None:
    store = folder_store(tmp_path / "bodies")
    (tmp_path / "secret").write_bytes(b"secret")
    with pytest.raises(PackNameError):
        store.size(name)
    with pytest.raises(PackNameError):
        store.read_range(name, 0, 6)
    with pytest.raises(PackNameError), store.open_write(name):
        pass


def test_a_pack_that_cannot_be_read_is_an_error_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / NAME).mkdir(parents=True)  # opens, as a folder does, and cannot be read
    with pytest.raises(PackError, match="found a folder"):
        folder_store(tmp_path).read_range(NAME, 0, 1)


def test_roots_are_folders_or_file_uris(tmp_path: Path) -> None:
    folder = tmp_path / "with space"
    with open_pack_store(pack_location(str(folder))).open_write(NAME) as output:
        output.write(memoryview(b"x"))
    assert open_pack_store(pack_location(folder.as_uri())).read_range(NAME, 0, 1) == b"x"
    for root in ("http://host/bodies", "file://elsewhere/bodies"):
        with pytest.raises(PackStoreError, match="expected a folder of this machine"):
            open_pack_store(pack_location(root))


def test_a_folder_is_checked_before_it_is_needed(tmp_path: Path) -> None:
    folder_store(tmp_path / "to" / "be" / "made").check_writable()
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(PackStoreError, match=r"expected a folder to write to, found .*/file, which is a file"):
        folder_store(tmp_path / "file" / "bodies").check_writable()
    assert files_of(tmp_path) == ["file"]


def test_only_packs_are_listed_with_date_size_and_time(tmp_path: Path) -> None:
    store = folder_store(tmp_path)
    assert list(store.list_packs()) == []
    day = datetime.date(2026, 11, 20)
    names = [pack_name(day, broker, start, start + 9, TOKEN) for broker in ("a", "b") for start in (0, 9)]
    for name in [*reversed(names), NAME]:
        with store.open_write(name) as output:
            output.write(memoryview(b"12345"))
    (tmp_path / names[0]).with_name("notes.zst").write_bytes(b"")
    found = list(store.list_packs())
    assert [pack.name for pack in found] == [*names, NAME]
    assert [pack.store_date for pack in found] == [day] * 4 + [None]
    assert {pack.size for pack in found} == {5}
    now = datetime.datetime.now(datetime.UTC)
    assert all(datetime.timedelta(-1) < now - pack.modified < datetime.timedelta(minutes=1) for pack in found)


def test_deleting_packs_twice_is_not_an_error(tmp_path: Path) -> None:
    store = folder_store(tmp_path)
    with store.open_write(NAME) as output:
        output.write(memoryview(b"x"))
    for _ in range(2):
        store.delete([NAME])
        assert list(store.list_packs()) == []
    with pytest.raises(PackNameError):
        store.delete(["../secret"])


def test_old_files_of_killed_writers_are_deleted(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", KILLED_WRITER, tmp_path], check=False)
    store, now = folder_store(tmp_path), datetime.datetime.now(datetime.UTC)
    assert store.delete_unfinished_packs(now - datetime.timedelta(hours=1)) == 0
    assert len(files_of(tmp_path)) == 1
    assert store.delete_unfinished_packs(now + datetime.timedelta(hours=1)) == 1
    assert files_of(tmp_path) == []


def test_a_link_with_the_name_of_an_unfinished_file_is_deleted_and_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"kept")
    store = folder_store(tmp_path / "bodies")
    folder, name = (tmp_path / "bodies" / NAME).parent, NAME.split("/")[-1]
    folder.mkdir(parents=True)
    (folder / f".{name}.12-0123456789abcdef.tmp").symlink_to(target)
    assert store.delete_unfinished_packs(datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)) == 1
    assert (target.read_bytes(), list(folder.iterdir())) == (b"kept", [])


def test_what_is_no_pack_does_not_stop_the_listing_but_a_linked_folder_of_packs_does(tmp_path: Path) -> None:
    store = folder_store(tmp_path / "bodies")
    with store.open_write(NAME) as output:
        output.write(memoryview(b"pack"))
    folder = (tmp_path / "bodies" / NAME).parent
    (folder / "notes").symlink_to(tmp_path)
    assert [pack.name for pack in store.list_packs()] == [NAME]
    assert [pack.name for pack in store.list_packs(NAME.rpartition("/")[0])] == [NAME]
    (folder.parent / "broker=linked").symlink_to(tmp_path)
    with pytest.raises(PackStoreError, match="expected a folder, found a symbolic link"):
        list(store.list_packs())


def test_an_error_of_another_place_is_not_one_of_the_packs(tmp_path: Path) -> None:
    failure = ObjectStoreError("a server that is busy", "Run it again", "abfss://logs/0 cannot be read: found ")
    with pytest.raises(ObjectStoreError) as caught, folder_store(tmp_path).open_write(NAME):
        raise failure
    assert caught.value is failure
    assert files_of(tmp_path) == []


def test_a_file_that_a_writer_finishes_meanwhile_is_not_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, name = (tmp_path / NAME).parent, NAME.split("/")[-1]
    folder.mkdir(parents=True)
    unfinished = folder / f".{name}.12-0123456789abcdef.tmp"
    unfinished.write_bytes(b"")

    def finish(_: str) -> bool:
        unfinished.unlink()
        return True

    monkeypatch.setattr("commitlake.connectors.lake.packs.pack_stores._is_pack_name", finish)
    later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)
    assert folder_store(tmp_path).delete_unfinished_packs(later) == 0


def test_errors_of_a_store_can_be_pickled() -> None:
    error = PackStoreError("s3://bucket", "a bucket", "none", "Make it")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert str(error) == "bodies in s3://bucket: expected a bucket, found none. Make it"


def test_a_pack_is_synced_before_it_is_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, synced = folder_store(tmp_path), []
    real = os.fsync

    def note(descriptor: int) -> None:
        synced.append((Path(f"/proc/self/fd/{descriptor}").readlink().name, (tmp_path / NAME).exists()))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    with store.open_write(NAME) as output:
        output.write(memoryview(b"x"))
    folder = (tmp_path / NAME).parent.name
    assert synced[-2][0].endswith(".tmp")
    assert [was_there for _, was_there in synced[-2:]] == [False, True]
    assert synced[-1][0] == folder
