"""Disk usage as the broker computes it, and a forecast of when it exceeds a limit."""

from __future__ import annotations

import datetime
import os
from dataclasses import dataclass
from pathlib import Path

_FAR_SECONDS = 100 * 365 * 86400.0


@dataclass(frozen=True, slots=True)
class Disk:
    """Usage of a file system at a moment.

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
        """Usage in percent. The broker rounds up, which makes no difference in its comparisons with whole percents."""
        return 100 * self.used / self.entire if self.entire else 0.0

    def time_of_excess(self, percent: int, now: datetime.datetime, freed: int = 0) -> datetime.datetime | None:
        """Return the first moment at which usage exceeds a limit, or None if it never does.

        Args:
            percent: the limit.
            now: time at which the disk was read.
            freed: bytes that are deleted before.
        """
        missing = self.entire * percent // 100 - (self.used - freed)
        if missing < 0:
            return now
        if self.growth <= 0 or missing / self.growth > _FAR_SECONDS:
            return None
        return now + datetime.timedelta(seconds=missing / self.growth)


def read_disk(folder: Path) -> Disk:
    """Read the usage of a folder's file system, as java.io.File's getTotalSpace and similar methods do.

    Raises:
        OSError: if the folder does not exist.
    """
    system = os.statvfs(folder)
    used = system.f_frsize * (system.f_blocks - system.f_bfree)
    return Disk(folder.stat().st_dev, used, used + system.f_frsize * system.f_bavail)
