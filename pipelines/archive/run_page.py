"""Data on an archive run that a page shows, and the interface for writing the page."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from commitlake.connectors.lake.archive_commits import CommittedRange, RunCounts
from commitlake.connectors.lake.lake import Lake
from commitlake.pipelines.quality.page_figures import RunPageSummary
from commitlake.pipelines.quality.report import QualityReport, RunVerdict


def commit_numbers_text(sequences: Sequence[int]) -> str:
    """Return the numbers of a run's commits as text, in order.

    >>> commit_numbers_text([3]), commit_numbers_text([3, 4, 5]), commit_numbers_text([3, 5])
    ('run 3', 'runs 3 to 5', '2 of the runs 3 to 5')
    """
    first, last = sequences[0], sequences[-1]
    if first == last:
        return f"run {last}"
    others = "" if last - first + 1 == len(sequences) else f"{len(sequences)} of the "
    return f"{others}runs {first} to {last}"


@dataclass(frozen=True, slots=True)
class ShownRun:
    """An archive run that was committed, or that a critical expectation stopped.

    Attributes:
        lake: The lake.
        run_id: Id of the run, as in `archive_runs`.
        verdict: Verdict on the run.
        ranges: Ranges of each store that it took, or was to take.
        report: Results of the suites; None if they did not run.
        figures: Sums of its profile; empty if it was not judged.
        sequence: Number of its commit; None if it was stopped.
        counts: Its counts; None if it was stopped.
        metadata_bytes: Size of its data files.
        pack_bytes: Size of its packs.
        started_at: Start of the run; UTC.
        seconds: Duration; None if it was stopped.
        problems: Sentences on files beside the logs that could not be read.
        earlier: Number and id of the run's other commits, if it made several.
        newer: Sentences on messages of the stores that the run does not reach.
    """

    lake: Lake
    run_id: str
    verdict: RunVerdict
    ranges: Mapping[str, CommittedRange] = field(default_factory=dict)
    report: QualityReport | None = None
    figures: RunPageSummary = field(default_factory=RunPageSummary)
    sequence: int | None = None
    counts: RunCounts | None = None
    metadata_bytes: int = 0
    pack_bytes: int = 0
    started_at: datetime.datetime | None = None
    seconds: float | None = None
    problems: Sequence[str] = ()
    earlier: Sequence[tuple[int, str]] = ()
    newer: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class RunPage:
    """Interface of the HTML page that shows archive runs.

    Attributes:
        path: Path of the page; None if none is written.
        show: Writes the page of a run and replaces a file of that name.
    """

    path: Path | None
    show: Callable[[ShownRun], None]
