"""Interface of judges of a profile that comes in parts: `judge.Judging` in this process, or a `JudgeProcess`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import pyarrow as pa

from commitlake.pipelines.quality.facts import RunFacts
from commitlake.pipelines.quality.report import QualityReport


class ProfileJudge(Protocol):
    """Judges one profile."""

    def add(self, stretch: pa.Table) -> None:
        """Judge the windows of topics; see `Judging.add`."""
        ...

    def report(self) -> QualityReport:
        """Return the results for all parts; see `Judging.report`."""
        ...


BeginJudging = Callable[[RunFacts], ProfileJudge]
"""Starts to judge a run's profile by all suites, with facts of the run."""
