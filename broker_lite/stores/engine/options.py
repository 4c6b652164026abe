"""Settings that stores of every layout have."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from commitlake.broker_lite.stores.engine.errors import OptionError


class FlushMode(StrEnum):
    """When a message is on the disk: before `put` returns, or within the flush interval."""

    SYNC = "sync"
    ASYNC = "async"


@dataclass(frozen=True, slots=True)
class RetentionOptions:
    """What goes when; names and defaults are those of RocketMQ's MessageStoreConfig.

    Attributes:
        file_reserved_hours: age from which a segment may go.
        delete_hours: the hours of the day, local time, in which it does.
        disk_max_used_percent: on a fuller disk it goes at any hour.
        clean_forcibly_percent: on a fuller disk segments go at any age.
        warning_percent: on a fuller disk nothing is stored any more.
        delete_batch: segments that one turn deletes at most.
    """

    file_reserved_hours: int = 72
    delete_hours: tuple[int, ...] = (4,)
    disk_max_used_percent: int = 75
    clean_forcibly_percent: int = 85
    warning_percent: int = 90
    delete_batch: int = 10

    def __post_init__(self) -> None:
        """Refuse what makes no sense.

        Raises:
            OptionError: names the option, with what was expected and found.
        """
        if self.file_reserved_hours < 0:
            raise OptionError(f"file_reserved_hours: expected 0 or more, found {self.file_reserved_hours}")
        if not all(0 <= hour < 24 for hour in self.delete_hours):
            raise OptionError(f"delete_hours: expected hours from 0 to 23, found {self.delete_hours}")
        for name in ("disk_max_used_percent", "clean_forcibly_percent", "warning_percent"):
            if not 0 < (percent := getattr(self, name)) <= 100:
                raise OptionError(f"{name}: expected 1 to 100, found {percent}")


def check_range(name: str, value: int, least: int, most: int) -> None:
    """Refuse an option's value that is out of its range.

    Raises:
        OptionError: names the option, with what was expected and found.
    """
    if not least <= value <= most:
        raise OptionError(f"{name}: expected {least} to {most}, found {value}")
