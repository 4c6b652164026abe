"""The checkpoint: it says that all is on the disk up to the log's end, as after a clean stop.

Its two offsets that the log does not tell, the master's flushed one and the confirmed one, are taken over where there
is one to take them from.
"""

from __future__ import annotations

from pathlib import Path

from connectors.rebuild.parts import Totals
from connectors.rebuild.settings import read_checkpoint
from schemas.layouts.checkpoint import Checkpoint, serialize_checkpoint


def checkpoint_of(root: Path, totals: Totals, index_time: int, end: int, *, has_physical: bool) -> bytes:
    """The checkpoint's bytes.

    Args:
        root: the store's folder.
        totals: of the whole log.
        index_time: end of the last full IndexFile, ms; 0 for none.
        end: physical offset behind the log.
        has_physical: the broker is of 5.5 or newer.
    """
    before = read_checkpoint(root) or Checkpoint()
    return serialize_checkpoint(
        Checkpoint(
            totals.last_time,
            totals.queued_time,
            index_time,
            _within(before.master_flushed_offset, end),
            _within(before.confirm_physical_offset, end),
            max(0, totals.queued_offset) if has_physical else 0,
        )
    )


def _within(offset: int, end: int) -> int:
    return offset if -1 <= offset <= end else 0
