"""Messages that are not in the folder of the log that is read."""

from __future__ import annotations

import logging
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from commitlake.broker_lite.stores.rocketmq import MessageStore
from commitlake.connectors.formats.jmq.format import FORMAT as JMQ
from commitlake.connectors.formats.registry import COMMITLOGS, all_formats
from commitlake.connectors.reading.errors import StoreError
from commitlake.connectors.reading.options import Mode
from commitlake.connectors.reading.planning import refuse_incomplete_read
from commitlake.connectors.reading.snapshots import Snapshot, take_snapshot
from commitlake.connectors.reading.stores import find_stores
from commitlake.connectors.reading.unread_warnings import watch_unread_warnings
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.layouts.jmq.checkpoint import FILE_NAME, parse_journal_checkpoint, serialize_journal_checkpoint
from commitlake.schemas.layouts.segment_names import segment_name
from tests.support.exit_codes import exits
from tests.support.indexed_stores import OPTIONS, SEGMENT_BYTES, message, write_indexed_store
from tests.support.jmq_stores import write_jmq_store
from tests.support.store_damages import patch

LAST = 3 * SEGMENT_BYTES
"""Physical offset of the last segment of the store below."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store of four segments with queues and indexes, whose broker was shut down."""
    root = write_indexed_store(tmp_path_factory.mktemp("made") / "store", count=200)
    assert max(file.name for file in (root / "commitlog").iterdir()) == segment_name(LAST)
    return root


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    """Return a copy of this store."""
    return Path(shutil.copytree(made, tmp_path / "broker-a" / "store"))


def newer(root: Path) -> str:
    """Return the sentences on what a read of the store does not reach."""
    (found,) = take_snapshot(find_stores(str(root), formats=COMMITLOGS)).ranges.values()
    return "; ".join(found.newer)


def move(root: Path, folder: Path, *bases: int) -> Path:
    """Move segments of the log into another folder."""
    folder.mkdir(parents=True)
    for base in bases:
        (root / "commitlog" / segment_name(base)).rename(folder / segment_name(base))
    return folder


def write_conf(root: Path, *folders: Path, name: str = "storePathCommitLog") -> None:
    """Write a broker.conf beside the store."""
    (root.parent / "broker.conf").write_text(f"{name}={','.join(map(str, folders))}\n")


def test_whole_store_has_nothing_else(root: Path) -> None:
    assert newer(root) == ""


def leave_empty(folder: Path) -> None:
    folder.mkdir(parents=True)


def leave_zeros(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / segment_name(LAST + SEGMENT_BYTES)).write_bytes(bytes(SEGMENT_BYTES))


def leave_old(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / segment_name(SEGMENT_BYTES)).write_bytes(b"x" * SEGMENT_BYTES)


@pytest.mark.parametrize("leave", [leave_empty, leave_zeros, leave_old])
def test_dledger_folder_without_newer_messages_is_no_alarm(root: Path, leave: Callable[[Path], None]) -> None:
    leave(root / "dledger-n0" / "data")
    assert newer(root) == ""


def test_folder_that_only_the_store_names_is_not_read(root: Path) -> None:
    other = move(root, root.parent / "b", SEGMENT_BYTES, LAST)
    write_conf(root, root / "commitlog", other, root.parent / "not-created-yet")
    (root.parent / "broker.conf").rename(root / "broker.conf")
    text = newer(root)
    assert f"{other} has 2 segments of the log, physical offsets {SEGMENT_BYTES} to " in text
    assert "'--broker-conf'" in text
    assert "not-created-yet" not in text


def test_folder_that_does_not_exist_is_named_where_no_gap_shows_it(root: Path) -> None:
    for base in (0, SEGMENT_BYTES, 2 * SEGMENT_BYTES):
        (root / "commitlog" / segment_name(base)).unlink()
    write_conf(root, root / "commitlog", root.parent / "unmounted")
    assert f"{root.parent}/unmounted may have segments of the log, but does not exist" in newer(root)


def test_folder_in_which_no_segment_was_created_yet_is_no_alarm(root: Path) -> None:
    write_conf(root, root / "commitlog", *(root.parent / str(number) for number in range(4)))
    assert newer(root) == ""


