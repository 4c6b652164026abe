"""Folders from which code is run: nobody else can put files into them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from commitlake.schemas.private_folders import SharedFolderError, make_private_folder


@pytest.fixture(autouse=True)
def wide_umask() -> Iterator[None]:
    """Folders are made as by a process that lets others write to everything."""
    before = os.umask(0)
    yield
    os.umask(before)


def modes(*paths: Path) -> list[str]:
    return [oct(path.stat().st_mode & 0o7777) for path in paths]


def test_only_this_user_can_write_to_a_new_folder_and_the_one_above(tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "commitlake" / "code"
    make_private_folder(folder)
    assert modes(folder, folder.parent) == ["0o755", "0o755"]
    make_private_folder(folder)
    make_private_folder(tmp_path / "secret", 0o700)
    assert modes(tmp_path / "secret") == ["0o700"]


def test_a_folder_in_one_for_everybody_is_safe_from_replacement(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)  # like /tmp
    make_private_folder(tmp_path / "code")
    assert modes(tmp_path) == ["0o1777"]


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o1777])
def test_a_folder_that_others_can_write_to_is_refused(mode: int, tmp_path: Path) -> None:
    folder = tmp_path / "code"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(SharedFolderError, match=f"{folder}: no code is run from it: .* found one with mode {mode:04o}"):
        make_private_folder(folder)


def belongs_to_another_user(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let another user run this process than the one who made a folder."""
    owner = path.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1000)
    if owner == 0:
        os.chown(path, 2000, -1)


def test_a_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o1777)
    folder = tmp_path / "code"
    folder.mkdir(0o755)
    belongs_to_another_user(folder, monkeypatch)
    other = folder.stat().st_uid
    with pytest.raises(SharedFolderError, match=f"expected a folder of user {os.geteuid()}, found one of user {other}"):
        make_private_folder(folder, owners={tmp_path.stat().st_uid})
    make_private_folder(folder, owners={tmp_path.stat().st_uid, other})


def test_a_folder_is_refused_if_others_can_replace_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o777)
    belongs_to_another_user(tmp_path, monkeypatch)
    with pytest.raises(SharedFolderError, match=str(tmp_path)):
        make_private_folder(tmp_path / "code")


def test_a_link_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o1777)
    (tmp_path / "own").mkdir(0o755)
    link = tmp_path / "code"
    link.symlink_to(tmp_path / "own")
    make_private_folder(link)
    if os.geteuid() == 0:
        os.lchown(link, 2000, -1)
        with pytest.raises(SharedFolderError, match="found one of user 2000"):
            make_private_folder(link)
