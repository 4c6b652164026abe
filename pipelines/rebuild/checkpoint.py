"""The checkpoint: it says that all is on the disk up to the log's end, as after a clean stop.

Its two offsets that the log does not tell, the master's flushed one and the confirmed one, are taken over where there
is one to take them from.
"""

from __future__ import annotations

from pathlib import Path

from commitlake.connectors.whole_files import write_synced
from commitlake.pipelines.rebuild.parts import Totals
from commitlake.pipelines.rebuild.settings import CHECKPOINT, Settings, read_checkpoint
from commitlake.pipelines.verify.queue_files import QueueFiles
from commitlake.pipelines.verify.store_view import list_queues
from commitlake.schemas.layouts.jmq.checkpoint import (
    JournalCheckpoint,
    parse_journal_checkpoint,
    serialize_journal_checkpoint,
)
from commitlake.schemas.layouts.rocketmq.checkpoint import Checkpoint, serialize_checkpoint
from commitlake.schemas.store_files import read_file


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


def journal_checkpoint_of(totals: Totals, start: int, out: Path, settings: Settings) -> bytes:
    """The bytes of a JMQ store's checkpoint.

    Args:
        totals: of the whole journal.
        start: journal offset of its first byte.
        out: the folder that has the queues: their entries are counted.
        settings: the broker's.
    """
    if totals.last_offset < 0:
        return serialize_journal_checkpoint(JournalCheckpoint(start, start, 0, _count_entries(out, settings)))
    return serialize_journal_checkpoint(
        JournalCheckpoint(totals.last_end, totals.last_offset, totals.last_time, _count_entries(out, settings))
    )


def count_again(out: Path, settings: Settings) -> None:
    """Let the checkpoint of a JMQ store tell the entries of all queues that are in its folder by now."""
    path = out / CHECKPOINT
    known = parse_journal_checkpoint(read_file(path))
    if known is not None:
        write_synced(path, serialize_journal_checkpoint(known._replace(entries=_count_entries(out, settings))))


def _count_entries(out: Path, settings: Settings) -> int:
    """The next queue offsets of all queues in a folder, added up."""
    layout = settings.queues
    return sum(
        QueueFiles(out, topic, queue_id, settings.queue_file_size, layout).written_end()
        for topic, queue_id in list_queues(out, layout)
    )
