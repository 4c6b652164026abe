"""Rebuilt stores, and the files of two stores side by side."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from commitlake.broker_lite.stores.rocketmq import MessageStore
from commitlake.connectors.formats.registry import COMMITLOGS
from commitlake.connectors.reading.stores import find_stores
from commitlake.pipelines.rebuild.run import RebuildResult, rebuild_store
from commitlake.pipelines.rebuild.settings import RequestedSettings
from tests.support.indexed_stores import OPTIONS, Clock
from tests.support.rebuilt_stores import Rebuild, files_of

Built = Callable[..., Path]
Compare = Callable[[Path, Path], None]
SIZES = RequestedSettings(
    queue_file_size=OPTIONS.consume_queue_file_size_bytes,
    index_slots=OPTIONS.index_slots,
    index_entries=OPTIONS.index_entries,
    index_tags=True,
)
"""Settings of the tests' small stores, also if only their log is left."""


@pytest.fixture
def rebuild(tmp_path: Path) -> Rebuild:
    """Rebuild a store into a folder next to the others of the test."""

    def run(root: Path, out: Path | None = None, wanted: RequestedSettings = SIZES, **changes: object) -> RebuildResult:
        (store,) = find_stores(str(root), "a", formats=COMMITLOGS)
        return rebuild_store(store, out or tmp_path / "out", wanted, **changes)  # type: ignore[arg-type]

    return run


@pytest.fixture
def built_by_plain_rules(tmp_path: Path) -> Built:
    """A copy of a log, with the files that broker_lite makes when it opens it."""

    def build(root: Path, segment_bytes: int = OPTIONS.segment_size_bytes) -> Path:
        copy = tmp_path / "plain"
        shutil.copytree(root / "commitlog", copy / "commitlog")
        with MessageStore.open(copy, replace(OPTIONS, segment_size_bytes=segment_bytes), clock=Clock()):
            pass
        return copy

    return build


@pytest.fixture
def same_files() -> Compare:
    """Check that two stores have the same queues and the same index, but for the names of IndexFiles."""

    def compare(expected: Path, found: Path) -> None:
        queues, own = files_of(expected / "consumequeue"), files_of(found / "consumequeue")
        assert sorted(own) == sorted(queues)
        assert [name for name in queues if queues[name] != own[name]] == []
        assert list(files_of(found / "index").values()) == list(files_of(expected / "index").values())

    return compare
