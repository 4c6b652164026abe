"""Tests of the check that the file system of a new lake has hard links, which commits need."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.paths import LakeError


def refuse_links(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Let every hard link fail, as on a file system without them: a test cannot mount one."""

    def link(source: Any, target: Any) -> None:
        raise OSError(number, os.strerror(number), str(source))

    monkeypatch.setattr(os, "link", link)


@pytest.mark.parametrize("exists", [True, False])
@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM])
def test_a_new_lake_in_a_file_system_without_hard_links_is_refused(
    number: int, exists: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = tmp_path / "lake"
    if exists:
        lake.mkdir()
    refuse_links(monkeypatch, number)
    with pytest.raises(LakeError, match=f"{lake} cannot hold a lake: its file system has no hard links"):
        Lake(str(lake)).check_writable()
    assert [path.name for path in tmp_path.rglob("*")] == ["lake"] * exists


def test_another_error_of_a_link_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_links(monkeypatch, errno.ENOSPC)
    with pytest.raises(OSError, match="No space left on device"):
        Lake(str(tmp_path)).check_writable()
    assert list(tmp_path.iterdir()) == []


def test_the_check_leaves_nothing_and_ignores_that_of_another_run(tmp_path: Path) -> None:
    (tmp_path / ".commitlake-probe-of-another-run").touch()
    Lake(str(tmp_path)).check_writable()
    Lake(str(tmp_path / "new")).check_writable()
    assert [path.name for path in tmp_path.iterdir()] == [".commitlake-probe-of-another-run"]


def test_a_lake_that_exists_is_not_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "messages" / "_delta_log").mkdir(parents=True)
    refuse_links(monkeypatch, errno.ENOSYS)
    Lake(str(tmp_path)).check_writable()
