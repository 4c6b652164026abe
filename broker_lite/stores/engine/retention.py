"""Deleting what is old, and keeping the disk from running full.

A segment of the log may go when it was not written to for `file_reserved_hours`; such segments go in the hours of
`delete_hours`, or at any time on a disk that is `disk_max_used_percent` full. On a fuller disk the oldest go whatever
their age, and on a still fuller one the broker takes no messages. The last segment always stays. Files of queues and of
the index go when nothing in them leads into the log any more. Source: DefaultMessageStore.CleanCommitLogService,
CleanConsumeQueueService, UtilAll.getDiskPartitionSpaceUsedPercent (5.5.0).
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


def used_percent(folder: Path) -> int:
    """How full a folder's disk is, rounded up, as RocketMQ counts it."""
    disk = os.statvfs(folder)
    used = disk.f_blocks - disk.f_bfree
    entire = used + disk.f_bavail
    return math.ceil(used * 100 / entire) if entire else 100


class Retention:
    """The rule, applied to one store; the caller holds the store's locks."""

    def __init__(
        self,
        root: Path,
        log: FileQueue,
        expire: Callable[[int, float], None],
        options: RetentionOptions,
        used: Callable[[Path], int] = used_percent,
    ) -> None:
        """Apply the rule.

        Args:
            root: the store's folder.
            log: its log.
            expire: deletes what only leads before an offset of the log; is told, too, when the newest segment that went
                was last written to, s since 1970.
            options: the rule's numbers.
            used: how full a folder's disk is.
        """
        self._root = root
        self._log = log
        self._expire = expire
        self._options = options
        self._used = used

    @property
    def is_disk_full(self) -> bool:
        """Whether nothing more is to be stored."""
        return self._used(self._root) > self._options.warning_percent

    def clean(self, now_seconds: float) -> int:
        """Delete what may go; tells how many segments went."""
        options = self._options
        used = self._used(self._root)
        is_time = time.localtime(now_seconds).tm_hour in options.delete_hours
        is_forced = used > options.clean_forcibly_percent
        if not (is_time or is_forced or used > options.disk_max_used_percent):
            return 0
        oldest_kept = now_seconds - options.file_reserved_hours * _HOUR_SECONDS
        log = self._log
        count, written = 0, log.modified_seconds()
        for modified in written[: options.delete_batch]:
            if not is_forced and modified > oldest_kept:
                break
            count += 1
        # The last one is still being written.
        count = min(count, len(log.file_starts) - 1)
        if count <= 0:
            return 0
        log.delete_first(count)
        self._expire(log.start, written[count - 1])
        _logger.info("%d segments were deleted; the log begins at %d, the disk was %d %% full", count, log.start, used)
        return count
