"""Settings of a store that follow from its files, in a folder and in a copy."""

from __future__ import annotations

from pathlib import Path

import pytest

from commitlake.connectors.formats.registry import COMMITLOGS
from commitlake.connectors.reading.stores import find_stores
from commitlake.pipelines.archive.store_config import read_broker_settings
from commitlake.schemas.layouts.rocketmq.consumequeue import ConsumeQueueEntry, serialize_entry
from commitlake.schemas.shipped_manifest import FILES_MANIFEST
from tests.support.indexed_stores import OPTIONS, SEGMENT_BYTES, write_indexed_store
from tests.support.remote_copies import COPY, serve_copies, ship_copy

DELAYED = "consumequeue/SCHEDULE_TOPIC_XXXX/2"
DUE_AFTER_MS = 10_000


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with queues, IndexFiles, and a queue of the third delay level."""
    root = write_indexed_store(tmp_path / "store")
    first = find_stores(str(root), formats=COMMITLOGS)[0]
    size = OPTIONS.consume_queue_file_size_bytes
    (root / DELAYED).mkdir(parents=True)
    entry = ConsumeQueueEntry(first.segments[0].base_offset, 200, 1_700_000_000_000 + DUE_AFTER_MS)
    (root / DELAYED / f"{0:020}").write_bytes(serialize_entry(entry).ljust(size, b"\0"))
    return root


@pytest.fixture
def copy(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that has the objects of a copy of the store."""
    serve_copies(tmp_path / "remote", monkeypatch)
    ship_copy(store, tmp_path / "remote")
    return tmp_path / "remote" / "copy"


def test_copy_has_the_settings_of_its_store(store: Path, copy: Path) -> None:
    assert copy.is_dir()
    problems: list[str] = []
    found = read_broker_settings(find_stores(str(store), formats=COMMITLOGS)[0], problems)
    assert found["segment_size_bytes"] == SEGMENT_BYTES
    assert found["queue_file_size_bytes"] == OPTIONS.consume_queue_file_size_bytes
    assert found["index_entries"] == OPTIONS.index_entries
    assert read_broker_settings(find_stores(COPY, formats=COMMITLOGS)[0], problems) == found
    assert problems == []


def test_queue_of_a_copy_that_cannot_be_read_is_a_problem_and_no_error(copy: Path) -> None:
    for path in (copy / "shipped" / "parts" / f"of-{DELAYED}").rglob("*-*"):
        path.unlink()
    problems: list[str] = []
    found = read_broker_settings(find_stores(COPY, formats=COMMITLOGS)[0], problems)
    assert found["queue_file_size_bytes"] == OPTIONS.consume_queue_file_size_bytes
    (problem,) = problems
    assert DELAYED in problem
    assert "settings that follow from queues and indexes are not archived" in problem


def test_store_in_an_object_store_that_was_not_shipped_has_the_size_of_its_segments(copy: Path) -> None:
    (copy / FILES_MANIFEST).unlink()
    problems: list[str] = []
    assert read_broker_settings(find_stores(COPY, formats=COMMITLOGS)[0], problems) == {
        "segment_size_bytes": SEGMENT_BYTES
    }
    assert problems == []


def test_link_among_the_topics_hides_no_setting(store: Path, tmp_path: Path) -> None:
    (store / "consumequeue" / "a-link").symlink_to(tmp_path)
    problems: list[str] = []
    found = read_broker_settings(find_stores(str(store), formats=COMMITLOGS)[0], problems)
    assert found["queue_file_size_bytes"] == OPTIONS.consume_queue_file_size_bytes
    assert found["index_slots"] == OPTIONS.index_slots
    assert problems == []
