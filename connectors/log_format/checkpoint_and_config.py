"""Small files beside a log, such as checkpoint and group offsets, in a form common to all formats."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from commitlake.schemas.safe_store_files import read_file

CHECKPOINT = "checkpoint"


class Problems(Protocol):
    """Collector of the problems found in a store, each with its file and position."""

    @property
    def codes(self) -> Collection[str]:
        """Codes of the problems found so far."""

    def note(
        self,
        code: str,
        file: str,
        position: int | None = None,
        physical_offset: int | None = None,
        *,
        found: str,
        expected: str,
    ) -> None:
        """Add a problem that was found at a position of a file, or at a physical offset.

        Args:
            code: the class of the problem, see `pipelines.verify.classes`.
            file: the file, relative to the store's folder.
            position: position in that file, bytes.
            physical_offset: position in the log that the problem is about.
            found: the actual content, in words.
            expected: the expected content, in words.
        """


class CheckpointClaim(NamedTuple):
    """An offset or a store time up to which a checkpoint confirms that the log is on disk.

    Attributes:
        name: name of the field.
        value: ms of a record's store time, or a physical offset.
        is_time: whether the value is a time.
    """

    name: str
    value: int
    is_time: bool


class StoredOffset(NamedTuple):
    """Consumer group's next offset in a queue, as stored."""

    topic: str
    group: str
    queue_id: int
    offset: int


class StoredSubscription(NamedTuple):
    """A group's subscription to a topic, from a broker's files.

    Attributes:
        subscribed_at_ms: time of the subscription.
    """

    topic: str
    group: str
    expression_type: str
    expression: str
    subscribed_at_ms: int


class TimerProgress(NamedTuple):
    """Progress of a broker's timers: the next message to put on the timer wheel, and the delivery time reached.

    Attributes:
        topic: internal topic of the waiting messages.
        next_offset: queue offset of the next message to put on the timer wheel.
        delivered_until_ms: time; timers that are due before it are delivered.
    """

    topic: str
    next_offset: int
    delivered_until_ms: int


@dataclass(frozen=True)
class SmallFiles:
    """Content of a store's small files (checkpoint, offsets and subscriptions), which is read before the log.

    Attributes:
        claims: claims of the checkpoint; empty if it is missing or cannot be read.
        offsets_file: file of the groups' offsets, relative to the store's folder.
        group_offsets: offsets of the groups.
        delay_offsets: next offset of each delay level.
        log_end: physical offset at which the log ended when the checkpoint was written; None if unknown.
        last_record: physical offset of the last record before `log_end`; None if unknown.
        entries: sum of the next queue offsets of all queues when the checkpoint was written; None if unknown.
        timers: progress of the broker's timers; None if the store has none, or the file cannot be read.
        group_filters: subscriptions that the broker keeps in its files.
    """

    claims: tuple[CheckpointClaim, ...]
    offsets_file: str
    group_offsets: tuple[StoredOffset, ...]
    delay_offsets: Mapping[int, int]
    log_end: int | None = None
    last_record: int | None = None
    entries: int | None = None
    timers: TimerProgress | None = None
    group_filters: tuple[StoredSubscription, ...] = ()


class StoredRecords(Protocol):
    """Access to the records of a log by their physical offsets."""

    def get_record(self, physical_offset: int) -> Any:
        """Return the record at a physical offset, as a message of its format; None if there is no valid one."""


@dataclass(frozen=True)
class CheckedLog:
    """Results of reading a log and its queues, for comparison with the store's checkpoint and offsets.

    Attributes:
        records: records of the log, by their physical offsets.
        start: physical offset of the log's first byte.
        end: physical offset after the last record.
        entries: sum of the next queue offsets of all queues.
        may_lag: whether the indexes may lack the newest records of the log.
    """

    records: StoredRecords
    start: int
    end: int
    entries: int
    may_lag: bool


@dataclass(frozen=True)
class RebuiltLog:
    """Properties of a log with rebuilt indexes, from which a new checkpoint is made.

    Attributes:
        start: physical offset of the log's first byte.
        end: physical offset after the log.
        last_offset: physical offset of the last record; below 0 if there is none.
        last_end: physical offset after that record.
        last_time: store time of that record, ms.
        queued_offset: physical offset of the last record with a queue entry; below 0 if there is none.
        queued_time: store time of that record, ms.
        index_time: end of the last full IndexFile, ms; 0 for none.
        has_index_tags: whether the IndexFiles are those of a broker that enters tags.
        entries: sum of the next queue offsets of all queues; 0 if the format's checkpoint does not have it.
    """

    start: int
    end: int
    last_offset: int
    last_end: int
    last_time: int
    queued_offset: int
    queued_time: int
    index_time: int
    has_index_tags: bool
    entries: int


def read_checkpoint_file(path: Path, problems: Problems, *, is_live: bool) -> bytes | None:
    """Read a checkpoint file; report a missing one as a problem, unless a broker may not have written it yet."""
    try:
        return read_file(path)
    except FileNotFoundError:
        if not is_live:
            problems.note("checkpoint_missing", CHECKPOINT, found="no such file", expected="4096 bytes")
        return None
    except OSError as error:
        problems.note("checkpoint_unreadable", CHECKPOINT, 0, found=error.strerror or str(error), expected="4096 bytes")
        return None
