"""Rules by which a broker deletes segments: DefaultMessageStore.CleanCommitLogService of RocketMQ 4.9.7 and 5.x.

Every 10 s (`cleanResourceInterval`; first a minute after its start) the broker checks three conditions:

    is this one of the hours `deleteWhen`?                                then expired segments are deleted
    is a disk fuller than `diskMaxUsedSpaceRatio`?                        then expired segments are deleted
    is a disk fuller than `diskSpaceCleanForciblyRatio` or the warning?   then segments are deleted, whatever their age

A segment is expired when its file was modified `fileReservedTime` hours ago. Segments are deleted from the oldest on,
at most `deleteFileBatchMax` at a time, up to the first that is not expired. A segment that was modified later therefore
keeps all segments after it. The newest segment of the log is never deleted. "A disk" is that of the CommitLog or that
of the ConsumeQueues.

The limits of the last condition can be set by Java system properties of the same names, as ratios. 5.x uses 85 and 90 %
if they are set to more, 30 and 35 % if to less. 4.9.7 has no such bounds and only knows the properties; it deletes 10
segments at a time, and cleans forcibly only if one of the first two conditions is true as well.

BoltMQ (1897b02) checks the same conditions as 4.9.7, with two differences. A segment that is not expired does not keep
those after it. And the time of a segment's last write is only in memory: segments from before the broker's last start
count as expired, as does everything that a slave has copied.

The forecast ignores a broker's next start, an operator's `deleteExpiredCommitLog`, and that a segment that is being
read is kept up to two minutes longer (`destroyMapedFileIntervalForcibly`): the times are the earliest possible ones.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from commitlake.schemas.layouts.rocketmq.broker_conf import BrokerConf

_FAR_SECONDS = 100 * 365 * 86400.0
_HOUR = datetime.timedelta(hours=1)
_LONGEST_WAIT_HOURS = 72  # an hour that is skipped when clocks change comes the next day
_DEFAULT = BrokerConf()


@dataclass(frozen=True, slots=True)
class Disk:
    """Usage of a file system when it was read, and how fast it grows.

    Attributes:
        device: number that distinguishes file systems.
        used: bytes in use.
        entire: bytes in use, and bytes that users may still use; without bytes reserved for root.
        growth: bytes per second that are written to it, as far as known.
    """

    device: int
    used: int
    entire: int
    growth: float = 0.0

    @property
    def used_percent(self) -> float:
        """Used share of the file system in percent.

        It is not rounded up as by the broker, which gives the same results for whole-percent limits.
        """
        return 100 * self.used / self.entire if self.entire else 0.0

    def time_when_usage_exceeds(
        self, limit_percent: int, now: datetime.datetime, freed_bytes: int = 0
    ) -> datetime.datetime | None:
        """Return the first time at which the usage exceeds a limit; None if that is not foreseeable.

        Args:
            limit_percent: the limit.
            now: time at which the disk was read.
            freed_bytes: bytes that are deleted before.
        """
        missing = self.entire * limit_percent // 100 - (self.used - freed_bytes)
        if missing < 0:
            return now
        if self.growth <= 0 or missing / self.growth > _FAR_SECONDS:
            return None
        return now + datetime.timedelta(seconds=missing / self.growth)


def read_disk_usage(folder: Path) -> Disk:
    """Read the usage of a folder's file system, computed as brokers do in Java.

    Raises:
        OSError: if the folder does not exist.
    """
    system = os.statvfs(folder)
    used = system.f_frsize * (system.f_blocks - system.f_bfree)
    return Disk(folder.stat().st_dev, used, used + system.f_frsize * system.f_bavail)


class DeletionCause(StrEnum):
    """Reason for which a broker deletes a segment."""

    TIME = "time"
    """Its age, in an hour of `deleteWhen`."""
    DISK = "disk"
    """Its age, with a disk fuller than `diskMaxUsedSpaceRatio`."""
    FORCED = "forced"
    """A disk fuller than the limit of the forced cleaning."""


@dataclass(frozen=True, slots=True)
class Rules:
    """Retention settings of a broker, with its time zone and version.

    Attributes:
        conf: settings of the broker.
        time_zone: time zone of the broker, for the hours; None for that of this machine.
        version: major version of the broker, 4 or 5.
        forcibly_ratio: system property rocketmq.broker.diskSpaceCleanForciblyRatio, if set.
        warning_ratio: system property rocketmq.broker.diskSpaceWarningLevelRatio, if set.
        keeps_order: True if a segment that is not expired keeps those after it.
        known_since: segments written before this time are expired, because the broker has lost their times; None if the
            times of files count.
        source_note: source of these rules, if it must be stated.
    """

    conf: BrokerConf
    time_zone: datetime.tzinfo | None = None
    version: int = 5
    forcibly_ratio: float | None = None
    warning_ratio: float | None = None
    keeps_order: bool = True
    known_since: datetime.datetime | None = None
    source_note: str = ""

    def expires_at(self, last_write_time: datetime.datetime) -> datetime.datetime:
        """Return when a segment expires, given the time of its last write."""
        if self.known_since is not None and last_write_time <= self.known_since:
            return last_write_time
        return last_write_time + self.conf.file_reserved_hours * _HOUR

    @property
    def max_deletions_per_pass(self) -> int:
        """Largest number of segments that the broker deletes in one pass of its cleaning service."""
        return self.conf.delete_batch if self.version >= 5 else _DEFAULT.delete_batch

    @property
    def forced_deletion_percent(self) -> int:
        """Disk usage in percent above which segments are deleted at any age."""
        if self.version >= 5:
            return min(max(_to_percent(self.forcibly_ratio, self.conf.clean_forcibly_percent), 30), 85)
        return _to_percent(self.forcibly_ratio, _DEFAULT.clean_forcibly_percent)

    @property
    def refusal_percent(self) -> int:
        """Disk usage in percent above which the broker refuses messages."""
        if self.version >= 5:
            return min(max(_to_percent(self.warning_ratio, self.conf.warning_percent), 35), 90)
        return _to_percent(self.warning_ratio, _DEFAULT.warning_percent)

    def next_delete_hour(self, moment: datetime.datetime) -> datetime.datetime:
        """Return the first time at or after `moment` that is in an hour of `deleteWhen`."""
        moment = moment.astimezone(datetime.UTC)
        for _ in range(_LONGEST_WAIT_HOURS):
            local = moment.astimezone(self.time_zone)
            if local.hour in self.conf.delete_hours:
                return moment
            past = datetime.timedelta(minutes=local.minute, seconds=local.second, microseconds=local.microsecond)
            moment += _HOUR - past
        raise AssertionError(
            f"expected one of the hours {self.conf.delete_hours} of deleteWhen within three days, found none"
        )

    def possible_deletions(
        self, expiry_time: datetime.datetime, disk: Disk, now: datetime.datetime, freed_bytes: int
    ) -> Iterator[tuple[datetime.datetime, DeletionCause]]:
        """Yield each possible cause for deleting a segment, with the earliest time at which that cause can apply.

        Args:
            expiry_time: time at which it and all segments before it are expired.
            disk: a disk whose usage counts.
            now: current time; no deletion is earlier.
            freed_bytes: bytes on this disk that are deleted before.
        """
        ready = max(expiry_time, now)
        yield self.next_delete_hour(ready), DeletionCause.TIME
        full = disk.time_when_usage_exceeds(self.conf.disk_max_used_percent, now, freed_bytes)
        if full is not None:
            yield max(ready, full), DeletionCause.DISK
        if not self.conf.cleans_forcibly:
            return
        forcibly = min(self.forced_deletion_percent, self.refusal_percent)
        forced = disk.time_when_usage_exceeds(forcibly, now, freed_bytes)
        if forced is None:
            return
        if self.version >= 5:
            yield forced, DeletionCause.FORCED
            return
        yield self.next_delete_hour(forced), DeletionCause.FORCED
        if full is not None:
            yield max(forced, full), DeletionCause.FORCED


def _to_percent(ratio: float | None, default: int) -> int:
    """Return a ratio as whole percent, as brokers compare it with disk usage; `default` if it is not set."""
    return default if ratio is None else int(ratio * 100 + 1e-9)
