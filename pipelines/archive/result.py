"""The result of an archive run, and the interface for writing a page about it."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from commitlake.connectors.lake.backoff import TableUpdate
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.reading.snapshots import StoreRange
from commitlake.pipelines.quality.page_figures import RunPageSummary
from commitlake.pipelines.quality.report import QualityReport, RunVerdict, expectation_sentences

NOTHING_NEW = RunVerdict("nothing new")


@dataclass(frozen=True, slots=True)
class Result:
    """Result of one archive run.

    Attributes:
        lake: the lake.
        run_id: id of the run, as in `archive_runs`.
        ranges: range of each store that the run took, or was to take.
        sequence: sequence of the commit, or of the last one; 0 if nothing was committed.
        earlier: sequence and id of the run's other commits, if it made several.
        messages: number of rows added to `messages`.
        quarantined: number of rows added to `quarantine`.
        gaps: number of rows added to `gaps`.
        metadata_bytes: size of data files.
        pack_bytes: size of packs.
        started_at: start of the run, in UTC; None if nothing was committed.
        seconds: total duration.
        verdict: verdict on the run.
        report: results of the suites; None if they did not run.
        figures: sums of the run's profile; empty if it was not judged.
        updates: results of updating the tables that follow `messages`, and HBase.
        recovered: commits of earlier runs that this run completed.
        bytes_of_others: size of log that was new at the start, but was archived by other runs meanwhile.
        notes: sentences for the summary.
        problems: sentences on files beside the logs that could not be read.
    """

    lake: Lake
    run_id: str
    ranges: Mapping[str, StoreRange]
    sequence: int = 0
    earlier: Sequence[tuple[int, str]] = ()
    messages: int = 0
    quarantined: int = 0
    gaps: int = 0
    metadata_bytes: int = 0
    pack_bytes: int = 0
    started_at: datetime.datetime | None = None
    seconds: float = 0.0
    verdict: RunVerdict = NOTHING_NEW
    report: QualityReport | None = None
    figures: RunPageSummary = field(default_factory=RunPageSummary)
    updates: Sequence[TableUpdate] = ()
    recovered: Sequence[int] = field(default=())
    bytes_of_others: int = 0
    notes: Sequence[str] = field(default=())
    problems: Sequence[str] = ()

    @property
    def commits(self) -> list[tuple[int, str]]:
        """Sequence and id of each commit of the run, in order."""
        return [*self.earlier, *([(self.sequence, self.run_id)] if self.sequence else [])]

    @property
    def bytes(self) -> int:
        """Size in bytes of the archived log ranges, summed over all stores."""
        return sum(store_range.size for store_range in self.ranges.values())

    @property
    def is_stopped(self) -> bool:
        """True if a critical expectation stopped the run before its last commit."""
        return self.report is not None and not self.report.has_passed

    @property
    def warnings(self) -> Sequence[str]:
        """Sentences on expectations that were not met."""
        return () if self.report is None else expectation_sentences(self.report)

    @property
    def newer_data_notes(self) -> list[str]:
        """Sentences on stores with newer messages outside the logs that were read, such as in another folder."""
        return [sentence for store_range in self.ranges.values() for sentence in store_range.newer]

    @property
    def unfinished_tables(self) -> list[str]:
        """Tables that do not have all of this run yet, because other runs committed first on every attempt."""
        return [update.table for update in self.updates if update.is_unfinished]


@dataclass(frozen=True, slots=True)
class ArchivePageWriter:
    """Interface of the HTML page that shows archive runs.

    Attributes:
        path: Path of the page; None if none is written.
        show: Writes the page of a run and replaces a file of that name.
    """

    path: Path | None
    show: Callable[[Result], None]
