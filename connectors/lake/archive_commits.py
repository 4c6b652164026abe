"""The progress of the archive, stored in the commits of the table `messages`.

Every archive commit to `messages` atomically contains the rows, a sequence number (Delta's `txnVersion` under the
application id below) and, in its metadata, the end offset of every store. No second place stores these, so none could
disagree. The sequence number makes the commit a compare-and-set: a run commits number n + 1, where n is the number that
it read before planning. If two runs read the same n, Delta accepts the commit of one and refuses the other.

The metadata also names the files that the run wrote for the tables that follow `messages`, and the run's counts. If a
run is killed after its commit, the next one completes it from the commit alone, even without the log.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import takewhile
from typing import Any

from deltalake import DeltaTable

from commitlake.connectors.lake.delta_log.check import WAY_OUT, LogDamagedError
from commitlake.connectors.lake.delta_log.entries import parse_json
from commitlake.connectors.lake.delta_log.history import CommitNote, read_history
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.rows.data_files import DataFile
from commitlake.connectors.lake.store_progress import LastRecord, PulledProgress

APPLICATION_ID = "commitlake.archive"
_KEY = "commitlake"


@dataclass(frozen=True, slots=True)
class StoreProgress:
    """The archive's progress in a store: the offset up to which its log is in the lake.

    Attributes:
        end: physical offset; everything before it is in the lake.
        last_record: the newest record before it.
        pulled: queue offsets, if the last run pulled from the broker; None if it read the files.
    """

    end: int
    last_record: LastRecord | None = None
    pulled: PulledProgress | None = None

    @property
    def pulled_topics(self) -> tuple[str, ...] | None:
        """Return the topics that the last run read; None for all topics of the store."""
        return None if self.pulled is None else self.pulled.topics


@dataclass(frozen=True, slots=True)
class CommittedRange:
    """The range of a store's log, in physical offsets, that one run archived."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class RunCounts:
    """The counts of messages, quarantined rows and gaps of an archive run, for its row in `archive_runs`.

    Attributes:
        started_at: UTC, ISO 8601.
        messages: rows added to `messages`.
        quarantined: rows for `quarantine`.
        gaps: rows for `gaps`.
    """

    started_at: str
    messages: int
    quarantined: int
    gaps: int


@dataclass(frozen=True, slots=True)
class ArchiveCommit:
    """Metadata of an archive run's Delta commit: the run's number, its ranges and counts, and each store's progress.

    Attributes:
        sequence: number of the run; 1 for the first run.
        run_id: id of the run, which distinguishes runs that tried the same number.
        stores: every store that the lake knows, with its end offset after this commit.
        ranges: ranges of the log that this run archived.
        counts: counts of the run; None before it has read anything.
        files: files written for the tables that follow `messages`, by the table's name.
        bodies: root of the packs, see `pipelines.archive.body_location`; None if an earlier version did not record it.
        masks: rules by which messages were masked, see `pipelines.masking.archive_masks`; None if there are none.
    """

    sequence: int
    run_id: str
    stores: Mapping[str, StoreProgress] = field(default_factory=dict)
    ranges: Mapping[str, CommittedRange] = field(default_factory=dict)
    counts: RunCounts | None = None
    files: Mapping[str, tuple[DataFile, ...]] = field(default_factory=dict)
    bodies: str | None = None
    masks: str | None = None

    @property
    def log_bytes(self) -> int:
        """Return the number of log bytes from the first to the last offset of each range."""
        return sum(part.end - part.start for part in self.ranges.values())

    def with_results(self, counts: RunCounts, files_by_table: Mapping[str, Iterable[DataFile]]) -> ArchiveCommit:
        """Return the same metadata with the counts and files that the run has written."""
        return replace(self, counts=counts, files={table: tuple(found) for table, found in files_by_table.items()})

    def rebase_onto(self, last_commit: ArchiveCommit) -> ArchiveCommit:
        """Return this metadata with the run number that follows the one of another run's commit.

        It takes over that run's progress of the stores that this run did not read.
        """
        # Stores that this run did not read keep the progress of the other run, which is newer than what this one had
        # read.
        own = {broker: self.stores[broker] for broker in self.ranges}
        return replace(self, sequence=last_commit.sequence + 1, stores={**last_commit.stores, **own})

    def to_metadata(self) -> str:
        """Return the commit's metadata as the text for Delta's `userMetadata`."""
        return json.dumps({_KEY: asdict(self)}, sort_keys=True)

    @classmethod
    def from_metadata(cls, text: str | None) -> ArchiveCommit | None:
        """Parse a commit's metadata; return None for the commit of another program."""
        try:
            return cls._parse_commit(parse_json(text or "")[_KEY])
        except (ValueError, KeyError, TypeError, AttributeError):
            return None

    @classmethod
    def _parse_commit(cls, value: dict[str, Any]) -> ArchiveCommit:
        counts = value.get("counts")
        files = value.get("files", {})
        return cls(
            value["sequence"],
            value["run_id"],
            {broker: _parse_progress(entry) for broker, entry in value["stores"].items()},
            {broker: CommittedRange(**entry) for broker, entry in value["ranges"].items()},
            RunCounts(**counts) if counts else None,
            {table: tuple(DataFile(**entry) for entry in entries) for table, entries in files.items()},
            value.get("bodies"),
            value.get("masks"),
        )


