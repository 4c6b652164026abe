"""Checkpoint, abort, and the offsets of groups and of delay levels; and what of it RocketMQ keeps."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from commitlake.pipelines.verify.findings import Finding, Findings
from commitlake.pipelines.verify.loose import QueueBounds
from commitlake.pipelines.verify.store_view import ABORT, StoreView
from commitlake.schemas.layouts.boltmq.config import offsets_from_boltmq
from commitlake.schemas.layouts.errors import LayoutError
from commitlake.schemas.layouts.numbers import INT32_MAX, INT64_MAX, INT64_MIN, int_within, parse_int, parse_int32
from commitlake.schemas.layouts.rocketmq.checkpoint import parse_checkpoint
from commitlake.schemas.layouts.rocketmq.offset_keys import OFFSETS_FILES, split_offset_key
from commitlake.schemas.remoting.fastjson import parse_fastjson
from commitlake.schemas.store_files import newest_file, read_file

CHECKPOINT = "checkpoint"
CONFIG, DELAY_OFFSETS = "config", "config/delayOffset.json"
_TABLE = "offsetTable"
Bounds = Mapping[tuple[str, int], QueueBounds]


class Claim(NamedTuple):
    """Something that a checkpoint says of the log.

    Attributes:
        name: of the field.
        value: ms of a record's store time, or a physical offset.
        is_time: which of the two.
    """

    name: str
    value: int
    is_time: bool


class GroupOffset(NamedTuple):
    """Where a group goes on in a queue."""

    topic: str
    group: str
    queue_id: int
    offset: int


@dataclass(frozen=True)
class SmallFiles:
    """The small files as they were before the log was read.

    Attributes:
        findings: what is wrong with the files themselves.
        claims: what the checkpoint says; none where it is missing or cannot be read.
        offsets_file: where groups' offsets are kept, from the store's folder on.
        group_offsets: these.
        delay_offsets: level to offset.
        log_end: physical offset at which the log ended when the checkpoint was written; None where it does not tell.
        last_record: of the record before that, likewise.
        entries: next queue offsets of all queues at that time, added up, likewise.
    """

    findings: Findings
    claims: tuple[Claim, ...]
    offsets_file: str
    group_offsets: tuple[GroupOffset, ...]
    delay_offsets: Mapping[int, int]
    log_end: int | None = None
    last_record: int | None = None
    entries: int | None = None


def read_small_files(root: Path, limit: int, is_live: bool) -> SmallFiles:
    """Read them; what cannot be read is a finding, and otherwise as if it were not there.

    Args:
        root: the store's folder.
        limit: findings of a class that are kept.
        is_live: a broker has it open, and may not have come to write all of them.
    """
    findings = Findings(limit)
    claims: tuple[Claim, ...] = ()
    data = read_checkpoint_file(root / CHECKPOINT, findings, is_live=is_live)
    if data is not None:
        try:
            checkpoint = parse_checkpoint(data)
            names = ("physic_msg_timestamp", "logics_msg_timestamp", "index_msg_timestamp", "logics_physical_offset")
            claims = tuple(Claim(name, getattr(checkpoint, name), name.endswith("timestamp")) for name in names)
        except LayoutError as error:
            findings.add(Finding("checkpoint_unreadable", CHECKPOINT, 0, found=error.found, expected=error.expected))
    offsets_file = f"{CONFIG}/{newest_file(root / CONFIG, OFFSETS_FILES)}"
    groups = tuple(
        GroupOffset(*split_offset_key(str(name)), int(queue), int(offset))
        for name, offsets in _table(root, offsets_file, findings, _are_offsets).items()
        for queue, offset in offsets.items()
    )
    levels = {int(level): int(offset) for level, offset in _table(root, DELAY_OFFSETS, findings, _is_level).items()}
    return SmallFiles(findings, claims, offsets_file, groups, levels)


def read_checkpoint_file(path: Path, findings: Findings, *, is_live: bool) -> bytes | None:
    """The bytes of a checkpoint; a missing one is a finding, but where a broker may not have come to write it."""
    try:
        return read_file(path)
    except FileNotFoundError:
        if not is_live:
            findings.add(Finding("checkpoint_missing", CHECKPOINT, found="no such file", expected="4096 bytes"))
        return None
    except OSError as error:
        findings.add(Finding("checkpoint_unreadable", CHECKPOINT, 0, found=_why(error), expected="4096 bytes"))
        return None


def _table(root: Path, name: str, findings: Findings, is_pair: Callable[[object, object], bool]) -> dict[Any, Any]:
    try:
        document = parse_fastjson(read_file(root / name, below=root))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        findings.add(Finding("offsets_unreadable", name, found=_why(error), expected=f"JSON with {_TABLE}"))
        return {}
    table = offsets_from_boltmq(document).get(_TABLE, {}) if isinstance(document, dict) else None
    if isinstance(table, dict) and all(itertools.starmap(is_pair, table.items())):
        return table
    findings.add(Finding("offsets_unreadable", name, found="another document", expected=f"{_TABLE} with numbers"))
    return {}


def _why(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _is_level(level: object, offset: object) -> bool:
    return parse_int32(str(level)) is not None and int_within(offset, INT64_MIN, INT64_MAX) is not None


def _are_offsets(_: object, offsets: object) -> bool:
    return isinstance(offsets, dict) and all(
        int_within(offset, INT64_MIN, INT64_MAX) is not None and parse_int(str(queue), 0, INT32_MAX) is not None
        for queue, offset in offsets.items()
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
    for name, value, is_time in files.claims:
        most, what = (newest_time, "newest store time") if is_time else (view.end, "end")
        if value > most:
            found, expected = f"{name} {value}", f"at most {most}, the log's {what}"
            findings.add(Finding("checkpoint_ahead", CHECKPOINT, found=found, expected=expected))


def check_offsets(files: SmallFiles, bounds: Bounds, findings: Findings, schedule_topic: str) -> None:
    """Every group's and delay level's offset against its queue."""
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
