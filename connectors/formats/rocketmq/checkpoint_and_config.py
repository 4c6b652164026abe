"""Checkpoint, offsets of groups and delay levels, timers and filters in RocketMQ's and BoltMQ's files.

Filters of groups that do not subscribe by tags, mostly SQL92, are in `config/consumerFilter.json`:

    {"filterDataByTopic":{"orders":{"topic":"orders","groupFilterData":{"billing":{
        "consumerGroup":"billing","topic":"orders","expression":"price > 100","expressionType":"SQL92",
        "bornTime":1700000000000,"deadTime":0,"clientVersion":1700000000000}}}}}

A filter is dead if `deadTime` is not before `bornTime`: its group has no client with this subscription. It still shows
which of the waiting messages the group wants, and a broker drops it after a day. A broker keeps the file if it has
`enablePropertyFilter=true`. Source: org.apache.rocketmq.broker.filter.ConsumerFilterManager (5.5.0).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from commitlake.connectors.formats.config_files import BACKUP, read_config, report_backup_use
from commitlake.connectors.log_format.checkpoint_and_config import (
    CHECKPOINT,
    CheckpointClaim,
    Problems,
    RebuiltLog,
    SmallFiles,
    StoredOffset,
    StoredSubscription,
    TimerProgress,
    read_checkpoint_file,
)
from commitlake.schemas.layouts.boltmq.config_conversion import offsets_from_boltmq
from commitlake.schemas.layouts.errors import LayoutError
from commitlake.schemas.layouts.integer_parsing import INT64_MAX, INT64_MIN, int_in_range, parse_int32
from commitlake.schemas.layouts.rocketmq.checkpoint import Checkpoint, parse_checkpoint, serialize_checkpoint
from commitlake.schemas.layouts.rocketmq.timers import CHECKPOINT_PATH as TIMER_CHECKPOINT
from commitlake.schemas.layouts.rocketmq.timers import parse_timer_checkpoint
from commitlake.schemas.layouts.rocketmq.topics import OFFSETS_FILES, TIMER_TOPIC, split_offset_key
from commitlake.schemas.remoting.fastjson import parse_fastjson
from commitlake.schemas.safe_store_files import UnsafeFileError, newest_file_name, read_file

CONFIG, DELAY_OFFSETS = "config", "config/delayOffset.json"
_TABLE = "offsetTable"
CONSUMER_FILTERS = "config/consumerFilter.json"
_FILTER_TABLE = "filterDataByTopic"


def read_small_files(root: Path, problems: Problems, *, is_live: bool) -> SmallFiles:
    """Read a store's checkpoint and offsets; report unreadable files as problems, and treat them as missing.

    Args:
        root: the store's folder.
        is_live: whether a broker has the store open, which may not have written all of the files yet.
    """
    claims: tuple[CheckpointClaim, ...] = ()
    data = read_checkpoint_file(root / CHECKPOINT, problems, is_live=is_live)
    if data is not None:
        try:
            claims = _list_claims(parse_checkpoint(data))
        except LayoutError as error:
            problems.note("checkpoint_unreadable", CHECKPOINT, 0, found=error.found, expected=error.expected)
    offsets_file = f"{CONFIG}/{_offsets_file_name(root)}"
    groups = tuple(
        StoredOffset(*split_offset_key(str(name)), int(queue), int(offset))
        for name, offsets in _read_offset_table(
            root, offsets_file, problems, _are_valid_queue_offsets, is_live=is_live
        ).items()
        for queue, offset in offsets.items()
    )
    delays = _read_offset_table(root, DELAY_OFFSETS, problems, _is_delay_level, is_live=is_live)
    levels = {int(level): int(offset) for level, offset in delays.items()}
    filters = read_consumer_filters(root, problems, is_live=is_live)
    return SmallFiles(claims, offsets_file, groups, levels, timers=_read_timer_checkpoint(root), group_filters=filters)


def _offsets_file_name(root: Path) -> str:
    """Return the name of the newest file of group offsets, without the suffix `.bak` if only its backup exists."""
    backups = [f"{name}{BACKUP}" for name in OFFSETS_FILES]
    return newest_file_name(root / CONFIG, [*OFFSETS_FILES, *backups]).removesuffix(BACKUP)


def checkpoint_claims(checkpoint: bytes) -> tuple[CheckpointClaim, ...]:
    """Return the offsets and times up to which a checkpoint confirms that the log is on disk; empty if too short."""
    with suppress(LayoutError):
        return _list_claims(parse_checkpoint(checkpoint))
    return ()


def _list_claims(checkpoint: Checkpoint) -> tuple[CheckpointClaim, ...]:
    names = ("physic_msg_timestamp", "logics_msg_timestamp", "index_msg_timestamp", "logics_physical_offset")
    return tuple(CheckpointClaim(name, getattr(checkpoint, name), name.endswith("timestamp")) for name in names)


def _read_timer_checkpoint(root: Path) -> TimerProgress | None:
    """Return the content of `config/timercheck`; None if it is missing or unreadable, or no timer slot was read yet."""
    try:
        checkpoint = parse_timer_checkpoint(read_file(root / TIMER_CHECKPOINT, trusted_root=root))
    except (OSError, LayoutError):
        return None
    # Zero in a file that was created, but not used yet.
    if not checkpoint.last_read_time_ms:
        return None
    return TimerProgress(TIMER_TOPIC, checkpoint.last_timer_queue_offset, checkpoint.last_read_time_ms)


def _read_offset_table(
    root: Path, file_name: str, problems: Problems, is_valid_entry: Callable[[object, object], bool], *, is_live: bool
) -> dict[Any, Any]:
    def parse_offset_table(data: bytes) -> dict[Any, Any]:
        document = parse_fastjson(data)
        table = offsets_from_boltmq(document).get(_TABLE, {}) if isinstance(document, dict) else None
        if not isinstance(table, dict) or not all(itertools.starmap(is_valid_entry, table.items())):
            raise ValueError(f"JSON without a table {_TABLE} that holds only valid offsets")
        return table

    try:
        found = read_config(root, file_name, parse_offset_table)
    except UnsafeFileError as error:
        problems.note(
            "offsets_unreadable", file_name, found=_found_part_of_message(error), expected=f"JSON with {_TABLE}"
        )
        return {}
    report_backup_use(problems, file_name, found, f"JSON with {_TABLE}", is_live=is_live)
    return found.content or {}


def _found_part_of_message(error: UnsafeFileError) -> str:
    return (error.strerror or str(error)).rpartition("found ")[2]


def _is_delay_level(level: object, offset: object) -> bool:
    return parse_int32(str(level)) is not None and int_in_range(offset, INT64_MIN, INT64_MAX) is not None


def _are_valid_queue_offsets(_: object, offsets: object) -> bool:
    # A broker commits whatever queue a client names, also a negative one.
    return isinstance(offsets, dict) and all(
        int_in_range(offset, INT64_MIN, INT64_MAX) is not None and parse_int32(str(queue)) is not None
        for queue, offset in offsets.items()
    )


def read_checkpoint(root: Path) -> Checkpoint | None:
    """Return a store's checkpoint, or None if it is missing or unreadable."""
    with suppress(OSError, LayoutError):
        return parse_checkpoint(read_file(root / CHECKPOINT))
    return None


