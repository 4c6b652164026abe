"""Facts about a run that the suites need beside its profile."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """Facts about one broker of a run.

    Attributes:
        log_bytes: of the range that was read; None where it is not known.
        bad_ranges: stretches that held no intact record.
        missing_ranges: stretches whose segment is not there.
        marked_rows: messages with a value that no column could hold.
    """

    log_bytes: int | None = None
    bad_ranges: int = 0
    missing_ranges: int = 0
    marked_rows: int = 0

    @property
    def is_damaged(self) -> bool:
        """True if damage or a gap explains missing messages or wrong queue names."""
        return bool(self.bad_ranges or self.missing_ranges or self.marked_rows)


@dataclass(frozen=True, slots=True)
class RunFacts:
    """Facts about a run.

    Attributes:
        brokers: by name; those that gave no message, too.
        written: messages in the data files, all brokers'; None where it is not known.
        now: when the profile is judged.
    """

    brokers: Mapping[str, BrokerFacts] = field(default_factory=dict)
    written: int | None = None
    now: datetime.datetime = field(default_factory=lambda: datetime.datetime.now(datetime.UTC))
