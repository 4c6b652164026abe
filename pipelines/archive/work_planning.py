"""Finds the work of an archive run before Spark starts: stores, ranges, and unfinished commits of earlier runs."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from commitlake.connectors.formats.registry import all_formats
from commitlake.connectors.lake.archive_commits import ArchiveCommit, CommittedRange, StoreProgress, read_last_commit
from commitlake.connectors.lake.archive_run_completion import unfinished_commits
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.manifest import ManifestRow
from commitlake.connectors.lake.packs.names import new_token, pack_name
from commitlake.connectors.lake.store_progress import LastRecord
from commitlake.connectors.log_format.format import Formats
from commitlake.connectors.reading.errors import StoreError
from commitlake.connectors.reading.files.segment_files import OpenSegment
from commitlake.connectors.reading.partition_sizes import choose_part_size
from commitlake.connectors.reading.snapshots import (
    LogTailKind,
    Snapshot,
    StoreRange,
    add_last_record,
    plan_splits,
    take_snapshot,
)
from commitlake.connectors.reading.store_identity_check import check_continuity, record_digest
from commitlake.connectors.reading.stores import Store, find_stores, for_each_store
from commitlake.connectors.sources.stream_offsets import StorePosition
from commitlake.connectors.sources.stream_size_shares import end_of_share, fair_shares
from commitlake.pipelines.archive.body_location import check_outside_stores
from commitlake.pipelines.archive.task_input import Part
from commitlake.schemas.layouts.rocketmq.scan import DEFAULT_MAX_RECORD_BYTES


@dataclass(frozen=True, slots=True)
class TasksResult:
    """Commit and notes that are made from the results of a run's finished tasks.

    Attributes:
        commit: commit of the run, with its progress.
        manifest: rows of files that were not written by tasks.
        notes: sentences for the summary.
    """

    commit: ArchiveCommit
    manifest: Sequence[ManifestRow] = ()
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class ArchiveWork:
    """Work of one archive run: the new range of each store, and the commit that will record it.

    Attributes:
        stores: all stores of the path.
        snapshot: new range of each store.
        commit: the commit that will take it.
        last: the newest commit in the lake.
        unfinished: earlier commits that other tables do not follow yet, because their run was killed.
    """

    stores: Sequence[Store]
    snapshot: Snapshot
    commit: ArchiveCommit
    last: ArchiveCommit
    unfinished: Sequence[ArchiveCommit]

    @property
    def previous_progress(self) -> Mapping[str, StoreProgress]:
        """Physical offset up to which each store was archived before the run, with its last record."""
        return self.last.stores

    @property
    def has_new_data(self) -> bool:
        """True if a store has messages that are not archived yet."""
        return bool(self.snapshot.size)

    @property
    def newer_data_notes(self) -> list[str]:
        """Sentences on stores with newer messages outside the logs to read, such as in another folder."""
        return [sentence for store_range in self.snapshot.ranges.values() for sentence in store_range.newer]

    @property
    def has_nothing_to_do(self) -> bool:
        """True if no store has new messages and no earlier run must be finished."""
        return not self.has_new_data and not self.unfinished

    def parts(self, pack_bytes: int, cores: int) -> Sequence[Part]:
        """Divide the ranges of all stores into one part for each task, in order; the task divides it into body packs.

        Args:
            pack_bytes: size of the log whose bodies go into one pack.
            cores: number of tasks that run at a time.
        """
        return self.splits(
            choose_part_size(self.snapshot.size, cores, multiple_of=pack_bytes, min_size=pack_bytes), cores
        )

    def splits(self, max_partition_bytes: int, workers: int = 1) -> Sequence[Part]:  # noqa: ARG002 (of other work)
        """Divide the ranges of all stores into parts of at most `max_partition_bytes` bytes, in order."""
        new = [store for store in self.stores if self.snapshot.ranges[store.broker].size]
        planned = for_each_store(
            lambda store: plan_splits(store, self.snapshot.ranges[store.broker], max_partition_bytes), new
        )
        return [split for splits in planned for split in splits]

    def first_commit_work(self, max_bytes: int) -> ArchiveWork:
        """Return the first part of this work, with about `max_bytes` bytes of log; all of it if it is smaller.

        Each store has the same share, so that the messages of one time are in the same or neighbouring commits.

        Args:
            max_bytes: size of the log for one commit; a store's last record may exceed its share.
        """
        new = [store for store in self.stores if self.snapshot.ranges[store.broker].size]
        if self.snapshot.size <= max_bytes or not new:
            return self
        shares = fair_shares({store.broker: self.snapshot.ranges[store.broker].size for store in new}, max_bytes)

        def truncate_store(store: Store) -> tuple[StoreRange, StoreProgress]:
            found = _truncate_range(store, self.snapshot.ranges[store.broker], shares[store.broker])
            return found, _progress_after_range(store, found, self.last.stores.get(store.broker))

        taken = dict(zip([store.broker for store in new], for_each_store(truncate_store, new), strict=True))
        ranges = {broker: found for broker, (found, _) in taken.items()}
        commit = replace(
            self.commit,
            stores={**self.last.stores, **{broker: progress for broker, (_, progress) in taken.items()}},
            ranges={broker: CommittedRange(found.start, found.end) for broker, found in ranges.items()},
        )
        return replace(self, snapshot=Snapshot({**self.snapshot.ranges, **ranges}), commit=commit)

    def build_result(self, manifest: Sequence[ManifestRow], lake: Lake, parser_version: str) -> TasksResult:  # noqa: ARG002
        """Return the commit and notes of a run whose tasks have finished.

        Args:
            manifest: rows of all tasks.
            parser_version: written to rows on ranges that could not be read.
        """
        return TasksResult(self.commit)


def find_archive_work(
    path: str,
    broker: str | None,
    lake: Lake,
    end_snapshot: Snapshot | None = None,
    formats: Formats | None = None,
    on_new_data: Callable[[], object] | None = None,
) -> ArchiveWork:
    """Find the ranges of the stores' logs that the lake lacks, and plan their archiving.

    Args:
        path: stores, as for `find_stores`.
        broker: name of the store, if the path does not have it.
        end_snapshot: ends of the stores to archive to, as a stream offers them; None for the current ends. The lake
            determines the starts, so a range that is offered again adds nothing. The stream has already checked that
            the lake can be written.
        formats: formats of stores to take from the path; None for all.
        on_new_data: called as soon as a store seems to have something new, to start slow preparations early.

    Raises:
        CommitLogError: if a store cannot be read, or is not the one that was archived.
        LakeError: if the folder is no lake, or its tables are damaged.
    """
    # Once is enough, before the run writes anything. A later plan of the same run repeats only the look at the stores.
    if end_snapshot is None:
        lake.check_writable()
    stores = find_stores(path, broker, formats=all_formats() if formats is None else formats)
    for store in stores:
        _check_store_name(store)
    check_outside_stores(stores, lake.root, "--lake")
    last = read_last_commit(lake) or ArchiveCommit(0, "")
    starts = {name: progress.end for name, progress in last.stores.items()}
    # Called as soon as it is certain that there is work, so that the caller can start an engine while the ends of the
    # logs are searched.
    if on_new_data is not None and any(
        for_each_store(lambda store: _has_data_after(store, starts.get(store.broker)), stores)
    ):
        on_new_data()

    def examine_store(store: Store) -> tuple[StoreRange, StoreProgress | None]:
        _check_store(store, last)
        start = starts.get(store.broker)
        if end_snapshot is None:
            found = take_snapshot([store], starts).ranges[store.broker]
        else:
            found = _unarchived_range(store, start, end_snapshot.ranges.get(store.broker))
        return found, _progress_after_range(store, found, last.stores.get(store.broker)) if found.size else None

    examined = dict(zip([store.broker for store in stores], for_each_store(examine_store, stores), strict=True))
    snapshot = Snapshot({name: store_range for name, (store_range, _) in examined.items()})
    taken = {name: progress for name, (_, progress) in examined.items() if progress is not None}
    ranges = {name: CommittedRange(snapshot.ranges[name].start, snapshot.ranges[name].end) for name in taken}
    commit = ArchiveCommit(last.sequence + 1, uuid.uuid4().hex, {**last.stores, **taken}, ranges)
    return ArchiveWork(stores, snapshot, commit, last, unfinished_commits(lake, last.sequence))


def _has_data_after(store: Store, end_offset: int | None) -> bool:
    """Return whether a log has data at or after `end_offset`; True if it is None."""
    newest = store.segments[-1]
    if end_offset is None or end_offset < newest.base_offset:
        return True
    if end_offset >= newest.base_offset + newest.file_size:
        return False
    # The end of the last record is known. If a record was written after it, its head is not all zeros.
    head = np.zeros(store.format.record_rules.head_bytes, np.uint8)
    with suppress(FileNotFoundError), OpenSegment(newest.path) as file:
        file.read_into(head, end_offset - newest.base_offset)
    return bool(head.any())


def _check_store(store: Store, last_commit: ArchiveCommit) -> None:
    progress = last_commit.stores.get(store.broker)
    if progress is not None and progress.pulled_topics is not None:
        raise StoreError(
            f"{store.broker} was pulled from its broker, and the last run took only the topics "
            f"{', '.join(progress.pulled_topics)}: its files would be read from physical offset {progress.end} on, and "
            "earlier messages of other topics would never be archived. Run 'archive --from-broker' without --topic "
            "once, or archive the files into another lake"
        )
    if progress is not None:
        check_is_same_store(store, progress)


def check_is_same_store(store: Store, progress: StoreProgress) -> None:
    """Raise an error if a store is not the one that was archived under its name.

    Raises:
        StoreReplacedError: naming what differs.
    """
    if progress.last_record is not None:
        record = progress.last_record
        check_continuity(store, progress.end, record.physical_offset, record.size, record.digest)


def _unarchived_range(store: Store, start: int | None, offered_range: StoreRange | None) -> StoreRange:
    """Return the part of an offered range of a store's log that is not archived yet."""
    oldest = store.segments[0].base_offset
    first = start if start is not None else min(oldest, offered_range.start if offered_range else oldest)
    if offered_range is None or offered_range.end <= first:
        return StoreRange(first, first)
    is_new = offered_range.last_record is not None and offered_range.last_record >= first
    return StoreRange(
        first, offered_range.end, LogTailKind.CLOSED, last_record=offered_range.last_record if is_new else None
    )


