"""Tests of files in a folder that others may write to: links are not followed, and only regular files are opened."""

from __future__ import annotations

import errno
import os
import pickle
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from commitlake.schemas.safe_store_files import (
    UnsafeFileError,
    check_own_folder,
    check_relative_name,
    check_tree,
    create_file,
    files_in,
    folders_in,
    make_folders,
    open_file,
    open_or_create_file,
    read_file,
    read_json,
    remove_file,
    remove_tree,
    rename_file,
)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A folder with a file `a/b/file`, and one outside with `secret`."""
    (tmp_path / "store" / "a" / "b").mkdir(parents=True)
    (tmp_path / "store" / "a" / "b" / "file").write_bytes(b"own")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_bytes(b"secret")
    return tmp_path / "store"


def plant_link(path: Path) -> None:
    path.symlink_to(path.parents[1] / "outside" / "secret")


def plant_link_to_nothing(path: Path) -> None:
    path.symlink_to("nothing")


def plant_link_to_itself(path: Path) -> None:
    path.symlink_to(path.name)


def plant_fifo(path: Path) -> None:
    os.mkfifo(path)


def plant_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        before = Path.cwd()
        os.chdir(path.parent)  # a socket's path may be 108 bytes long
        try:
            made.bind(path.name)
        finally:
            os.chdir(before)


def plant_folder(path: Path) -> None:
    path.mkdir()


ALL: list[Callable[[Path], None]] = [
    plant_link, plant_link_to_nothing, plant_link_to_itself, plant_fifo, plant_socket, plant_folder,
]  # fmt: skip


@pytest.mark.parametrize("plant", ALL)
@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_WRONLY, os.O_RDWR])
def test_only_regular_files_are_opened(store: Path, plant: Callable[[Path], None], flags: int) -> None:
    plant(store / "file")
    for below in (None, store):
        with pytest.raises(UnsafeFileError, match=r"file: expected a regular file, found a"):
            open_file(store / "file", flags, trusted_root=below)
    with pytest.raises(UnsafeFileError):
        open_or_create_file(store / "file")


def test_link_in_the_middle_of_a_path_is_not_followed(store: Path) -> None:
    (store / "a" / "linked").symlink_to(store.parent / "outside")
    assert read_file(store / "a" / "linked" / "secret") == b"secret"  # without `below`, links are followed
    for use in (
        lambda path: read_file(path, trusted_root=store),
        lambda path: create_file(path, trusted_root=store),
        lambda path: remove_file(path, trusted_root=store),
        lambda path: rename_file(path, store / "here", trusted_root=store),
        lambda path: rename_file(store / "a" / "b" / "file", path, trusted_root=store),
        lambda path: make_folders(path, trusted_root=store),
        lambda path: files_in(path.parent, trusted_root=store),
        lambda path: folders_in(path.parent, trusted_root=store),
    ):
        with pytest.raises(UnsafeFileError, match="linked: expected a folder, found a symbolic link"):
            use(store / "a" / "linked" / "secret")
    assert (store.parent / "outside" / "secret").read_bytes() == b"secret"
    assert [path.name for path in (store.parent / "outside").iterdir()] == ["secret"]


def test_folder_that_the_operator_names_may_be_a_link(store: Path) -> None:
    link = store.parent / "link"
    link.symlink_to(store)
    assert read_file(link / "a" / "b" / "file", trusted_root=link) == b"own"
    assert folders_in(link) == ["a"]


def test_path_out_of_the_folder_is_refused(store: Path) -> None:
    for path in (store / ".." / "outside" / "secret", store.parent / "outside" / "secret"):
        with pytest.raises(ValueError, match="expected a path below"):
            read_file(path, trusted_root=store)


@pytest.mark.parametrize("plant", ALL[:-1])
def test_new_file_replaces_an_existing_file_of_its_name(store: Path, plant: Callable[[Path], None]) -> None:
    plant(store / "file")
    with os.fdopen(create_file(store / "file", trusted_root=store), "wb") as file:
        file.write(b"new")
    assert not (store / "file").is_symlink()
    assert (store / "file").read_bytes() == b"new"
    assert (store.parent / "outside" / "secret").read_bytes() == b"secret"


def test_new_file_does_not_replace_a_folder(store: Path) -> None:
    with pytest.raises(UnsafeFileError, match="a file or nothing, found a folder"):
        create_file(store / "a")


def test_file_with_two_hard_links_is_not_opened_for_writing(store: Path) -> None:
    (store / "file").hardlink_to(store.parent / "outside" / "secret")
    with pytest.raises(UnsafeFileError, match="2 hard links"):
        open_file(store / "file", os.O_RDWR)
    assert read_file(store / "file") == b"secret"
    os.close(open_file(store / "file", os.O_RDWR, may_have_hard_links=True))
    os.close(create_file(store / "file"))
    assert (store.parent / "outside" / "secret").read_bytes() == b"secret"


def test_large_file_is_read_up_to_a_limit(store: Path) -> None:
    os.truncate(store / "a" / "b" / "file", 1 << 40)
    with pytest.raises(UnsafeFileError, match=f"expected at most 100 bytes, found {1 << 40}"):
        read_file(store / "a" / "b" / "file", limit=100)
    os.truncate(store / "a" / "b" / "file", 100)
    assert len(read_file(store / "a" / "b" / "file", limit=100)) == 100


def test_json_that_is_nested_too_deep_is_a_value_error(store: Path) -> None:
    (store / "plan.json").write_bytes(b"[" * 1_000_000)
    with pytest.raises(ValueError, match="nested too deep"):
        read_json(store / "plan.json")


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/etc/passwd", "", ".", "..", "a//b", "a\0b", "a/" * 3000, "a/"])
def test_name_that_leads_out_of_a_folder_is_refused(name: str) -> None:
    with pytest.raises(UnsafeFileError, match="expected a relative path"):
        check_relative_name(name)


@pytest.mark.parametrize("name", ["a", "a/b", "...", "a\nb", "\udcff"])
def test_plain_name_is_accepted(name: str) -> None:
    assert str(check_relative_name(name)) == name


def test_links_are_refused_and_other_files_skipped_in_a_listing(store: Path) -> None:
    (store / "file").write_bytes(b"")
    os.mkfifo(store / "fifo")
    assert folders_in(store) == ["a"]
    assert files_in(store, lambda name: name != "fifo") == ["file"]
    with pytest.raises(UnsafeFileError, match="fifo: expected a regular file, found a FIFO"):
        files_in(store)
    (store / "link").symlink_to("a")
    with pytest.raises(UnsafeFileError, match="link: expected a folder, found a symbolic link"):
        folders_in(store)
    assert folders_in(store / "none") == folders_in(store / "file") == files_in(store / "none") == []


def test_tree_with_anything_but_folders_and_files_is_refused(store: Path) -> None:
    check_tree(store)
    with pytest.raises(UnsafeFileError, match="at most 2 files, found more"):
        check_tree(store, max_files=2)
    (store / "a" / "b" / "link").symlink_to("file")
    with pytest.raises(UnsafeFileError, match="a file or a folder, found a symbolic link"):
        check_tree(store)


def test_work_folder_must_belong_to_this_user_and_not_be_a_link(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not check_own_folder(store / "none")
    assert check_own_folder(store)
    monkeypatch.setattr(os, "geteuid", lambda: store.stat().st_uid + 1)
    with pytest.raises(UnsafeFileError, match="remove it, or run as that user"):
        check_own_folder(store)
    (store.parent / "link").symlink_to(store)
    with pytest.raises(UnsafeFileError, match="found a symbolic link"):
        check_own_folder(store.parent / "link")


def test_removing_a_tree_removes_links_and_not_their_targets(store: Path) -> None:
    (store / "link").symlink_to(store.parent / "outside")
    remove_tree(store / "link")
    (store / "a" / "link").symlink_to(store.parent / "outside")
    remove_tree(store)
    remove_tree(store)
    assert (store.parent / "outside" / "secret").read_bytes() == b"secret"


@pytest.mark.parametrize(
    ("umask", "file_mode", "folder_mode"), [(0, 0o640, 0o750), (0o022, 0o640, 0o750), (0o077, 0o600, 0o700)]
)
def test_new_files_and_folders_have_restricted_modes(
    tmp_path: Path, umask: int, file_mode: int, folder_mode: int
) -> None:
    before = os.umask(umask)
    try:
        make_folders(tmp_path / "a" / "b")
        make_folders(tmp_path / "a" / "c" / "d", trusted_root=tmp_path)
        os.close(create_file(tmp_path / "a" / "file"))
        os.close(open_or_create_file(tmp_path / "a" / "lock"))
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "a").rglob("*") if path.is_dir()} == {folder_mode}
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "a").rglob("*") if path.is_file()} == {file_mode}


@pytest.mark.parametrize(
    ("name", "attempt", "place"),
    [
        ("open", files_in, "a"),
        ("unlink", create_file, "new"),
        ("mkdir", lambda path: make_folders(path, trusted_root=path.parent), "new"),
    ],
)
def test_a_refused_permission_names_the_whole_path(
    name: str, attempt: Callable[[Path], object], place: str, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    function = getattr(os, name)

    def denied(path: str, *rest: int, **folder: int) -> int:
        if name == "open" and path != ".":
            return int(function(path, *rest, **folder))
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr(os, name, denied)
    with pytest.raises(PermissionError) as found:
        attempt(store / place)
    assert found.value.filename == str(store / place)


def test_error_can_be_pickled(store: Path) -> None:
    error = UnsafeFileError.of(store, "a file", "a FIFO")
    assert str(pickle.loads(pickle.dumps(error))) == str(error) == f"{store}: expected a file, found a FIFO"
