"""Small stores with queues and IndexFiles, and functions that read both by their sources, without Spark."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.index_entries import Read
from tests.support.index_entry_rows import read_index_rows, read_queue_rows
from tests.support.indexed_stores import write_indexed_store
from tests.support.jmq_stores import write_jmq_store
from tests.support.remote_copies import COPY, serve_copies, ship_copy


@pytest.fixture(scope="session")
def plain_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a RocketMQ store, which tests must not change."""
    return write_indexed_store(tmp_path_factory.mktemp("plain") / "store", count=330)


@pytest.fixture(scope="session")
def plain_jmq_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a JMQ store, which tests must not change."""
    return write_jmq_store(tmp_path_factory.mktemp("jmq") / "store", count=330)


@pytest.fixture
def store(plain_store: Path, tmp_path: Path) -> Path:
    """A copy of the RocketMQ store, to damage."""
    return shutil.copytree(plain_store, tmp_path / "store")


@pytest.fixture
def jmq_store(plain_jmq_store: Path, tmp_path: Path) -> Path:
    """A copy of the JMQ store, to damage."""
    return shutil.copytree(plain_jmq_store, tmp_path / "jmq")


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    """Folder of the objects of a copy."""
    return tmp_path / "remote" / "copy"


@pytest.fixture
def ship(remote: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], str]:
    """A function that ships a store and returns the URI of its copy in an object store."""
    serve_copies(remote.parent, monkeypatch)

    def ship_store(store: Path) -> str:
        ship_copy(store, remote.parent)
        return COPY

    return ship_store


@pytest.fixture
def read_queues() -> Read:
    """A function from a store and options to the rows of `consumequeue`."""
    return read_queue_rows


@pytest.fixture
def read_index() -> Read:
    """A function from a store and options to the rows of `indexfile`."""
    return read_index_rows
