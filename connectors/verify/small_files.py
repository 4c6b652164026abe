"""Checkpoint, abort, and the offsets of groups and of delay levels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from connectors.verify.findings import Finding, Findings
from connectors.verify.loose import QueueBounds
from connectors.verify.store_view import ABORT, StoreView
from schemas.layouts.checkpoint import Checkpoint, parse_checkpoint
from schemas.layouts.errors import LayoutError
from schemas.layouts.topics import SCHEDULE_TOPIC
from schemas.remoting.fastjson import parse_fastjson

CHECKPOINT = "checkpoint"
CONSUMER_OFFSETS, DELAY_OFFSETS = "config/consumerOffset.json", "config/delayOffset.json"
_TABLE = "offsetTable"
Bounds = Mapping[tuple[str, int], QueueBounds]


@dataclass(frozen=True)
class SmallFiles:
    """The small files as they were before the log was read.

    Attributes:
        checkpoint: None where it is missing or cannot be read.
        consumer_offsets: topic and group, to queue id and offset.
        delay_offsets: level to offset.
        findings: what is wrong with the files themselves.
    """

    checkpoint: Checkpoint | None
    consumer_offsets: Mapping[str, Mapping[int, int]]
    delay_offsets: Mapping[int, int]
    findings: Findings


def read_small_files(root: Path, limit: int, *, is_live: bool) -> SmallFiles:
    """Read them; what cannot be read is a finding, and otherwise as if it were not there.

    Args:
        root: the store's folder.
        limit: findings of a class that are kept.
        is_live: a broker has it open, and may not have come to write all of them.
    """
    findings = Findings(limit)
    checkpoint = None
    try:
        checkpoint = parse_checkpoint((root / CHECKPOINT).read_bytes())
    except FileNotFoundError:
        if not is_live:
            findings.add(Finding("checkpoint_missing", CHECKPOINT, found="no such file", expected="4096 bytes"))
    except LayoutError as error:
        findings.add(Finding("checkpoint_unreadable", CHECKPOINT, 0, found=error.found, expected=error.expected))
    groups = {
        str(name): {int(queue): int(offset) for queue, offset in offsets.items()}
        for name, offsets in _table(root, CONSUMER_OFFSETS, findings, _are_offsets).items()
    }
    levels = {int(level): int(offset) for level, offset in _table(root, DELAY_OFFSETS, findings, _is_number).items()}
    return SmallFiles(checkpoint, groups, levels, findings)


def _table(root: Path, name: str, findings: Findings, is_value: Callable[[object], bool]) -> dict[Any, Any]:
    try:
        document = parse_fastjson((root / name).read_bytes())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        findings.add(Finding("offsets_unreadable", name, found=str(error), expected=f"JSON with {_TABLE}"))
        return {}
    table = document.get(_TABLE, {}) if isinstance(document, dict) else None
    if isinstance(table, dict) and all(map(is_value, table.values())):
        return table
    findings.add(Finding("offsets_unreadable", name, found="another document", expected=f"{_TABLE} with numbers"))
    return {}


def _is_number(value: object) -> bool:
    return isinstance(value, int)


def _are_offsets(value: object) -> bool:
    return isinstance(value, dict) and all(
        _is_number(offset) and str(queue).isdecimal() for queue, offset in value.items()
    )


def check_marks(view: StoreView, files: SmallFiles, newest_time: int, findings: Findings) -> None:
    """Checkpoint and abort against the log.

    Args:
        view: of the store.
        files: its small files.
        newest_time: the latest store time in the log, ms; 0 where it has no record.
        findings: takes what is not as it must be.
    """
    if view.was_aborted and not view.is_live:
        findings.add(Finding("abort_present", ABORT, found="the file, and nobody who holds the lock", expected="none"))
    checkpoint = files.checkpoint
    if checkpoint is None:
        return
    for name, value in (
        ("physic_msg_timestamp", checkpoint.physic_msg_timestamp),
        ("logics_msg_timestamp", checkpoint.logics_msg_timestamp),
        ("index_msg_timestamp", checkpoint.index_msg_timestamp),
    ):
        if value > newest_time:
            findings.add(
                Finding("checkpoint_ahead", CHECKPOINT, found=f"{name} {value}",
                        expected=f"at most {newest_time}, the log's newest store time")
            )  # fmt: skip
    if checkpoint.logics_physical_offset > view.end:
        findings.add(
            Finding("checkpoint_ahead", CHECKPOINT, found=f"logics_physical_offset {checkpoint.logics_physical_offset}",
                    expected=f"at most {view.end}, the log's end")
        )  # fmt: skip


def check_offsets(files: SmallFiles, bounds: Bounds, findings: Findings) -> None:
    """Every group's and delay level's offset against its queue."""
    for name, offsets in sorted(files.consumer_offsets.items()):
        topic, _, group = name.rpartition("@")
        for queue_id, offset in sorted(offsets.items()):
            queue = bounds.get((topic, queue_id))
            for code, expected in _judge(offset, queue):
                findings.add(
                    Finding(code, CONSUMER_OFFSETS, queue=f"{topic}/{queue_id}", number=offset,
                            found=f"group {group} at {offset}", expected=expected)
                )  # fmt: skip
    for level, offset in sorted(files.delay_offsets.items()):
        queue = bounds.get((SCHEDULE_TOPIC, level - 1))
        end = 0 if queue is None else queue.end
        if offset > end:
            place = f"{SCHEDULE_TOPIC}/{level - 1}"
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
