"""Reads offsets and filters from the files of a store, while its broker may be writing them.

A broker writes its offsets every five seconds, so the time of a snapshot is the time at which the file was written, not
the time of reading. RocketMQ removes the old file before it renames the new one, and BoltMQ writes into the file. A
file that is missing, cannot be parsed, or changed while it was read is therefore read again.
"""

from __future__ import annotations

import datetime
import logging
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from commitlake.connectors.formats.config_files import BACKUP
from commitlake.connectors.log_format.checkpoint_and_config import SmallFiles
from commitlake.connectors.reading.files.shipped_stores import open_small_files_folder
from commitlake.connectors.reading.files.store_files import store_folder_of_log
from commitlake.connectors.reading.stores import Store
from commitlake.connectors.reading.unread_warnings import ASK_HINT
from commitlake.pipelines.snapshot.progress import (
    GroupTopic,
    OffsetKind,
    OffsetOwner,
    SnapshotSource,
    StoreSnapshot,
    Subscription,
)
from commitlake.schemas.layouts.jmq.offset_json import FILE_NAME, FOLDER
from commitlake.schemas.layouts.rocketmq.topics import OFFSETS_FILES
from commitlake.schemas.times import from_ms

_LOGGER = logging.getLogger(__name__)
MAX_TRIES = 20
_WAIT_SECONDS = 0.05
_JMQ_OFFSETS = f"{FOLDER}/{FILE_NAME}"
_DELAYS, _TIMERS, _FILTERS = "config/delayOffset.json", "config/timercheck", "config/consumerFilter.json"


class _UnreadableFiles:
    """Collector of problems with files: those that could not be read, and those read from their `.bak` backup."""

    def __init__(self) -> None:
        self.files: dict[str, str] = {}
        self.backups: dict[str, str] = {}

    @property
    def codes(self) -> Collection[str]:
        """Codes of the findings; always empty, as this collector keeps sentences instead."""
        return ()

    def note(
        self,
        code: str,
        file: str,
        position: int | None = None,  # noqa: ARG002
        physical_offset: int | None = None,  # noqa: ARG002
        *,
        found: str,
        expected: str,
    ) -> None:
        """Record that a file could not be read, or was read from its backup."""
        if code == "offsets_unreadable":
            self.files[file] = f"expected {expected}, found {found}"
        elif code == "config_from_backup":
            self.backups[file] = f"expected {expected}, found {found}"


def read_store_snapshot(
    store: Store, now: datetime.datetime, wait: Callable[[float], object] = time.sleep
) -> StoreSnapshot | None:
    """Read the offsets and subscriptions of a store from its files.

    Args:
        store: the store; its files are read from its folder, or from the copy in an object store.
        now: current time; a file cannot be newer.
        wait: waits a number of seconds before a file is read again.

    Returns:
        The snapshot; None for a store in an object store that no agent has shipped, because the time of its offsets is
        not known.
    """
    with open_small_files_folder(store.root) as root:
        return None if root is None else _read_snapshot_from_files(store, root, now, wait)


def _read_snapshot_from_files(
    store: Store, root: Path, now: datetime.datetime, wait: Callable[[float], object]
) -> StoreSnapshot:
    for attempt in range(MAX_TRIES):
        if attempt:
            wait(_WAIT_SECONDS)
        unreadable = _UnreadableFiles()
        # Before the files, so that a file that is replaced while it is read has another time afterwards.
        before = _read_write_times(root, now)
        files = store.format.small_files.read_small_files(root, unreadable, is_live=False)
        is_read = not unreadable.files and not unreadable.backups
        if is_read and _drop_mapped_file(_read_write_times(root, now)) == _drop_mapped_file(before):
            break
    for name, why in unreadable.backups.items():
        _LOGGER.warning("%s/%s: %s: its .bak is used, as by a broker", store_folder_of_log(store.root), name, why)
        if (backup := f"{name}{BACKUP}") in before:
            # The offsets are those of the `.bak`, which is older.
            before[name] = before[backup]
    return replace(_to_snapshot(store, root, files, unreadable, before), read_at=now)


