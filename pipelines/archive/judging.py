"""Quality checks of a run before its commit, and the rows that are kept of them.

A run that a critical expectation stops leaves `messages` and what follows it as they were, and rows in
`quality_results` that say why.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from commitlake.connectors.lake.committer import append_rows
from commitlake.connectors.lake.data_files import DataFile
from commitlake.connectors.lake.manifest import ManifestRow
from commitlake.connectors.lake.paths import LakePaths
from commitlake.connectors.lake.plain_files import write_plain_file
from commitlake.connectors.lake.refusal_counts import RefusalCounts
from commitlake.pipelines.archive.profiles_file import open_profiles_file
from commitlake.pipelines.archive.shown import RunPage, ShownRun
from commitlake.pipelines.archive.staged import gather_profiles
from commitlake.pipelines.archive.work import ArchiveWork
from commitlake.pipelines.quality.facts import BrokerFacts, RunFacts
from commitlake.pipelines.quality.figures import PageFigures
from commitlake.pipelines.quality.profile_judge import BeginJudging, ProfileJudge
from commitlake.pipelines.quality.report import QualityReport, brokers_concerned, sentences
from commitlake.pipelines.quality.result_rows import to_table
from commitlake.pipelines.quality.stretches import stretches_of
from commitlake.pipelines.quality.verdict import Losses
from commitlake.schemas.errors import CommitLakeError, ExitCode
from commitlake.schemas.tables.quality_results import QUALITY_RESULTS


class CriticalQualityError(CommitLakeError):
    """A critical expectation stopped the run; the lake's messages are unchanged."""

    exit_code = ExitCode.DAMAGE


@dataclass(frozen=True, slots=True)
class Judged:
    """The results of the checks that are kept.

    Attributes:
        files: written for the tables `profiles` and `quality_results`, which no table knows of yet.
        warnings: sentences on expectations that were not met.
        report: the suites' judgement; None where they were not asked.
        figures: what a page shows beside the judgement.
    """

    files: Mapping[str, DataFile] = field(default_factory=dict)
    warnings: Sequence[str] = field(default=())
    report: QualityReport | None = None
    figures: PageFigures = field(default_factory=PageFigures)


def judge_run(
    lake: LakePaths,
    work: ArchiveWork,
    manifest: Sequence[ManifestRow],
    page: RunPage | None = None,
    losses: Losses | None = None,
    begin: BeginJudging | None = None,
) -> Judged:
    """Let the suites judge what the tasks have seen, piece by piece: no more than one is in memory.

    Args:
        lake: where the tables lie.
        work: the run's.
        manifest: what the tasks told.
        page: where to show a run that the judgement stops; nowhere where not given. Others are shown once they are
            committed: before that, nobody knows that the verdict will hold.
        losses: what the run could not archive as it should, for the verdict.
        begin: begins to judge; this process judges where not given.

    Raises:
        CriticalQualityError: where a critical expectation was not met.
        JudgeError: where one could not be judged.
        ProfileError: where a task's profile is gone or damaged.
    """
    run_id = work.commit.run_id
    judging, figures = (begin or _judge_here)(_facts(work, manifest)), PageFigures()
    with open_profiles_file(lake, run_id) as profiles:  # not there, where the run is stopped
        for piece in gather_profiles(lake, manifest):
            for stretch in stretches_of(piece):
                judging.add(stretch)
                figures.add(stretch)
                profiles.add(stretch)
        report = judging.report()
        verdict = (losses or Losses()).verdict(report)
        results = to_table(report, run_id=run_id, verdict=verdict)
        if not report.passed:
            append_rows(lake.quality_results, QUALITY_RESULTS, results)
            if page is not None:
                page.show(ShownRun(lake, run_id, verdict, work.commit.ranges, report, figures))
            raise _stopped(report, work, page.path if page else None)
    written = write_plain_file(results, lake.quality_results, f"part-{run_id}.zstd.parquet")
    return Judged({"profiles": profiles.written, "quality_results": written}, sentences(report), report, figures)


def _judge_here(facts: RunFacts) -> ProfileJudge:
    from commitlake.pipelines.quality.judge import Judging  # noqa: PLC0415 (pandas, which a process of its own loads)

    return Judging(facts=facts)


def _stopped(report: QualityReport, work: ArchiveWork, where: Path | None) -> CriticalQualityError:
    told = "\n  ".join(sentences(report))
    shown = f" {where} shows it." if where is not None else ""
    return CriticalQualityError(
        f"{len(report.critical_failures)} critical expectations were not met, and nothing was archived.{shown} "
        f"{_ways_out(report, work)}\n  {told}"
    )


def _ways_out(report: QualityReport, work: ArchiveWork) -> str:
    """Return what the user can do at once, such as archiving the other brokers."""
    without = "'--no-quality' archives all as it is."
    concerned = brokers_concerned(report)
    others = set(work.commit.ranges) - set(concerned or work.commit.ranges)
    if not others or concerned is None:
        return without
    names = ", ".join(ascii(name) for name in concerned)
    return f"This is of {names} alone: a --store that names only the others archives these meanwhile. {without}"


def _log_bytes(work: ArchiveWork, broker: str) -> int | None:
    """Return the bytes of the log that a run took; None where it took what queues lead to."""
    progress, part = work.commit.stores.get(broker), work.commit.ranges[broker]
    return part.end - part.start if progress is None or progress.pulled is None else None


def _facts(work: ArchiveWork, manifest: Sequence[ManifestRow]) -> RunFacts:
    refused: dict[str, RefusalCounts] = defaultdict(RefusalCounts)
    for row in manifest:
        for broker, counts in row.refusal_counts.items():
            refused[broker] += counts
    brokers = {
        broker: BrokerFacts(
            log_bytes=_log_bytes(work, broker),
            bad_ranges=refused[broker].bad_ranges,
            missing_ranges=refused[broker].missing_ranges,
            marked_rows=refused[broker].marked_rows,
        )
        for broker in work.commit.ranges
    }
    return RunFacts(brokers, sum(row.rows for row in manifest if row.table == "messages"))
