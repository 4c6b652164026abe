"""How far the archive has come, read from the table that it writes.

Every archive commit to `messages` carries, as one atomic thing, the rows, a sequence number (Delta's `txnVersion`
under the application id below) and, in its metadata, the end offset of every store. There is no second place that
could disagree. The sequence number makes the commit a compare-and-set: a run writes number n + 1 where n is what it
read before it planned; of two runs that read the same n, Delta lets one commit and skips or refuses the other.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

APPLICATION_ID = "commitlake.archive"
_KEY = "commitlake"
_FIRST_LOOK = 20


@dataclass(frozen=True, slots=True)
class LastRecord:
    """The last archived record of a store: what must still stand there when the next run begins.

    Attributes:
        physical_offset: where it begins.
        size: its bytes.
        digest: hex of a hash of its bytes.
    """

    physical_offset: int
    size: int
    digest: str


@dataclass(frozen=True, slots=True)
class StoreProgress:
    """How much of one store is in the lake: everything before `end`."""

    end: int
    last_record: LastRecord | None = None


@dataclass(frozen=True, slots=True)
class CommittedRange:
    """What one run took of one store."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class ArchiveCommit:
    """What the metadata of an archive commit says.

    Attributes:
        sequence: 1 for the first run.
        run_id: tells this run from any other that tried the same number.
        stores: every store that the lake knows, with its end offset after this commit.
        ranges: what this run took.
    """

    sequence: int
    run_id: str
    stores: dict[str, StoreProgress] = field(default_factory=dict)
    ranges: dict[str, CommittedRange] = field(default_factory=dict)

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
        return cls(
            value["sequence"],
            value["run_id"],
            {broker: _progress(entry) for broker, entry in value["stores"].items()},
            {broker: CommittedRange(**entry) for broker, entry in value["ranges"].items()},
        )


def _progress(entry: dict[str, Any]) -> StoreProgress:
    last = entry["last_record"]
    return StoreProgress(entry["end"], LastRecord(**last) if last else None)


def read_last_commit(messages_uri: str, storage_options: dict[str, str] | None = None) -> ArchiveCommit | None:
    """The newest archive commit of a `messages` table, or None where there is no table or none was made.

    Raises:
        LookupError: where the table's log no longer tells, although it knows that there was one.
    """
    try:
        table = DeltaTable(messages_uri, storage_options=storage_options)
    except TableNotFoundError:
        return None
    sequence = table.transaction_version(APPLICATION_ID)
    if sequence is None:
        return None
    for limit in (_FIRST_LOOK, None):
        for entry in table.history(limit):
            commit = ArchiveCommit.from_metadata(entry.get("userMetadata"))
            if commit is not None:
                return commit
    raise LookupError(
        f"the log of {messages_uri} no longer holds archive commit {sequence}: its end offsets are not known"
    )


def commits_after(
    messages_uri: str, sequence: int, storage_options: dict[str, str] | None = None
) -> list[ArchiveCommit]:
    """The archive commits with larger numbers, oldest first, as far as the log goes back."""
    found = []
    for entry in DeltaTable(messages_uri, storage_options=storage_options).history():
        commit = ArchiveCommit.from_metadata(entry.get("userMetadata"))
        if commit is not None:
            if commit.sequence <= sequence:
                break
            found.append(commit)
    return found[::-1]


def last_finished_run(runs_uri: str) -> int:
    """The sequence number of the newest finished run, 0 before the first."""
    try:
        return DeltaTable(runs_uri).transaction_version(APPLICATION_ID) or 0
    except TableNotFoundError:
        return 0
