"""What a run finds to do: ranges, and by what the next run will know the store again."""

from __future__ import annotations

from pathlib import Path

import pytest

from commitlake.connectors.formats.engine.errors import StoreError
from commitlake.connectors.lake.archive_log import ArchiveCommit, StoreProgress
from commitlake.connectors.lake.committer import commit_messages, open_for_append
from commitlake.connectors.lake.paths import LakePaths
from commitlake.connectors.lake.store_progress import LastRecord
from commitlake.pipelines.archive.work import find_work
from tests.support.logs import closed_segment, messages, open_segment, records, write_store

SIZE = 1 << 16


def progress_of(store: Path, lake: Path) -> StoreProgress:
    """How far the next commit says that it gets."""
    work = find_work(str(store), "a", LakePaths(str(lake)))
    return work.commit.stores["a"]


def last_start(sent: int) -> int:
    """Where the last of so many messages begins."""
    return sum(len(record) for record in records(messages(sent))[:-1])


def test_the_last_record_is_remembered(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", [(0, open_segment(messages(20), SIZE))])
    found = progress_of(store, tmp_path / "lake").last_record
    assert found is not None
    assert found.physical_offset == last_start(20)


def test_it_is_that_of_the_segment_before_where_the_newest_has_none_yet(tmp_path: Path) -> None:
    torn = open_segment(messages(1, seed=3), SIZE, SIZE)[:60].ljust(SIZE, b"\0")
    store = write_store(tmp_path / "store", [(0, closed_segment(messages(20), SIZE)), (SIZE, torn)])
    found = progress_of(store, tmp_path / "lake")
    assert found.end == SIZE
    assert found.last_record is not None
    assert found.last_record.physical_offset == last_start(20)


def test_a_last_record_that_is_known_is_not_forgotten_over_damage(tmp_path: Path) -> None:
    lake = LakePaths(str(tmp_path / "lake"))
    sent = messages(20)
    store = write_store(tmp_path / "store", [(0, open_segment(sent[:5], SIZE))])
    first = find_work(str(store), "a", lake).commit
    commit_messages(open_for_append(lake.messages), [], first)
    end = first.stores["a"].end
    damage = b"\xaa" * (SIZE - end)
    write_store(
        tmp_path / "store",
        [(0, open_segment(sent[:5], SIZE)[:end] + damage), (SIZE, b"\xaa" * 100 + bytes(SIZE - 100))],
    )
    found = find_work(str(store), "a", lake).commit.stores["a"]
    assert found.end >= end
    assert found.last_record == first.stores["a"].last_record


def test_a_name_that_no_folder_can_have_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", [(0, open_segment(messages(2), SIZE))])
    with pytest.raises(StoreError, match="--broker NAME"):
        find_work(str(store), "名" * 40, LakePaths(str(tmp_path / "lake")))


def test_a_commit_behind_another_keeps_what_that_one_says_of_other_stores() -> None:
    mine = ArchiveCommit(4, "mine", {"a": StoreProgress(10), "b": StoreProgress(7)}, {"a": None})  # type: ignore[dict-item]
    last = ArchiveCommit(4, "other", {"a": StoreProgress(5), "b": StoreProgress(9, LastRecord(8, 1, "x"))})
    after = mine.after(last)
    assert (after.sequence, after.run_id) == (5, "mine")
    assert after.stores == {"a": StoreProgress(10), "b": StoreProgress(9, LastRecord(8, 1, "x"))}


def test_a_lake_may_be_a_file_uri(tmp_path: Path) -> None:
    assert LakePaths((tmp_path / "a lake").as_uri()).messages == str(tmp_path / "a lake" / "messages")


def test_something_new_is_told_before_all_of_it_is_looked_at(tmp_path: Path) -> None:
    lake, root = LakePaths(str(tmp_path / "lake")), tmp_path / "store"
    told: list[str] = []

    def is_told(*segments: bytes) -> bool:
        """Whether a run over these segments is told of something new; the lake then has all of them."""
        told.clear()
        write_store(root, [(number * SIZE, data) for number, data in enumerate(segments)])
        work = find_work(str(root), "a", lake, on_new=lambda: told.append("new"))
        assert bool(told) == bool(work.snapshot.size)
        if work.snapshot.size:
            commit_messages(open_for_append(lake.messages), [], work.commit)
        return bool(told)

    begun, grown, closed = open_segment(messages(5), SIZE), open_segment(messages(9), SIZE), messages(20)
    assert is_told(begun)
    assert not is_told(begun)
    assert is_told(grown)
    assert not is_told(grown)
    whole = closed_segment(closed, SIZE)
    assert is_told(whole)
    assert not is_told(whole)
    assert not is_told(whole, bytes(SIZE))
    assert is_told(whole, open_segment(messages(2), SIZE, SIZE))