def _truncate_range(store: Store, store_range: StoreRange, size: int) -> StoreRange:
    """Return the first part of a range, about `size` bytes long, which ends at the end of a record."""
    start, end = StorePosition(store_range.start), StorePosition(store_range.end)
    cut = end_of_share(store, start, end, size, DEFAULT_MAX_RECORD_BYTES)
    if cut is end:
        return store_range
    # The record before the cut may belong to the part that is archived already.
    is_inside = cut.record is not None and store_range.start <= cut.record.offset < cut.offset
    last_record = cut.record.offset if is_inside and cut.record is not None else None
    return StoreRange(store_range.start, cut.offset, LogTailKind.CLOSED, last_record=last_record)


def _check_store_name(store: Store) -> None:
    try:
        pack_name(None, store.broker, 0, 0, new_token())
    except ValueError as error:
        raise StoreError(f"{store.root}: {error}; '--broker NAME' gives the store another name") from None


def _progress_after_range(
    store: Store, store_range: StoreRange, previous_progress: StoreProgress | None
) -> StoreProgress:
    """Return how far a store is archived after a range, with its last valid record up to there."""
    found = add_last_record(store, store_range)
    is_taken = found.last_record is not None and found.last_record < store_range.end
    digest = record_digest(store, found.last_record) if is_taken and found.last_record is not None else None
    # Nothing to compare with in this range, so the next run compares with the earlier record.
    if digest is None or found.last_record is None:
        return StoreProgress(store_range.end, previous_progress.last_record if previous_progress else None)
    return StoreProgress(store_range.end, LastRecord(found.last_record, *digest))
