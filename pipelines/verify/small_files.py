"""Comparison of checkpoint, abort file, and offsets of groups and delay levels with the log and its queues."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from commitlake.connectors.formats.rocketmq.small_files import DELAY_OFFSETS
from commitlake.connectors.formats.small_files import CHECKPOINT, SmallFiles
from commitlake.pipelines.verify.findings import Finding, Findings
from commitlake.pipelines.verify.loose import QueueBounds
from commitlake.pipelines.verify.store_view import ABORT, StoreView
from commitlake.schemas.layouts.rocketmq.scan import DEFAULT_MAX_RECORD_BYTES

Bounds = Mapping[tuple[str, int], QueueBounds]


def check_marks(
    view: StoreView, files: SmallFiles, newest_time: int, findings: Findings, *, awaits_record: bool
) -> None:
    """Compare checkpoint and abort file with the log.

    Args:
        newest_time: the latest store time in the log, ms; 0 without a record.
        findings: receives the findings.
        awaits_record: whether the store is a copy without the newest record, which the checkpoint may confirm.
    """
    if view.was_aborted and not view.is_live:
        findings.add(Finding("abort_present", ABORT, found="the file, and nobody who holds the lock", expected="none"))
    for name, value, is_time in files.claims:
        most, what = (newest_time, "newest store time") if is_time else (view.end, "end")
        may_be_awaited = awaits_record and (is_time or value <= view.end + DEFAULT_MAX_RECORD_BYTES)
        if value > most and not may_be_awaited:
            unit = " ms" if is_time else ""
            found, expected = f"{name} {value}{unit}", f"at most {most}{unit}, the log's {what}"
            findings.add(Finding(view.code_beyond("checkpoint_ahead"), CHECKPOINT, found=found, expected=expected))


def check_offsets(files: SmallFiles, bounds: Bounds, findings: Findings, schedule_topic: str) -> None:
    """Compare the offset of every consumer group and delay level with its queue."""
    for topic, group, queue_id, offset in sorted(files.group_offsets):
        for code, expected in _judge(offset, bounds.get((topic, queue_id))):
            findings.add(
                Finding(code, files.offsets_file, queue=f"{topic}/{queue_id}", number=offset,
                        found=f"group {group} at {offset}", expected=expected)
            )  # fmt: skip
    for level, offset in sorted(files.delay_offsets.items()):
        queue = bounds.get((schedule_topic, level - 1))
        end = 0 if queue is None else queue.end
        if offset > end:
            place = f"{schedule_topic}/{level - 1}"
            found, expected = f"level {level} at {offset}", f"at most {end}"
            findings.add(
                Finding("delay_offset_beyond_queue", DELAY_OFFSETS, queue=place, number=offset, found=found,
                        expected=expected)
            )  # fmt: skip


def _judge(offset: int, queue: QueueBounds | None) -> Iterator[tuple[str, str]]:
    if offset < 0:
        yield "offset_invalid", "0 or more"
    elif queue is None:
        if offset > 0:
            yield "offset_without_queue", "a queue"
    elif offset > queue.end:
        yield "offset_beyond_queue", f"at most {queue.end}"
    elif offset < queue.first and queue.end > queue.first:
        yield "offset_below_queue", f"{queue.first} or more"
