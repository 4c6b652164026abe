"""The checkpoint of a rebuilt store: everything up to the log's end is on disk, as after a clean shutdown."""

from __future__ import annotations

from pathlib import Path

from commitlake.connectors.formats.engine.store_files import open_store_files
from commitlake.connectors.formats.small_files import CHECKPOINT, RebuiltLog
from commitlake.connectors.whole_files import write_synced
from commitlake.pipelines.rebuild.parts import Totals
from commitlake.pipelines.rebuild.plan import RebuildPlan
from commitlake.pipelines.rebuild.settings import Settings
from commitlake.pipelines.verify.queue_files import QueueFiles
from commitlake.pipelines.verify.store_view import list_queues
from commitlake.schemas.store_files import read_file


def new_checkpoint(plan: RebuildPlan, totals: Totals, index_time: int) -> bytes:
    """Return the checkpoint's bytes.

    Args:
        plan: the run, whose output folder has the queues.
        totals: totals of the whole log.
        index_time: end of the last full IndexFile, ms; 0 for none.
    """
    settings = plan.settings
    log = RebuiltLog(
        start=plan.start,
        end=plan.end,
        last_offset=totals.last_offset,
        last_end=totals.last_end,
        last_time=totals.last_time,
        queued_offset=totals.queued_offset,
        queued_time=totals.queued_time,
        index_time=index_time,
        has_index_tags=settings.index_tags,
        entries=_count_entries(plan.out, settings) if settings.format.counts_entries else 0,
    )
    return settings.format.new_checkpoint(plan.root, log)


def count_again(out: Path, settings: Settings) -> None:
    """Update the checkpoint's count of entries to that of all queues in the folder."""
    path = out / CHECKPOINT
    updated = settings.format.with_entry_count(read_file(path), _count_entries(out, settings))
    if updated is not None:
        write_synced(path, updated)


def _count_entries(out: Path, settings: Settings) -> int:
    """Return the sum of the next queue offsets of all queues in a folder."""
    files, layout = open_store_files(str(out)), settings.queues
    return sum(
        QueueFiles(files, topic, queue_id, settings.queue_file_size, layout).written_end()
        for topic, queue_id in list_queues(files, layout)
    )
