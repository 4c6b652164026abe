"""A store with a broker's indexes, for the tests of plans."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.indexed_stores import without_seeks, write_indexed_store


@pytest.fixture
def nothing_to_seek(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small segments are worth a look-up, as large ones are on a disk."""
    without_seeks(monkeypatch)


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store of several segments, which tests must not change."""
    return write_indexed_store(tmp_path_factory.mktemp("plain"))


@pytest.fixture
def store(plain: Path, tmp_path: Path) -> Path:
    """A copy of it to damage."""
    return shutil.copytree(plain, tmp_path / "store")
