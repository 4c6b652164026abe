"""Retention: deletion of old files, and protection against a full disk.

A segment of the log expires if it was not written to for `file_reserved_hours`; expired segments are deleted in the
hours of `delete_hours`, or at any time if the disk is `disk_max_used_percent` full. On a fuller disk the oldest
segments are deleted whatever their age, and on an even fuller one the broker refuses messages. The last segment always
stays. Files of queues and index are deleted when they no longer point into the log.
Source: DefaultMessageStore.CleanCommitLogService, CleanConsumeQueueService,
UtilAll.getDiskPartitionSpaceUsedPercent (5.5.0).
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable
from pathlib import Path

from commitlake.broker_lite.stores.engine.file_queue import FileQueue
from commitlake.broker_lite.stores.engine.options import RetentionOptions

_HOUR_SECONDS = 3600
_logger = logging.getLogger(__name__)


def disk_used_percent(folder: Path) -> int:
    """Return the usage of a folder's disk in percent, rounded up, as RocketMQ computes it."""
    disk = os.statvfs(folder)
    used = disk.f_blocks - disk.f_bfree
    entire = used + disk.f_bavail
    return math.ceil(used * 100 / entire) if entire else 100


class Retention:
    """Rules that delete the old files of one store; the caller holds the store's locks."""

    def __init__(
        self,
        root: Path,
        log: FileQueue,
        expire: Callable[[int, float], None],
        options: RetentionOptions,
        used: Callable[[Path], int] = disk_used_percent,
    ) -> None:
        """Set up the deletion of old files of one store.

        Args:
            root: folder of the store.
            expire: deletes queue and index files that point only before an offset of the log; its second argument is
                the modification time of the newest deleted segment, s since 1970.
            options: settings of retention.
            used: returns the usage of a folder's disk in percent.
        """
        self._root = root
        self._log = log
        self._expire = expire
        self._options = options
        self._used = used

    @property
    def is_disk_full(self) -> bool:
        """True if the disk is too full for more messages."""
        return self._used(self._root) > self._options.warning_percent

    def delete_expired_files(self, now_seconds: float) -> int:
        """Delete expired segments, and return the number of deleted segments."""
        options = self._options
        used = self._used(self._root)
        is_time = time.localtime(now_seconds).tm_hour in options.delete_hours
        is_forced = used > options.clean_forcibly_percent
        if not (is_time or is_forced or used > options.disk_max_used_percent):
            return 0
        oldest_kept = now_seconds - options.file_reserved_hours * _HOUR_SECONDS
        log = self._log
        count, written = 0, log.modification_times()
        for modified in written[: options.delete_batch]:
            if not is_forced and modified > oldest_kept:
                break
            count += 1
        # The last segment is still being written.
        count = min(count, len(log.file_starts) - 1)
        if count <= 0:
            return 0
        log.delete_oldest_files(count)
        self._expire(log.start, written[count - 1])
        _logger.info("deleted %d segments; the log begins at %d, the disk was %d %% full", count, log.start, used)
        return count
