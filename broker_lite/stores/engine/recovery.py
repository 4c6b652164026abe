"""Result of recovery at the opening of a store."""

from __future__ import annotations

from dataclasses import dataclass, field

from commitlake.broker_lite.stores.engine.progress import LogProgress
from commitlake.schemas.errors import CommitLakeError


class QueueGapError(CommitLakeError):
    """Error for a queue that ends before the next entry: it must be rebuilt. Recovery handles it."""


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """Report of recovery at the opening of a store.

    Attributes:
        crashed: True if the store was not closed the last time.
        start: offset of the log at which recovery started to read.
        records: number of records that were read.
        progress: end of the log, and its last record.
        stopped_by: description of what is at the end.
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
    def end(self) -> int:
        """Offset of the end of the log."""
        return self.progress.log_end
