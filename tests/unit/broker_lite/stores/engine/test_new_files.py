"""Tests of new files of a store: a file with a name has its full size, even after a kill."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from commitlake.broker_lite.errors import StoreFilesError
from commitlake.broker_lite.stores.engine.mapped_file import MappedFile, MappedFiles

SIZE = 4096


class KilledError(Exception):
    """Error that stands for the end of the process."""


def die(*_: object) -> None:
    raise KilledError


def test_a_process_that_dies_before_the_size_is_set_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "ftruncate", die)
    with pytest.raises(KilledError):
        MappedFile.create(tmp_path / "queue" / "0", SIZE, MappedFiles())
    assert list((tmp_path / "queue").iterdir()) == []


def test_an_existing_file_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "0").write_bytes(b"there")
    with pytest.raises(StoreFilesError, match="one of this name exists already"):
        MappedFile.create(tmp_path / "0", SIZE, MappedFiles())
    assert (tmp_path / "0").read_bytes() == b"there"


def test_files_are_created_without_o_tmpfile_if_it_is_not_supported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = os.open

    def refuse(path: Any, flags: int, *rest: Any, **named: Any) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, "not supported")
        return plain(path, flags, *rest, **named)

    monkeypatch.setattr(os, "open", refuse)
    file = MappedFile.create(tmp_path / "0", SIZE, MappedFiles())
    assert file.path.stat().st_size == SIZE
