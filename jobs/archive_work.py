"""What an archive run has to do, found out before Spark starts: stores, ranges, and what was left undone."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from connectors.commitlog.continuity import check_continuity, record_digest
from connectors.commitlog.plan import Snapshot, StoreRange, take_snapshot
from connectors.commitlog.stores import Store, find_stores
from connectors.lake.archive_log import (
    ArchiveCommit,
    CommittedRange,
    LastRecord,
    StoreProgress,
    commits_after,
    last_finished_run,
    read_last_commit,
)
from connectors.lake.paths import LakePaths


@dataclass(frozen=True, slots=True)
class ArchiveWork:
    """One run's work.

    Attributes:
        stores: all that the path names.
        snapshot: what is new in each of them.
        commit: the commit that is going to take it.
        unfinished: earlier commits whose quarantine was not written, because their run was stopped.
    """

    stores: Sequence[Store]
    snapshot: Snapshot
    commit: ArchiveCommit
    unfinished: Sequence[ArchiveCommit]

    @property
    def is_nothing(self) -> bool:
        """Whether there is nothing to do."""
        return not self.snapshot.size and not self.unfinished


def find_work(path: str, broker: str | None, lake: LakePaths) -> ArchiveWork:
    """See how far the lake has come, and what the stores have beyond that.

    Raises:
        CommitLogError: for a store that cannot be read, or is another than the one that was archived.
        LakeError: for a folder that is no lake.
    """
    lake.check_writable()
    stores = find_stores(path, broker)
    last = read_last_commit(lake.messages) or ArchiveCommit(0, "")
    for store in stores:
        _check_store(store, last)
    snapshot = take_snapshot(stores, {name: progress.end for name, progress in last.stores.items()})
    finished = last_finished_run(lake.archive_runs)
    known = {store.broker for store in stores}
    # A run over other stores is finished when they are archived again.
    unfinished = [
        commit
        for commit in (commits_after(lake.messages, finished) if last.sequence > finished else ())
        if commit.ranges.keys() <= known
    ]
    return ArchiveWork(stores, snapshot, _next_commit(last, stores, snapshot), unfinished)


def _check_store(store: Store, last: ArchiveCommit) -> None:
    progress = last.stores.get(store.broker)
    if progress is not None and progress.last_record is not None:
        record = progress.last_record
        check_continuity(store, progress.end, record.physical_offset, record.size, record.digest)


def _next_commit(last: ArchiveCommit, stores: Sequence[Store], snapshot: Snapshot) -> ArchiveCommit:
    progress, ranges = dict(last.stores), {}
    for store in stores:
        store_range = snapshot.ranges[store.broker]
        if store_range.size:
            progress[store.broker] = _progress_after(store, store_range)
            ranges[store.broker] = CommittedRange(store_range.start, store_range.end)
    return ArchiveCommit(last.sequence + 1, uuid.uuid4().hex, progress, ranges)


def _progress_after(store: Store, store_range: StoreRange) -> StoreProgress:
    found = None if store_range.last_record is None else record_digest(store, store_range.last_record)
    if found is None or store_range.last_record is None:
        return StoreProgress(store_range.end)
    size, digest = found
    return StoreProgress(store_range.end, LastRecord(store_range.last_record, size, digest))


def snapshot_of(commit: ArchiveCommit) -> Snapshot:
    """What a commit took, to be read again."""
    return Snapshot({broker: StoreRange(part.start, part.end) for broker, part in commit.ranges.items()})
