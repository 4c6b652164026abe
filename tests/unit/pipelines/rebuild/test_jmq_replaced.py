"""Rebuilt files that take the place of a JMQ store's own."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from commitlake.broker_lite.stores.jmq import JournalStore
from commitlake.connectors.formats.jmq.format import FORMAT as JMQ
from commitlake.connectors.formats.registry import all_formats
from commitlake.connectors.reading.stores import find_stores
from commitlake.pipelines.rebuild.errors import DisagreementError
from commitlake.pipelines.rebuild.run import rebuild_store
from commitlake.pipelines.rebuild.settings import RequestedSettings
from commitlake.pipelines.rebuild.store_replacement import Replacement
from commitlake.schemas.layouts.jmq.journal import HEAD
from commitlake.schemas.layouts.jmq.queue_file import JmqQueueEntry, serialize_entry
from commitlake.schemas.layouts.segment_names import segment_name
from tests.support.indexed_stores import Clock
from tests.support.jmq_stores import FILE_BYTES, OPTIONS, write_jmq_store
from tests.support.journal_stores import journal_records
from tests.support.rebuilt_stores import files_of
from tests.support.small_stores import all_messages

STAMP = "20260101T000000Z"


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that nobody changes."""
    return write_jmq_store(tmp_path_factory.mktemp("jmq") / "store")


@pytest.fixture
def store(intact: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(intact, tmp_path / "store"))


def replaced(root: Path, topics: tuple[str, ...] | None = None) -> Replacement:
    """Return the verified replacement of a store's files."""
    (found,) = find_stores(str(root), "a", formats=all_formats().select_only(JMQ))
    replacement = Replacement(root, JMQ)
    rebuilt = rebuild_store(found, replacement.out, RequestedSettings(topics=topics))
    replacement.copy_queues_without_records(rebuilt.settings)
    replacement.verify_new_files(found, rebuilt.shifted_queues, topics)
    return replacement


def test_new_files_replace_the_old_ones_which_are_kept(store: Path, intact: Path) -> None:
    damaged = store / "queue" / "rare" / "0" / segment_name(0)
    size = damaged.stat().st_size
    damaged.write_bytes(bytes(size))
    old = replaced(store).replace_files(STAMP)
    assert files_of(store / "queue") == files_of(intact / "queue")
    assert (store / "checkpoint").read_bytes() == (intact / "checkpoint").read_bytes()
    assert (store / f"queue.old-{STAMP}" / "rare" / "0" / segment_name(0)).read_bytes() == bytes(size)
    assert {path.name for path in old} == {f"queue.old-{STAMP}", f"checkpoint.old-{STAMP}"}
    assert list(store.glob(".rebuil*")) == []


def test_one_topic_is_replaced_alone(store: Path, intact: Path) -> None:
    shutil.rmtree(store / "queue" / "topic-1")
    shutil.rmtree(store / "queue" / "rare")
    assert replaced(store, ("rare",)).replace_files(STAMP) == []
    assert files_of(store / "queue" / "rare") == files_of(intact / "queue" / "rare")
    assert not (store / "queue" / "topic-1").exists()


def test_queues_without_a_record_in_the_journal_keep_their_next_offset(store: Path) -> None:
    lonely = store / "queue" / "lonely" / "0"
    lonely.mkdir(parents=True)
    size = OPTIONS.queue_file_size_bytes
    (lonely / segment_name(2 * size)).write_bytes(serialize_entry(JmqQueueEntry(0, 100)).ljust(size, b"\0"))
    (store / "journal" / segment_name(0)).unlink()
    replaced(store).replace_files(STAMP)
    assert [path.name for path in lonely.iterdir()] == [segment_name(2 * size)]
    with JournalStore.open(store, OPTIONS, clock=Clock()) as opened:
        assert opened.recovery.records == 0  # the checkpoint counts this queue, too: nothing is built anew
        assert opened.max_offset("lonely", 0) == 2 * 16 + 1
        assert sum(map(len, all_messages(opened).values())) == len(list(journal_records(store)))


def test_a_damaged_record_is_skipped(store: Path) -> None:
    broken = list(journal_records(store))[100]
    path = store / "journal" / segment_name(FILE_BYTES * (broken.journal_offset // FILE_BYTES))
    data = bytearray(path.read_bytes())
    data[broken.journal_offset % FILE_BYTES + HEAD.offset_of("body_crc") + 7] ^= 1
    path.write_bytes(data)
    replaced(store).replace_files(STAMP)
    with JournalStore.open(store, OPTIONS, clock=Clock()) as opened:
        assert opened.recovery.records == 0
        assert sum(map(len, all_messages(opened).values())) == 599


def test_with_a_missing_journal_file_no_file_is_replaced(store: Path) -> None:
    (store / "journal" / segment_name(FILE_BYTES)).unlink()
    before = files_of(store / "queue")
    with pytest.raises(DisagreementError, match="nothing was replaced: log_missing_segment"):
        replaced(store)
    assert files_of(store / "queue") == before


def test_files_that_do_not_match_the_journal_replace_nothing(store: Path) -> None:
    (found,) = find_stores(str(store), "a", formats=all_formats().select_only(JMQ))
    replacement = Replacement(store, JMQ)
    rebuild_store(found, replacement.out, RequestedSettings())
    path = replacement.out / "queue" / "rare" / "0" / segment_name(0)
    path.write_bytes(bytes(path.stat().st_size))
    with pytest.raises(DisagreementError, match="nothing was replaced: queue_missing_entry at queue/rare/0"):
        replacement.verify_new_files(found, ())
