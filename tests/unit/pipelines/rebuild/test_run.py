"""Runs that are interrupted, that find other files in their folder, and that replace a store's own files."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from commitlake.connectors.formats.registry import COMMITLOGS
from commitlake.connectors.formats.rocketmq.format import FORMAT as ROCKETMQ
from commitlake.connectors.reading.stores import find_stores
from commitlake.pipelines.rebuild import store_replacement
from commitlake.pipelines.rebuild.errors import DisagreementError
from commitlake.pipelines.rebuild.part_files import PartReader, read_part_table
from commitlake.pipelines.rebuild.run import RebuildResult, rebuild_store
from commitlake.pipelines.rebuild.settings import RequestedSettings, find_settings
from commitlake.pipelines.rebuild.store_replacement import Replacement
from commitlake.schemas.errors import UsageError
from commitlake.schemas.layouts.segment_names import segment_name
from tests.support.indexed_stores import write_indexed_store

Rebuild = Callable[..., RebuildResult]
Compare = Callable[[Path, Path], None]
PARTITION = 5000
STAMP = "20260101T000000Z"


class StoppedError(Exception):
    """The exception that interrupts a run."""


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that nobody changes."""
    return write_indexed_store(tmp_path_factory.mktemp("indexed"))


@pytest.fixture
def store(intact: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(intact, tmp_path / "store"))


def stop_after(tasks: int) -> Callable[[int], None]:
    """Return a callback that interrupts a run after some ranges of the log."""
    done: list[int] = []

    def advance(more: int) -> None:
        done.append(more)
        if len(done) == tasks:
            raise StoppedError

    return advance


def interrupted(rebuild: Rebuild, store: Path, tasks: int = 4) -> Path:
    """Interrupt a run, and return its folder."""
    out = store.parent / "out"
    with pytest.raises(StoppedError):
        rebuild(store, out, RequestedSettings(), partition_bytes=PARTITION, advance=stop_after(tasks))
    return out


def test_an_interrupted_run_continues_where_it_stopped(store: Path, rebuild: Rebuild, same_files: Compare) -> None:
    out = interrupted(rebuild, store)
    parts = sorted((out / ".rebuild" / "parts").iterdir())
    assert len(parts) == 4
    # Only uncollected ranges are read: without the collected records, the log's head could not be rebuilt.
    head = store / "commitlog" / segment_name(0)
    whole = head.read_bytes()
    first = PartReader(parts[0]).table.totals
    head.write_bytes(bytes(first.last_offset) + whole[first.last_offset :])
    rebuilt = rebuild(store, out, RequestedSettings(), partition_bytes=PARTITION)
    assert rebuilt.totals.records == 600
    same_files(store, out)
    assert not (out / ".rebuild").exists()


def test_a_continued_run_keeps_its_end_while_the_log_grows(
    store: Path, intact: Path, rebuild: Rebuild, same_files: Compare
) -> None:
    newest = max((store / "commitlog").iterdir())
    whole = newest.read_bytes()
    newest.unlink()
    out = interrupted(rebuild, store, 2)
    newest.write_bytes(whole)
    rebuilt = rebuild(store, out, RequestedSettings(), partition_bytes=PARTITION)
    assert rebuilt.totals.records < 600
    assert rebuilt.totals.last_offset < int(newest.name)


def test_a_truncated_part_is_made_again(store: Path, rebuild: Rebuild, same_files: Compare) -> None:
    out = interrupted(rebuild, store)
    part = min((out / ".rebuild" / "parts").iterdir())
    part.write_bytes(part.read_bytes()[:-1])
    assert read_part_table(part) is None
    rebuild(store, out, RequestedSettings(), partition_bytes=PARTITION)
    same_files(store, out)


def test_a_part_that_was_changed_is_not_used(store: Path, rebuild: Rebuild) -> None:
    out = interrupted(rebuild, store)
    part = min((out / ".rebuild" / "parts").iterdir())
    data = bytearray(part.read_bytes())
    data[3] ^= 1
    part.write_bytes(data)
    with pytest.raises(UsageError, match="expected a complete part, found it truncated or changed"):
        rebuild(store, out, RequestedSettings(), partition_bytes=PARTITION)


@pytest.mark.parametrize("size", range(0, 40, 7))
def test_a_truncated_part_is_not_read(store: Path, rebuild: Rebuild, tmp_path: Path, size: int) -> None:
    out = interrupted(rebuild, store)
    part = min((out / ".rebuild" / "parts").iterdir())
    cut = tmp_path / "cut"
    cut.write_bytes(part.read_bytes()[-size:] if size else b"")
    assert read_part_table(cut) is None


def test_an_unfinished_run_with_other_options_is_refused(store: Path, rebuild: Rebuild) -> None:
    out = interrupted(rebuild, store)
    with pytest.raises(UsageError, match="contains an unfinished rebuild of another store, or one with other options"):
        rebuild(store, out, RequestedSettings(index_tags=False), partition_bytes=PARTITION)
    (out / ".rebuild" / "plan.json").write_text("[")
    with pytest.raises(UsageError, match="contains an unfinished rebuild"):
        rebuild(store, out, RequestedSettings(), partition_bytes=PARTITION)


@pytest.mark.parametrize("name", ["consumequeue", "index", "checkpoint"])
def test_existing_files_are_not_overwritten(store: Path, rebuild: Rebuild, tmp_path: Path, name: str) -> None:
    (tmp_path / "out" / name).mkdir(parents=True)
    with pytest.raises(UsageError, match=f"contains {name}, and nothing is overwritten"):
        rebuild(store, tmp_path / "out")
    with pytest.raises(UsageError, match="contains consumequeue"):
        rebuild(store, store)


