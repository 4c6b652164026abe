"""A small store with everything in it, and a copy of it to damage."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.indexed_stores import write_indexed_store
from tests.support.jmq_stores import write_jmq_store

CONSUMER_OFFSETS = """{
	"offsetTable":{
		"rare@shipping":{0:3,1:2},
		"topic-1@billing":{0:1}
	}
}"""


@pytest.fixture(scope="session")
def intact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of several segments that nobody changes."""
    root = write_indexed_store(tmp_path_factory.mktemp("intact"))
    (root / "config" / "consumerOffset.json").write_text(CONSUMER_OFFSETS)
    return root


@pytest.fixture
def store(intact: Path, tmp_path: Path) -> Path:
    """A copy of it to damage."""
    return shutil.copytree(intact, tmp_path / "store")


@pytest.fixture(scope="session")
def intact_jmq(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A JMQ store of several files that nobody changes."""
    return write_jmq_store(tmp_path_factory.mktemp("intact-jmq") / "store")
