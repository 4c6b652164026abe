"""What was found when a store was opened."""

from __future__ import annotations

from dataclasses import dataclass, field

from commitlake.broker_lite.stores.engine.progress import Progress
from commitlake.schemas.errors import CommitLakeError


class QueueGapError(CommitLakeError):
    """A queue ends before the entry that should come next: it must be built anew. Recovery handles it."""


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """What was found when a store was opened.

    Attributes:
        crashed: whether the store was not closed by whoever had it open before.
        start: offset of the log at which reading began.
        records: how many records were read.
        progress: where the log ends, and its last record.
        stopped_by: what stands at the end, in words.
        lost_bytes: how many bytes before the end were damaged, of those that were read; 0 in a layout whose log ends
            at the first damage.
    """

    crashed: bool
    start: int = 0
    records: int = 0
    progress: Progress = field(default_factory=Progress)
    stopped_by: str = "no log"
    lost_bytes: int = 0

    @property
    def end(self) -> int:
        """Offset at which the log ends."""
        return self.progress.log_end
