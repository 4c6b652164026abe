"""Settings that stores of every layout have."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from commitlake.broker_lite.errors import StoreError


class FlushMode(StrEnum):
    """Time at which messages are flushed to disk: before `put` returns (SYNC), or at intervals (ASYNC)."""

    SYNC = "sync"
    ASYNC = "async"


@dataclass(frozen=True, slots=True)
class RetentionOptions:
    """Settings of retention; names and defaults follow RocketMQ's MessageStoreConfig.

    Attributes:
        file_reserved_hours: age at which a segment expires.
        delete_hours: hours of the day, in local time, in which expired segments are deleted.
        disk_max_used_percent: disk usage above which expired segments are deleted at any hour.
        clean_forcibly_percent: disk usage above which segments of any age are deleted.
        warning_percent: disk usage above which no messages are stored.
        delete_batch: maximum number of segments deleted at a time.
    """

    file_reserved_hours: int = 72
    delete_hours: tuple[int, ...] = (4,)
    disk_max_used_percent: int = 75
    clean_forcibly_percent: int = 85
    warning_percent: int = 90
    delete_batch: int = 10

    def __post_init__(self) -> None:
        """Check the values of all options.

        Raises:
            StoreError: if an option's value is invalid.
        """
        if self.file_reserved_hours < 0:
            raise StoreError(f"file_reserved_hours: expected 0 or more, found {self.file_reserved_hours}")
        if not all(0 <= hour < 24 for hour in self.delete_hours):
            raise StoreError(f"delete_hours: expected hours from 0 to 23, found {self.delete_hours}")
        for name in ("disk_max_used_percent", "clean_forcibly_percent", "warning_percent"):
            if not 0 < (percent := getattr(self, name)) <= 100:
                raise StoreError(f"{name}: expected 1 to 100, found {percent}")


def check_range(name: str, value: int, minimum: int, maximum: int) -> None:
    """Check that an option's value is within its range.

    Raises:
        StoreError: if it is not.
    """
    if not minimum <= value <= maximum:
        raise StoreError(f"{name}: expected {minimum} to {maximum}, found {value}")
