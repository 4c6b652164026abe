"""Work of a run: ranges, and the record by which the next run recognises the store."""

from __future__ import annotations

from pathlib import Path

import pytest

from commitlake.connectors.lake.archive_commits import ArchiveCommit, StoreProgress
from commitlake.connectors.lake.committer import commit_messages, open_messages_for_append
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.store_progress import LastRecord
from commitlake.connectors.reading.errors import StoreError
from commitlake.pipelines.archive.work_planning import find_archive_work
from tests.support.logs import closed_segment, messages, open_segment, records, write_store

SIZE = 1 << 16


def progress_of(store: Path, lake: Path) -> StoreProgress:
    """Return the progress of the store in the next commit."""
    work = find_archive_work(str(store), "a", Lake(str(lake)))
    return work.commit.stores["a"]


def last_start(sent: int) -> int:
    """Return the start of the last of so many messages."""
    return sum(len(record) for record in records(messages(sent))[:-1])


def test_the_last_record_is_recorded(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", [(0, open_segment(messages(20), SIZE))])
    found = progress_of(store, tmp_path / "lake").last_record
    assert found is not None
    assert found.physical_offset == last_start(20)


def test_the_last_record_may_be_in_the_segment_before_the_newest(tmp_path: Path) -> None:
    torn = open_segment(messages(1, seed=3), SIZE, SIZE)[:60].ljust(SIZE, b"\0")
    store = write_store(tmp_path / "store", [(0, closed_segment(messages(20), SIZE)), (SIZE, torn)])
    found = progress_of(store, tmp_path / "lake")
    assert found.end == SIZE
    assert found.last_record is not None
    assert found.last_record.physical_offset == last_start(20)


def test_a_known_last_record_is_kept_if_the_rest_is_damaged(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"))
    sent = messages(20)
    store = write_store(tmp_path / "store", [(0, open_segment(sent[:5], SIZE))])
    first = find_archive_work(str(store), "a", lake).commit
    commit_messages(open_messages_for_append(lake), [], first)
    end = first.stores["a"].end
    damage = b"\xaa" * (SIZE - end)
    write_store(
        tmp_path / "store",
        [(0, open_segment(sent[:5], SIZE)[:end] + damage), (SIZE, b"\xaa" * 100 + bytes(SIZE - 100))],
    )
    found = find_archive_work(str(store), "a", lake).commit.stores["a"]
    assert found.end >= end
    assert found.last_record == first.stores["a"].last_record


def test_a_broker_name_that_no_folder_can_have_is_refused_at_once(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", [(0, open_segment(messages(2), SIZE))])
    with pytest.raises(StoreError, match="--broker NAME"):
        find_archive_work(str(store), "名" * 40, Lake(str(tmp_path / "lake")))


def test_a_commit_after_another_keeps_its_progress_of_other_stores() -> None:
    mine = ArchiveCommit(4, "mine", {"a": StoreProgress(10), "b": StoreProgress(7)}, {"a": None})  # type: ignore[dict-item]
    last = ArchiveCommit(4, "other", {"a": StoreProgress(5), "b": StoreProgress(9, LastRecord(8, 1, "x"))})
    after = mine.rebase_onto(last)
    assert (after.sequence, after.run_id) == (5, "mine")
    assert after.stores == {"a": StoreProgress(10), "b": StoreProgress(9, LastRecord(8, 1, "x"))}


def test_a_lake_may_be_a_file_uri(tmp_path: Path) -> None:
    assert Lake((tmp_path / "a lake").as_uri()).uri("messages") == str(tmp_path / "a lake" / "messages")


def test_new_records_are_reported_before_all_of_them_are_read(tmp_path: Path) -> None:
    lake, root = Lake(str(tmp_path / "lake")), tmp_path / "store"
    told: list[str] = []

    def reports_new(*segments: bytes) -> bool:
        """Return whether a run over these segments reports new records; the lake then has all of them."""
        told.clear()
        write_store(root, [(number * SIZE, data) for number, data in enumerate(segments)])
        work = find_archive_work(str(root), "a", lake, on_new_data=lambda: told.append("new"))
        assert bool(told) == bool(work.snapshot.size)
        if work.snapshot.size:
            commit_messages(open_messages_for_append(lake), [], work.commit)
        return bool(told)

    begun, grown, closed = open_segment(messages(5), SIZE), open_segment(messages(9), SIZE), messages(20)
    assert reports_new(begun)
    assert not reports_new(begun)
    assert reports_new(grown)
    assert not reports_new(grown)
    whole = closed_segment(closed, SIZE)
    assert reports_new(whole)
    assert not reports_new(whole)
    assert not reports_new(whole, bytes(SIZE))
    assert reports_new(whole, open_segment(messages(2), SIZE, SIZE))
