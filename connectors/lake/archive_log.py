"""How far the archive has come, read from the table that it writes.

Every archive commit to `messages` carries, as one atomic thing, the rows, a sequence number (Delta's `txnVersion`
under the application id below) and, in its metadata, the end offset of every store. There is no second place that
could disagree. The sequence number makes the commit a compare-and-set: a run writes number n + 1 where n is what it
read before it planned; of two runs that read the same n, Delta lets one commit and refuses the other.

The metadata also names the files that the run has written for the tables that follow `messages`, and what it counted:
a run that is stopped behind its commit is finished by the next one from the commit alone, even if the log is gone then.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import takewhile
from typing import Any

from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from commitlake.connectors.lake.data_files import DataFile
from commitlake.connectors.lake.delta import delta_table
from commitlake.connectors.lake.log_check import WAY_OUT, LogDamagedError
from commitlake.connectors.lake.log_history import read_history
from commitlake.connectors.lake.store_progress import LastRecord, PulledProgress

APPLICATION_ID = "commitlake.archive"
_KEY = "commitlake"


@dataclass(frozen=True, slots=True)
class StoreProgress:
    """How much of one store is in the lake: everything before `end`.

    Attributes:
        end: physical offset.
        last_record: the newest record before it.
        pulled: the queues' offsets, where the last run has pulled from the broker; None where it has read the files.
    """

    end: int
    last_record: LastRecord | None = None
    pulled: PulledProgress | None = None

    @property
    def topics(self) -> tuple[str, ...] | None:
        """The topics that the last run took; None for all that the store has."""
        return None if self.pulled is None else self.pulled.topics


@dataclass(frozen=True, slots=True)
class CommittedRange:
    """What one run took of one store."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class RunCounts:
    """What a run counted, for its row in `archive_runs`.

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
    """What the metadata of an archive commit says.

    Attributes:
        sequence: 1 for the first run.
        run_id: tells this run from any other that tried the same number.
        stores: every store that the lake knows, with its end offset after this commit.
        ranges: what this run took.
        counts: what it counted; None before it has read anything.
        files: written for the tables that follow, by the table's name.
        bodies: root of the packs, see `pipelines.archive.places`; None where an earlier version has not said it.
        masks: rules by which messages were masked, see `pipelines.masking.archiving`; None for none.
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
    def bytes(self) -> int:
        """Log bytes from the first to the last offset of each range."""
        return sum(part.end - part.start for part in self.ranges.values())

    def with_written(self, counts: RunCounts, files: Mapping[str, Iterable[DataFile]]) -> ArchiveCommit:
        """The same commit, once the run has written its files."""
        return replace(self, counts=counts, files={table: tuple(found) for table, found in files.items()})

    def after(self, last: ArchiveCommit) -> ArchiveCommit:
        """The same run's commit, but behind another one, which took nothing of the same stores."""
        own = {broker: self.stores[broker] for broker in self.ranges}
        return replace(self, sequence=last.sequence + 1, stores={**last.stores, **own})

    def to_metadata(self) -> str:
        """The text for Delta's `userMetadata`."""
        return json.dumps({_KEY: asdict(self)}, sort_keys=True)

    @classmethod
    def from_metadata(cls, text: str | None) -> ArchiveCommit | None:
        """The commit that such a text describes, or None where it is somebody else's."""
        try:
            value = json.loads(text or "")[_KEY]
        except (ValueError, KeyError, TypeError):
            return None
        counts = value.get("counts")
        files = value.get("files", {})
        return cls(
            value["sequence"],
            value["run_id"],
            {broker: _progress(entry) for broker, entry in value["stores"].items()},
            {broker: CommittedRange(**entry) for broker, entry in value["ranges"].items()},
            RunCounts(**counts) if counts else None,
            {table: tuple(DataFile(**entry) for entry in entries) for table, entries in files.items()},
            value.get("bodies"),
            value.get("masks"),
        )


def _progress(entry: dict[str, Any]) -> StoreProgress:
    last, pulled = entry["last_record"], entry.get("pulled")
    return StoreProgress(
        entry["end"], LastRecord(**last) if last else None, PulledProgress.from_dict(pulled) if pulled else None
    )


def read_last_commit(messages_uri: str) -> ArchiveCommit | None:
    """The newest archive commit of a `messages` table, or None where there is no table or none was made.

    Raises:
        LogDamagedError: where the table's log no longer tells, although it knows that there was one.
    """
    try:
        table = delta_table(messages_uri)
    except TableNotFoundError:
        return None
    sequence = table.transaction_version(APPLICATION_ID)
    if sequence is None:
        return None
    found = newest_commit(table)
    if found is not None and found[1].sequence == sequence:
        return found[1]
    raise LogDamagedError(
        f"the log of {messages_uri} no longer holds archive commit {sequence}: its end offsets are not known. {WAY_OUT}"
    )


def newest_commit(table: DeltaTable) -> tuple[int, ArchiveCommit] | None:
    """The newest archive commit that a version of `messages` holds, and the version that it made."""
    for note in read_history(table):
        commit = ArchiveCommit.from_metadata(note.metadata)
        if commit is not None:
            return note.version, commit
    return None


def commits_after(messages_uri: str, sequence: int) -> list[ArchiveCommit]:
    """The archive commits with larger numbers, oldest first, as far as the log goes back."""
    return list(takewhile(lambda commit: commit.sequence > sequence, read_commits(messages_uri)))[::-1]


def read_commits(messages_uri: str) -> Iterator[ArchiveCommit]:
    """The archive commits, newest first, as far as the log goes back."""
    for note in read_history(delta_table(messages_uri)):
        commit = ArchiveCommit.from_metadata(note.metadata)
        if commit is not None:
            yield commit
