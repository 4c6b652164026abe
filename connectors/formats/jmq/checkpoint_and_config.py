"""Checkpoint and offsets of applications in JMQ's files."""

from __future__ import annotations

from pathlib import Path

from commitlake.connectors.formats.config_files import read_config, report_backup_use
from commitlake.connectors.log_format.checkpoint_and_config import (
    CheckedLog,
    CheckpointClaim,
    Problems,
    RebuiltLog,
    SmallFiles,
    StoredOffset,
    read_checkpoint_file,
)
from commitlake.schemas.layouts.jmq import offset_json as jmq_offsets
from commitlake.schemas.layouts.jmq.checkpoint import (
    FILE_NAME,
    LAYOUT,
    JournalCheckpoint,
    parse_journal_checkpoint,
    serialize_journal_checkpoint,
)
from commitlake.schemas.layouts.rocketmq.topics import DLQ_PREFIX, RETRY_PREFIX
from commitlake.schemas.safe_store_files import UnsafeFileError

OFFSETS = f"{jmq_offsets.FOLDER}/{jmq_offsets.FILE_NAME}"
_TIME = "store_timestamp"


def read_small_files(root: Path, problems: Problems, *, is_live: bool) -> SmallFiles:
    """Read the checkpoint and offsets; report unreadable files as problems, and treat them as missing.

    Args:
        root: the store's folder.
        is_live: whether a broker has the store open, which may not have written all of the files yet.
    """
    offsets = _read_offsets(root, problems, is_live=is_live)
    checkpoint = _read_checkpoint(root, problems, is_live=is_live)
    if checkpoint is None:
        return SmallFiles((), OFFSETS, offsets, {})
    return SmallFiles(
        claims=_list_claims(checkpoint),
        offsets_file=OFFSETS,
        group_offsets=offsets,
        delay_offsets={},
        log_end=checkpoint.journal_end,
        last_record=checkpoint.last_record,
        entries=checkpoint.entries,
    )


def checkpoint_claims(checkpoint: bytes) -> tuple[CheckpointClaim, ...]:
    """Return the offsets and times up to which a checkpoint confirms that the log is on disk; empty if invalid."""
    parsed = parse_journal_checkpoint(checkpoint)
    return () if parsed is None else _list_claims(parsed)


def _list_claims(checkpoint: JournalCheckpoint) -> tuple[CheckpointClaim, ...]:
    return tuple(CheckpointClaim(name, getattr(checkpoint, name), name == _TIME) for name in ("journal_end", _TIME))


def _read_checkpoint(root: Path, problems: Problems, *, is_live: bool) -> JournalCheckpoint | None:
    data = read_checkpoint_file(root / FILE_NAME, problems, is_live=is_live)
    checkpoint = None if data is None else parse_journal_checkpoint(data)
    if data is not None and checkpoint is None:
        found = f"{len(data)} bytes" if len(data) < LAYOUT.size else "other bytes"
        expected = f"{LAYOUT.size} bytes with a valid CRC"
        problems.note("checkpoint_unreadable", FILE_NAME, 0, found=found, expected=expected)
    return checkpoint


def _read_offsets(root: Path, problems: Problems, *, is_live: bool) -> tuple[StoredOffset, ...]:
    """Return the acknowledged offsets of applications, without those for retries and dead letters."""
    try:
        found = read_config(root, OFFSETS, _parse_positions)
    except UnsafeFileError as error:
        expected = "a file of at most 64 MiB"
        problems.note("offsets_unreadable", OFFSETS, found=str(error.strerror), expected=expected)
        return ()
    report_backup_use(problems, OFFSETS, found, "the JSON of a broker", is_live=is_live)
    return tuple(
        StoredOffset(place.topic, place.app, place.queue_id, position.ack)
        for place, position in (found.content or {}).items()
        if not place.topic.startswith((RETRY_PREFIX, DLQ_PREFIX))
    )


def _parse_positions(data: bytes) -> jmq_offsets.Positions:
    return jmq_offsets.parse_offsets(data)[0]


def check_checkpoint(log: CheckedLog, files: SmallFiles, problems: Problems) -> None:
    """Compare a checkpoint with the last record and, after a clean shutdown, with the number of entries."""
    if files.log_end is None or files.last_record is None or not log.start < files.log_end <= log.end:
        return
    record = log.records.get_record(files.last_record)
    if record is None or files.last_record + record.size != files.log_end:
        found = "none" if record is None else f"one up to {files.last_record + record.size}"
        problems.note(
            "checkpoint_disagrees",
            FILE_NAME,
            LAYOUT.offset_of("last_record"),
            files.last_record,
            found=f"at {files.last_record} {found}",
            expected=f"a record up to {files.log_end}",
        )
    # A broker drops entries beyond its log before it counts the others.
    is_counted = not log.may_lag and "queue_beyond_log" not in problems.codes
    if is_counted and files.entries != log.entries:
        problems.note(
            "checkpoint_disagrees",
            FILE_NAME,
            LAYOUT.offset_of("entries"),
            found=f"{files.entries} entries",
            expected=f"{log.entries}, the sum of the ends of all queues",
        )


def new_checkpoint(log: RebuiltLog) -> bytes:
    """Return a checkpoint that confirms everything up to the journal's end as flushed, as after a clean shutdown."""
    if log.last_offset < 0:
        return serialize_journal_checkpoint(JournalCheckpoint(log.start, log.start, 0, log.entries))
    return serialize_journal_checkpoint(JournalCheckpoint(log.last_end, log.last_offset, log.last_time, log.entries))


def replace_entry_count(checkpoint: bytes, entry_count: int) -> bytes | None:
    """Return a checkpoint's bytes with the given number of queue entries; None if the bytes are invalid."""
    known = parse_journal_checkpoint(checkpoint)
    return None if known is None else serialize_journal_checkpoint(known._replace(entries=entry_count))
