"""Facts of a run that the suites need in addition to its profile."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """Facts about one broker of a run.

    Attributes:
        log_bytes: size of the range that was read; None if not known.
        bad_ranges: number of ranges without an intact record.
        missing_ranges: number of ranges whose segment is missing.
        marked_rows: number of messages with a value that no column can store; their rows are there.
    """

    log_bytes: int | None = None
    bad_ranges: int = 0
    missing_ranges: int = 0
    marked_rows: int = 0

    @property
    def is_damaged(self) -> bool:
        """True if damage or a gap explains missing messages."""
        return bool(self.bad_ranges or self.missing_ranges)


@dataclass(frozen=True, slots=True)
class RunFacts:
    """Facts of a run.

    Attributes:
        brokers: facts by broker name, including brokers without messages.
        written: number of messages in the data files of all brokers; None if not known.
        now: time of the judgement.
        is_masked: True if rows may be masked: a masked body may be larger than its record.
    """

    brokers: Mapping[str, BrokerFacts] = field(default_factory=dict)
    written: int | None = None
    now: datetime.datetime = field(default_factory=lambda: datetime.datetime.now(datetime.UTC))
    is_masked: bool = False