def test_empty_segment_of_the_same_name_elsewhere_is_no_alarm(root: Path) -> None:
    other = root.parent / "b"
    other.mkdir()
    (other / segment_name(LAST)).write_bytes(bytes(SEGMENT_BYTES))
    write_conf(root, root / "commitlog", other)
    assert newer(root) == ""


def test_settings_of_another_store_are_not_used(root: Path) -> None:
    other = move(root, root.parent / "b", 2 * SEGMENT_BYTES)
    write_conf(root, Path("/data/store/commitlog"), other)
    assert newer(root) == ""  # a missing segment is a gap, which every read reports


def test_queue_entries_show_segments_that_are_missing_at_the_end(root: Path) -> None:
    move(root, root.parent / "unknown", LAST)
    text = newer(root)
    assert "has an entry of physical offset" in text
    assert f"ends at {LAST}" in text


def test_index_shows_missing_segments_of_a_store_without_queue_files(root: Path) -> None:
    move(root, root.parent / "unknown", LAST)
    shutil.rmtree(root / "consumequeue")
    assert "index/" in newer(root)


def test_checkpoint_shows_that_the_log_has_lost_its_end(root: Path) -> None:
    patch(root / "commitlog" / segment_name(LAST), 4000, bytes(SEGMENT_BYTES - 4000))
    assert "the checkpoint confirms a message stored at" in newer(root)


def test_queues_within_the_last_segment_are_no_sign_of_other_folders(root: Path) -> None:
    patch(root / "commitlog" / segment_name(LAST), 4000, bytes(SEGMENT_BYTES - 4000))
    (root / "checkpoint").unlink()
    assert newer(root) == ""


def test_deleted_oldest_segments_are_no_alarm(root: Path) -> None:
    (root / "commitlog" / segment_name(0)).unlink()
    assert newer(root) == ""


def test_broker_that_writes_meanwhile_is_no_alarm(root: Path) -> None:
    stores = find_stores(str(root), formats=COMMITLOGS)
    with MessageStore.open(root, OPTIONS) as broker:
        for number in range(1000, 1200):  # fills new segments, which the list of segments lacks
            broker.put(message(number, random.Random(number)))
        (found,) = take_snapshot(stores).ranges.values()
    assert found.newer == ()


def test_checkpoint_of_jmq_shows_that_the_journal_has_lost_its_end(tmp_path: Path) -> None:
    root = write_jmq_store(tmp_path / "store")
    assert newer_of_jmq(root) == ""
    known = parse_journal_checkpoint((root / FILE_NAME).read_bytes())
    assert known is not None
    (root / FILE_NAME).write_bytes(serialize_journal_checkpoint(known._replace(journal_end=known.journal_end + 1)))
    assert "confirms the log up to physical offset" in newer_of_jmq(root)


def newer_of_jmq(root: Path) -> str:
    (found,) = take_snapshot(find_stores(str(root), formats=all_formats().select_only(JMQ))).ranges.values()
    return "; ".join(found.newer)


def name_within(root: Path, *folders: Path) -> None:
    """Write a broker.conf in the store, which cannot name other folders of the log."""
    (root / "broker.conf").write_text(f"storePathCommitLog={','.join(map(str, folders))}\n")


def test_warning_is_printed_once(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    other = move(root, root.parent / "b", LAST)
    name_within(root, root / "commitlog", other)
    with caplog.at_level(logging.WARNING), watch_unread_warnings() as has_unread:
        assert not has_unread()
        assert newer(root) == newer(root)
        assert has_unread()
    assert caplog.text.count(f"{other} has") == 1


def test_sources_fail_unless_they_are_permissive(root: Path) -> None:
    other = move(root, root.parent / "b", LAST)
    name_within(root, root / "commitlog", other)
    snapshot = take_snapshot(find_stores(str(root), formats=COMMITLOGS))
    assert Snapshot.from_json(snapshot.to_json()) == snapshot
    with pytest.raises(StoreError, match="b has 1 segment", check=exits(ExitCode.DAMAGE)):
        refuse_incomplete_read(snapshot.ranges["broker-a"], Mode.FAILFAST)
    refuse_incomplete_read(snapshot.ranges["broker-a"], Mode.PERMISSIVE)
