"""Choice of the queue files that a read of `consumequeue` opens, by their names and sizes."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from commitlake.connectors.formats.index_entries.entry_damage import Reason
from commitlake.connectors.formats.index_entries.entry_options import QueueOptions
from commitlake.connectors.formats.index_entries.queue_file_parts import QueuePart, plan_queues
from commitlake.connectors.reading.errors import StoreError
from commitlake.connectors.reading.files.index_files import LocalStoreFiles
from commitlake.connectors.reading.files.shipped_files import ShippedStoreFiles
from commitlake.schemas.layouts.segment_names import segment_name
from tests.support.indexed_stores import QUEUE_FILE_ENTRIES, RARE

_FILE_BYTES = 20 * QUEUE_FILE_ENTRIES


def plan(root: Path | str, **given: str) -> list[QueuePart]:
    options = QueueOptions.parse({"path": str(root), **given})
    return [part for parts in plan_queues(options, options.to_read_filters) for part in parts]


def bad(parts: list[QueuePart]) -> list[tuple[str, int, int, Reason]]:
    return [(part.name, part.start, part.end, part.bad.reason) for part in parts if part.bad]


def test_parts_cover_the_files_of_all_queues(plain_store: Path) -> None:
    files = sorted((plain_store / "consumequeue").rglob("0*"))
    parts = plan(plain_store)
    places = sorted({Path(part.location) for part in parts})
    assert places == [path for path in files if path.is_file() and len(path.name) == 20]
    assert {part.location for part in parts} == {str(plain_store / part.path) for part in parts}
    assert bad(parts) == []


def test_only_folders_of_wanted_queues_are_opened(store: Path) -> None:
    other = store / "consumequeue" / "topic-0"
    (other / "77").symlink_to("/nowhere")  # would be an error
    (store / "consumequeue" / RARE / "1" / segment_name(0)).unlink()
    (store / "consumequeue" / RARE / "1" / segment_name(0)).symlink_to("/nowhere")
    assert {(part.queue.topic, part.queue.queue_id) for part in plan(store, topics=RARE, queueIds="0,2")} == {
        (RARE, 0),
        (RARE, 2),
    }
    assert plan(store, topics="../config,absent") == []


@pytest.mark.parametrize("name", ["topic-0/77", "topic-0", f"topic-0/0/{segment_name(0)}"])
def test_links_among_the_wanted_files_are_refused(store: Path, tmp_path: Path, name: str) -> None:
    path = store / "consumequeue" / name
    if path.exists():
        path.rename(tmp_path / "moved")
    path.symlink_to(tmp_path / "moved")
    with pytest.raises(StoreError, match="found a symbolic link"):
        plan(store)


def test_a_missing_file_before_others_is_bad(store: Path) -> None:
    folder = store / "consumequeue" / "topic-0" / "0"
    assert len(list(folder.iterdir())) > 2
    (folder / segment_name(_FILE_BYTES)).unlink()
    assert bad(plan(store, topics="topic-0", queueIds="0")) == [
        (segment_name(0), _FILE_BYTES, 2 * _FILE_BYTES, Reason.MISSING)
    ]


def test_files_that_are_too_short_or_too_long_are_bad(store: Path) -> None:
    folder = store / "consumequeue" / "topic-0" / "0"
    os.truncate(folder / segment_name(0), 47)
    os.truncate(folder / segment_name(_FILE_BYTES), 2 * _FILE_BYTES)
    parts = plan(store, topics="topic-0", queueIds="0")
    assert bad(parts) == [
        (segment_name(0), 40, _FILE_BYTES, Reason.MISSING),
        (segment_name(_FILE_BYTES), _FILE_BYTES, 2 * _FILE_BYTES, Reason.OVERLAP),
    ]
    assert [(part.start, part.end) for part in parts if part.name == segment_name(0) and not part.bad] == [(0, 40)]


def test_half_an_entry_at_the_end_of_the_last_file_is_bad(store: Path) -> None:
    folder = store / "consumequeue" / RARE / "0"
    os.truncate(folder / segment_name(0), 33)
    assert bad(plan(store, topics=RARE, queueIds="0")) == [(segment_name(0), 20, 33, Reason.CUT)]


def test_an_impossible_file_size_is_bad_and_bounded(store: Path) -> None:
    os.truncate(store / "consumequeue" / RARE / "0" / segment_name(0), 1 << 40)
    parts = plan(store, topics=RARE, queueIds="0")
    assert bad(parts)[0][3] is Reason.SIZE
    assert len(parts) < 50
    assert sum(part.size for part in parts) < 1 << 31


def test_a_preallocated_file_does_not_imply_missing_entries(store: Path) -> None:
    folder = store / "consumequeue" / RARE / "0"
    (folder / segment_name(5 * _FILE_BYTES)).write_bytes(bytes(_FILE_BYTES))
    parts = plan(store, topics=RARE, queueIds="0")
    assert bad(parts) == []
    assert not any(part.is_followed for part in parts)


def test_a_name_between_two_entries_is_bad(store: Path) -> None:
    folder = store / "consumequeue" / RARE / "0"
    (folder / segment_name(0)).rename(folder / segment_name(7))
    assert bad(plan(store, topics=RARE, queueIds="0")) == [(segment_name(7), 0, _FILE_BYTES, Reason.NAME)]


def test_a_topic_that_is_not_utf8_is_bad(store: Path) -> None:
    folder = os.fsencode(store / "consumequeue" / RARE)
    Path(os.fsdecode(folder)).rename(os.fsdecode(folder + b"\xff"))
    assert {reason for *_, reason in bad(plan(store))} == {Reason.NAME}


def test_a_store_without_queues_is_an_error(store: Path) -> None:
    (store / "consumequeue").rename(store / "elsewhere")
    with pytest.raises(StoreError, match="has no folder 'consumequeue'"):
        plan(store)


def test_queues_in_rocksdb_are_an_error(store: Path) -> None:
    (store / "consumequeue" / "CURRENT").write_bytes(b"MANIFEST-000001\n")
    with pytest.raises(StoreError, match="the queues are in RocksDB, which CommitLake cannot read"):
        plan(store)


def test_a_file_that_is_deleted_during_planning_is_left_out(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = store / "consumequeue" / "topic-0" / "0"
    listed = sorted(path.name for path in folder.iterdir())
    (folder / listed[0]).unlink()
    monkeypatch.setattr(LocalStoreFiles, "files_in", lambda *_, **__: listed)
    parts = plan(store, topics="topic-0", queueIds="0")
    assert {part.name for part in parts} == set(listed[1:])
    assert bad(parts) == []


def test_the_folder_of_all_queues_may_be_a_link(store: Path, tmp_path: Path) -> None:
    (store / "consumequeue").rename(tmp_path / "queues")
    (store / "consumequeue").symlink_to(tmp_path / "queues")
    assert plan(store)


def test_no_file_of_a_copy_is_opened(store: Path, ship: Callable[[Path], str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ShippedStoreFiles, "open", None)
    of_store, of_copy = plan(store), plan(ship(store))
    assert [(part.path, part.start) for part in of_copy] == [(part.path, part.start) for part in of_store]
    assert {part.location for part in of_copy} == {f"{part.queue.store.root}/{part.path}" for part in of_copy}
    # Only what was shipped is read: whole files, and the written entries of the newest ones.
    assert all(part.end == (_FILE_BYTES if part.is_followed else part.file_end) for part in of_copy)
    assert sum(part.size for part in of_copy) == 330 * 20


def test_parts_of_a_copy_are_small(plain_store: Path, ship: Callable[[Path], str]) -> None:
    parts = plan(ship(plain_store))
    assert len(pickle.dumps(parts)) < 200 * len(parts)


def test_a_copy_of_the_log_alone_has_no_queues(store: Path, ship: Callable[[Path], str]) -> None:
    (store / "consumequeue").rename(store / "elsewhere")
    with pytest.raises(StoreError, match="copy has no folder 'consumequeue'"):
        plan(ship(store))
