"""Writer of a log, as readers and flushes see it: its progress, also after recovery, and whether it accepts writes."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import NamedTuple

from commitlake.broker_lite.errors import StoreUnusableError
from commitlake.schemas.errors import CommitLakeError


class LogProgress(NamedTuple):
    """Position and time of a log's last record, which are written to checkpoints.

    Attributes:
        log_end: physical offset of the end of the last record.
        store_timestamp: store time of the last record, ms; 0 if there is none.
        last_record: physical offset of the last record; 0 if there is none.
    """

    log_end: int = 0
    store_timestamp: int = 0
    last_record: int = 0


class LogWriter:
    """State of a store's writer: its progress, and whether it accepts writes; threads write one at a time.

    Attributes:
        lock: held while files are written or read.
        failure: error that made the store unusable; None for a usable store.
        is_closed: True if it accepts no more messages.
        last: progress after the last write.
        arrived: (topic, queue id) pairs that have received messages since the set was last emptied.
    """

    def __init__(self, last: LogProgress) -> None:
        self.lock = threading.RLock()
        self.failure: BaseException | None = None
        self.is_closed = False
        self.last = last
        self.arrived: set[tuple[str, int]] = set()

    def take_arrived(self) -> set[tuple[str, int]]:
        """Return and forget the (topic, queue id) pairs with new messages, without waiting for a writer's lock."""
        # One by one, because a writer that adds to the set meanwhile would add to one that was exchanged and read.
        return {self.arrived.pop() for _ in range(len(self.arrived))}

    def check_writable(self) -> None:
        """Raise an error if the store does not accept writes; the caller holds the lock.

        Raises:
            StoreUnusableError: if it is closed, or a write failed before.
        """
        if self.is_closed:
            raise StoreUnusableError("the store is closed: open it again to use it")
        if self.failure is not None:
            self.check_usable()

    def mark_unusable(self, error: BaseException, problem: str) -> StoreUnusableError:
        """Mark the store as unusable, because queues or index lack a message of the log, and return the error to raise.

        The next message would get the same queue offset; only recovery can make log and queues consistent again.
        """
        self.failure = error
        return StoreUnusableError(f"{problem}: {error}")

    def check_usable(self) -> None:
        """Raise an error if an earlier write has failed.

        Raises:
            StoreUnusableError: if a write or a sync has failed before.
        """
        if self.failure is not None:
            raise StoreUnusableError(
                f"the store cannot be used until it is opened again, because a write failed: {self.failure}"
            ) from self.failure


class QueueGapError(CommitLakeError):
    """Error for a queue that lacks entries before a new one; recovery then rebuilds the queues."""


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """Report on the recovery of a store when it was opened.

    Attributes:
        crashed: True if the store was not closed the last time.
        start: offset of the log at which recovery started to read.
        records: number of records that were read.
        progress: end of the log, and its last record.
        stopped_by: description of the bytes at the end of the log.
        lost_bytes: number of damaged bytes before the end, in the part that was read; 0 in a layout whose log ends at
            the first damage.
    """

    crashed: bool
    start: int = 0
    records: int = 0
    progress: LogProgress = field(default_factory=LogProgress)
    stopped_by: str = "no log"
    lost_bytes: int = 0

    @property
    def log_end(self) -> int:
        """Offset of the end of the log."""
        return self.progress.log_end