def test_settings_are_those_of_the_remaining_files(intact: Path, tmp_path: Path) -> None:
    found = find_settings(intact, RequestedSettings(), ROCKETMQ)
    assert (found.queue_file_size, found.index_slots, found.index_entries) == (320, 50, 200)
    nothing = find_settings(tmp_path, RequestedSettings(index_slots=7), ROCKETMQ)
    assert (nothing.queue_file_size, nothing.batch_file_size) == (6_000_000, 13_800_000)
    assert (nothing.index_slots, nothing.index_entries, nothing.index_tags) == (7, 20_000_000, True)


def test_settings_that_no_broker_accepts_are_refused(intact: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="expected a multiple of 20"):
        find_settings(intact, RequestedSettings(queue_file_size=30), ROCKETMQ)
    with pytest.raises(UsageError, match="expected at least 1 slot and 2 entries"):
        find_settings(intact, RequestedSettings(index_entries=1), ROCKETMQ)
    (tmp_path / "consumequeue").mkdir()
    (tmp_path / "consumequeue" / "CURRENT").touch()
    with pytest.raises(UsageError, match="found queues in RocksDB"):
        find_settings(tmp_path, RequestedSettings(), ROCKETMQ)


def replaced(root: Path, topics: tuple[str, ...] | None = None) -> Replacement:
    """Return the verified replacement of a store's files."""
    (store,) = find_stores(str(root), "a", formats=COMMITLOGS)
    replacement = Replacement(root, ROCKETMQ)
    rebuilt = rebuild_store(store, replacement.out, RequestedSettings(topics=topics))
    replacement.copy_queues_without_records(rebuilt.settings)
    replacement.verify_new_files(store, rebuilt.shifted_queues, topics)
    return replacement


def test_new_files_replace_the_old_ones_which_are_kept(store: Path, intact: Path, same_files: Compare) -> None:
    damaged = store / "consumequeue" / "rare" / "0" / segment_name(0)
    damaged.write_bytes(bytes(320))
    old = replaced(store).replace_files(STAMP)
    same_files(intact, store)
    assert (store / f"consumequeue.old-{STAMP}" / "rare" / "0" / segment_name(0)).read_bytes() == bytes(320)
    assert {path.name for path in old} >= {f"consumequeue.old-{STAMP}", f"index.old-{STAMP}", f"checkpoint.old-{STAMP}"}
    assert list(store.glob(".rebuil*")) == []


def test_a_replacement_that_was_interrupted_is_finished(
    store: Path, intact: Path, same_files: Compare, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(_: Path) -> None:
        raise StoppedError

    replacement = replaced(store)
    monkeypatch.setattr(store_replacement, "sync_folder", stop)
    with pytest.raises(StoppedError):
        replacement.replace_files(STAMP)
    monkeypatch.undo()
    again = Replacement(store, ROCKETMQ)
    assert again.has_started
    assert store / f"consumequeue.old-{STAMP}" not in again.replace_files("another stamp")
    same_files(intact, store)
    assert (store / f"consumequeue.old-{STAMP}").is_dir()
    assert list(store.glob("*.old-another*")) == []


def test_two_replacements_in_one_second_keep_separate_old_files(store: Path, intact: Path) -> None:
    for _ in range(3):
        replaced(store).replace_files(STAMP)
    for stamp in (STAMP, f"{STAMP}-2", f"{STAMP}-3"):
        path = Path("rare") / "0" / segment_name(0)
        old = store / f"consumequeue.old-{stamp}" / path
        assert old.read_bytes() == (intact / "consumequeue" / path).read_bytes()


def test_one_topic_is_replaced_alone(store: Path, intact: Path, same_files: Compare) -> None:
    shutil.rmtree(store / "consumequeue" / "topic-1")
    damaged = store / "consumequeue" / "rare" / "0" / segment_name(0)
    damaged.write_bytes(bytes(320))
    old = replaced(store, ("rare",)).replace_files(STAMP)
    assert old == [store / f"consumequeue.old-{STAMP}" / "rare"]
    assert damaged.read_bytes() == (intact / damaged.relative_to(store)).read_bytes()
    assert not (store / "consumequeue" / "topic-1").exists()


def test_queues_without_a_record_in_the_log_keep_their_next_offset(store: Path) -> None:
    lonely = store / "consumequeue" / "lonely" / "0"
    lonely.mkdir(parents=True)
    (lonely / segment_name(3200)).write_bytes(bytes(320))
    (lonely / ".swp").write_bytes(b"no file of a queue's")
    replaced(store).replace_files(STAMP)
    assert [path.name for path in lonely.iterdir()] == [segment_name(3200)]


def test_files_that_do_not_match_the_log_replace_nothing(store: Path) -> None:
    (found,) = find_stores(str(store), "a", formats=COMMITLOGS)
    replacement = Replacement(store, ROCKETMQ)
    rebuild_store(found, replacement.out, RequestedSettings())
    (replacement.out / "consumequeue" / "rare" / "0" / segment_name(0)).write_bytes(bytes(320))
    with pytest.raises(DisagreementError, match="nothing was replaced: queue_missing_entry at consumequeue/rare/0"):
        replacement.verify_new_files(found, ())


def test_a_damaged_log_replaces_nothing(store: Path) -> None:
    path = store / "commitlog" / segment_name(0)
    data = bytearray(path.read_bytes())
    data[95] ^= 1
    path.write_bytes(data)
    with pytest.raises(DisagreementError, match="nothing was replaced: log_bad_"):
        replaced(store)