def new_checkpoint(root: Path, log: RebuiltLog) -> bytes:
    """Return a checkpoint that confirms everything up to the log's end as flushed, as after a clean shutdown.

    The log does not contain two of its offsets: the master's flushed offset and the confirmed offset. They are copied
    from the old checkpoint if there is one.

    Args:
        root: the store's folder.
    """
    before = read_checkpoint(root) or Checkpoint()
    return serialize_checkpoint(
        Checkpoint(
            log.last_time,
            log.queued_time,
            log.index_time,
            # An offset after the log's end would make the broker wait for bytes that no longer exist.
            _offset_or_zero(before.master_flushed_offset, log.end),
            _offset_or_zero(before.confirm_physical_offset, log.end),
            max(0, log.queued_offset) if log.has_index_tags else 0,
        )
    )


def _offset_or_zero(offset: int, log_end: int) -> int:
    return offset if -1 <= offset <= log_end else 0


def read_consumer_filters(root: Path, problems: Problems, *, is_live: bool) -> tuple[StoredSubscription, ...]:
    """Return the message filters of consumer groups, including groups without clients.

    Args:
        root: The store's folder.
        problems: Collects the problems of the store's files.
        is_live: Whether a broker has the store open.

    Returns:
        The filters; empty if the file does not exist, as for a broker without filters, or cannot be read.
    """
    try:
        found = read_config(root, CONSUMER_FILTERS, _parse_filters)
    except UnsafeFileError:
        return ()
    if found.is_backup:
        report_backup_use(problems, CONSUMER_FILTERS, found, f"JSON with {_FILTER_TABLE}", is_live=is_live)
    return tuple(sorted(_list_subscriptions(found.content))) if found.content else ()


def _parse_filters(data: bytes) -> dict[Any, Any]:
    document = parse_fastjson(data)
    table = document.get(_FILTER_TABLE) if isinstance(document, dict) else None
    if not isinstance(table, dict):
        raise ValueError(f"JSON without the table {_FILTER_TABLE}")  # noqa: TRY004 (of the parsed file)
    return table


def _list_subscriptions(filter_table: dict[Any, Any]) -> Iterator[StoredSubscription]:
    for topic, entry in filter_table.items():
        groups = entry.get("groupFilterData") if isinstance(entry, dict) else None
        for group, data in groups.items() if isinstance(groups, dict) else ():
            if not isinstance(data, dict) or not data.get("expression") or not data.get("expressionType"):
                continue
            version, born = (int_in_range(data.get(name), 0, INT64_MAX) or 0 for name in ("clientVersion", "bornTime"))
            expression_type, expression = str(data["expressionType"]), str(data["expression"])
            yield StoredSubscription(str(topic), str(group), expression_type, expression, version or born)