def _parse_progress(entry: dict[str, Any]) -> StoreProgress:
    last, pulled = entry["last_record"], entry.get("pulled")
    return StoreProgress(
        entry["end"], LastRecord(**last) if last else None, PulledProgress.from_dict(pulled) if pulled else None
    )


def read_last_commit(lake: Lake) -> ArchiveCommit | None:
    """Return the newest archive commit of a lake, or None if its table `messages` or a commit does not exist.

    Raises:
        LogDamagedError: if the table's log knows of a commit but no longer contains it.
    """
    table = lake.find("messages")
    if table is None:
        return None
    sequence = table.transaction_version(APPLICATION_ID)
    if sequence is None:
        return None
    found = newest_commit(lake, table)
    # The number is in Delta's own state, which a checkpoint keeps. The metadata is only in the entry, which may be
    # lost.
    if found is not None and found[1].sequence == sequence:
        return found[1]
    raise LogDamagedError(
        f"the log of {lake.uri('messages')} no longer holds archive commit {sequence}, so the offsets up to which each "
        f"broker is archived are lost. {WAY_OUT}"
    )


def newest_commit(lake: Lake, messages_table: DeltaTable) -> tuple[int, ArchiveCommit] | None:
    """Return the newest archive commit in the open table `messages_table`, and the table version that it created."""
    for note in read_history(lake.open_log("messages"), messages_table.version()):
        commit = ArchiveCommit.from_metadata(note.metadata)
        if commit is not None:
            return note.version, commit
    return None


def read_messages_history(lake: Lake) -> Iterator[CommitNote]:
    """Yield all commits of `messages`, newest first, as far as the table's log goes back.

    Raises:
        LakeError: if there is no such table.
    """
    newest = lake.table("messages").version()
    return read_history(lake.open_log("messages"), newest)


def commits_after(lake: Lake, sequence: int) -> list[ArchiveCommit]:
    """Return the archive commits after a sequence number, oldest first, as far as the table's log goes back."""
    # Newest first, so that reading ends at the first commit that is known.
    return list(takewhile(lambda commit: commit.sequence > sequence, read_commits(lake)))[::-1]


def read_commits(lake: Lake) -> Iterator[ArchiveCommit]:
    """Yield the archive commits of `messages`, newest first, as far as the table's log goes back."""
    for note in read_messages_history(lake):
        commit = ArchiveCommit.from_metadata(note.metadata)
        if commit is not None:
            yield commit
