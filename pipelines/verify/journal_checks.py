"""What is checked in JMQ stores alone; see `layouts`."""

from __future__ import annotations

from pathlib import Path

from commitlake.pipelines.verify.findings import Finding, Findings
from commitlake.pipelines.verify.layouts import StoreChecks
from commitlake.pipelines.verify.log_records import LogRecords
from commitlake.pipelines.verify.small_files import Bounds, Claim, GroupOffset, SmallFiles, read_checkpoint_file
from commitlake.pipelines.verify.store_view import StoreView
from commitlake.schemas.layouts.errors import LayoutError
from commitlake.schemas.layouts.jmq import offsets as jmq_offsets
from commitlake.schemas.layouts.jmq.checkpoint import FILE_NAME, LAYOUT, JournalCheckpoint, parse_journal_checkpoint
from commitlake.schemas.layouts.jmq.journal import HEAD
from commitlake.schemas.layouts.rocketmq.topics import DLQ_PREFIX, RETRY_PREFIX
from commitlake.schemas.store_files import read_file

OFFSETS = f"{jmq_offsets.FOLDER}/{jmq_offsets.FILE_NAME}"
_OFFSET = [declared.name for declared in HEAD.fields].index("journal_offset")
_TIME = "store_timestamp"


def _own_offset(head: memoryview) -> int | None:
    return int(HEAD.unpack(head)[_OFFSET]) if len(head) >= HEAD.size else None


def read_small_files(root: Path, limit: int, is_live: bool) -> SmallFiles:
    """See `StoreChecks`."""
    findings = Findings(limit)
    offsets = _read_offsets(root, findings)
    checkpoint = _read_checkpoint(root, findings, is_live=is_live)
    if checkpoint is None:
        return SmallFiles(findings, (), OFFSETS, offsets, {})
    return SmallFiles(
        findings,
        claims=tuple(Claim(name, getattr(checkpoint, name), name == _TIME) for name in ("journal_end", _TIME)),
        offsets_file=OFFSETS,
        group_offsets=offsets,
        delay_offsets={},
        log_end=checkpoint.journal_end,
        last_record=checkpoint.last_record,
        entries=checkpoint.entries,
    )


def _read_checkpoint(root: Path, findings: Findings, *, is_live: bool) -> JournalCheckpoint | None:
    data = read_checkpoint_file(root / FILE_NAME, findings, is_live=is_live)
    checkpoint = None if data is None else parse_journal_checkpoint(data)
    if data is not None and checkpoint is None:
        found = f"{len(data)} bytes" if len(data) < LAYOUT.size else "other bytes"
        expected = f"{LAYOUT.size} bytes that have their CRC"
        findings.add(Finding("checkpoint_unreadable", FILE_NAME, 0, found=found, expected=expected))
    return checkpoint


def _read_offsets(root: Path, findings: Findings) -> tuple[GroupOffset, ...]:
    """How far applications have acknowledged; retries and dead letters, which are in no queue's files, left out."""
    try:
        positions, _ = jmq_offsets.parse_offsets(read_file(root / OFFSETS, below=root))
    except FileNotFoundError:
        return ()
    except OSError as error:
        expected = "a file of at most 64 MiB"
        findings.add(Finding("offsets_unreadable", OFFSETS, found=str(error.strerror), expected=expected))
        return ()
    except LayoutError as error:
        found, expected = f"{error.field}: {error.found}", error.expected
        findings.add(Finding("offsets_unreadable", OFFSETS, error.offset, found=found, expected=expected))
        return ()
    return tuple(
        GroupOffset(place.topic, place.app, place.queue_id, position.ack)
        for place, position in positions.items()
        if not place.topic.startswith((RETRY_PREFIX, DLQ_PREFIX))
    )


def _check_checkpoint(view: StoreView, files: SmallFiles, bounds: Bounds, findings: Findings) -> None:
    """Its last record, and, of a broker that stopped in peace, how many entries there are."""
    if files.log_end is None or files.last_record is None or not view.start < files.log_end <= view.end:
        return
    record = LogRecords(view.segments, view.layout).at(files.last_record)
    if record is None or files.last_record + record.size != files.log_end:
        found = "none" if record is None else f"one up to {files.last_record + record.size}"
        findings.add(
            Finding("checkpoint_disagrees", FILE_NAME, LAYOUT.offset_of("last_record"), files.last_record,
                    found=f"at {files.last_record} {found}", expected=f"a record up to {files.log_end}")
        )  # fmt: skip
    entries = sum(queue.end for queue in bounds.values())
    is_counted = not view.may_lag and "queue_beyond_log" not in findings.codes  # these a broker drops before it counts
    if is_counted and files.entries != entries:
        findings.add(
            Finding("checkpoint_disagrees", FILE_NAME, LAYOUT.offset_of("entries"), found=f"{files.entries} entries",
                    expected=f"{entries}, the ends of all queues added up")
        )  # fmt: skip


CHECKS = StoreChecks(_own_offset, read_small_files, _check_checkpoint)
