"""The facts of an archive run that a page shows, and the interface of what writes the page."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from commitlake.connectors.lake.archive_log import CommittedRange, RunCounts
from commitlake.connectors.lake.paths import LakePaths
from commitlake.pipelines.quality.figures import PageFigures
from commitlake.pipelines.quality.report import QualityReport
from commitlake.pipelines.quality.verdict import RunVerdict


@dataclass(frozen=True, slots=True)
class ShownRun:
    """An archive run that was committed, or that a critical expectation stopped.

    Attributes:
        lake: Where the tables lie.
        run_id: The run's, as in `archive_runs`.
        verdict: On the run.
        ranges: What it took, or was to take, of each store.
        report: The suites' judgement; None where they were not asked.
        figures: Sums of its profile; empty where it was not judged.
        sequence: Number of its commit; None where it was stopped.
        counts: What it counted; None where it was stopped.
        metadata_bytes: Of its data files.
        pack_bytes: Of its packs.
        started_at: UTC.
        seconds: How long it took; None where it was stopped.
    """

    lake: LakePaths
    run_id: str
    verdict: RunVerdict
    ranges: Mapping[str, CommittedRange] = field(default_factory=dict)
    report: QualityReport | None = None
    figures: PageFigures = field(default_factory=PageFigures)
    sequence: int | None = None
    counts: RunCounts | None = None
    metadata_bytes: int = 0
    pack_bytes: int = 0
    started_at: datetime.datetime | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class RunPage:
    """Interface of a page that shows runs.

    Attributes:
        path: Of the page.
        show: Writes the page of a run; a file of that name is replaced.
    """

    path: Path
    show: Callable[[ShownRun], None]