def _read_write_times(root: Path, now: datetime.datetime) -> dict[str, datetime.datetime]:
    """Return, by name, when each file of offsets or filters was last written, for files that exist."""
    found = {}
    names = [*(f"config/{offsets}" for offsets in OFFSETS_FILES), _JMQ_OFFSETS, _DELAYS, _TIMERS, _FILTERS]
    for name in (*names, *(f"{name}{BACKUP}" for name in names)):
        with suppress(OSError):
            milliseconds = (root / name).lstat().st_mtime_ns // 1_000_000
            # A clock ahead of this one must not date a snapshot in the future, after which all others would be old.
            found[name] = min(from_ms(milliseconds), now)
    return found


def _drop_mapped_file(write_times: dict[str, datetime.datetime]) -> dict[str, datetime.datetime]:
    """Leave out the timer file, which the broker writes every second through a memory map."""
    return {name: time for name, time in write_times.items() if name != _TIMERS}


def _find_newer_rocksdb(store: Store, root: Path, offsets_written_at: datetime.datetime | None) -> Path | None:
    """Return the RocksDB folder of offsets, unless a file of offsets was written after it; None if so."""
    folder = store.format.small_files.rocksdb_offsets_folder(root)
    if folder is None or offsets_written_at is None:
        return folder
    with suppress(OSError):
        newest = max(file.lstat().st_mtime for file in folder.iterdir())
        return folder if newest > offsets_written_at.timestamp() else None
    return folder


def _to_snapshot(
    store: Store, root: Path, files: SmallFiles, unreadable: _UnreadableFiles, write_times: dict[str, datetime.datetime]
) -> StoreSnapshot:
    taken: dict[OffsetKind, datetime.datetime] = {}
    offsets: dict[OffsetOwner, int] = {}
    rocksdb = _find_newer_rocksdb(store, root, write_times.get(files.offsets_file))
    if files.offsets_file in write_times and files.offsets_file not in unreadable.files and rocksdb is None:
        taken[OffsetKind.GROUP] = write_times[files.offsets_file]
        for one in files.group_offsets:
            offsets[OffsetOwner(OffsetKind.GROUP, one.group, one.topic, one.queue_id)] = one.offset
    if store.format.brokers.has_delay_levels and _DELAYS in write_times and _DELAYS not in unreadable.files:
        taken[OffsetKind.DELAY] = write_times[_DELAYS]
        topic = store.format.dialects.dialect_of(store.segments).schedule_topic
        for level, offset in files.delay_offsets.items():
            offsets[OffsetOwner(OffsetKind.DELAY, "", topic, level - 1)] = offset
    if files.timers is not None and _TIMERS in write_times:
        taken[OffsetKind.TIMER] = taken[OffsetKind.TIMER_TIME] = write_times[_TIMERS]
        offsets[OffsetOwner(OffsetKind.TIMER, "", files.timers.topic, 0)] = files.timers.next_offset
        offsets[OffsetOwner(OffsetKind.TIMER_TIME, "", files.timers.topic, 0)] = files.timers.delivered_until_ms
    subscriptions = {
        GroupTopic(one.group, one.topic): Subscription(one.expression_type, one.expression, one.subscribed_at_ms)
        for one in files.group_filters
    }
    shown = store.root.rsplit("/", 1)[0]
    note = ""
    if OffsetKind.GROUP not in taken and not unreadable.files:
        note = f"{shown}/{files.offsets_file}: no such file, so no offsets of groups are known"
    if rocksdb is not None:
        note = f"{rocksdb}: the offsets of groups are in RocksDB, which cannot be read. {ASK_HINT}"
    return StoreSnapshot(
        broker=store.broker,
        source=SnapshotSource.FILE,
        taken=taken,
        offsets=offsets,
        subscribed_as_of=write_times.get(_FILTERS),
        subscriptions=subscriptions,
        log_start=min((segment.base_offset for segment in store.segments), default=None),
        unreadable=tuple(f"{shown}/{name}: {why}" for name, why in unreadable.files.items()),
        note=note,
    )
