"""Quality checks of a run before its commit, and the rows that record them.

If a critical expectation stops a run, `messages` and the tables that follow it stay unchanged, and rows in
`quality_results` say why.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from commitlake.connectors.lake.committer import append_rows
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.manifest import ManifestRow, RefusalCounts
from commitlake.connectors.lake.rows.data_files import DataFile
from commitlake.connectors.lake.rows.small_table_files import write_plain_file
from commitlake.pipelines.archive.profile_files import merge_task_profiles, open_profiles_file
from commitlake.pipelines.archive.queue_ends import QueueEnds
from commitlake.pipelines.archive.result import ArchivePageWriter, Result
from commitlake.pipelines.archive.work_planning import ArchiveWork
from commitlake.pipelines.quality.expectation_input import (
    BeginJudging,
    BrokerFacts,
    ProfileJudge,
    RunFacts,
    split_by_topics,
)
from commitlake.pipelines.quality.page_figures import RunPageSummary
from commitlake.pipelines.quality.report import (
    Losses,
    QualityReport,
    brokers_with_failures,
    expectation_sentences,
    to_quality_results,
)
from commitlake.schemas.errors import CommitLakeError, ExitCode


class CriticalQualityError(CommitLakeError):
    """Error because a critical expectation stopped the run; the lake's messages are unchanged."""

    exit_code = ExitCode.DAMAGE


@dataclass(frozen=True, slots=True)
class JudgedRun:
    """Results of a run's quality checks, with the data files that record them.

    Attributes:
        files: files for the tables `profiles` and `quality_results`, which no version refers to yet.
        report: results of the suites; None if they did not run.
        figures: further sums for the page.
        incomplete: brokers whose logs have damaged or missing ranges, or were not read as a whole.
    """

    files: Mapping[str, DataFile] = field(default_factory=dict)
    report: QualityReport | None = None
    figures: RunPageSummary = field(default_factory=RunPageSummary)
    incomplete: frozenset[str] = frozenset()


def judge_run(
    lake: Lake,
    work: ArchiveWork,
    manifest: Sequence[ManifestRow],
    page: ArchivePageWriter | None = None,
    losses: Losses | None = None,
    start_judge: BeginJudging | None = None,
    queue_ends: QueueEnds | None = None,
    *,
    is_masked: bool = False,
) -> JudgedRun:
    """Check the message counts of a run's tasks by expectation suites, a few topics at a time to limit memory.

    Args:
        manifest: rows of all tasks.
        page: page on which to show a run that is stopped; None for no page. Other runs are shown after their commit,
            because the verdict is not final before.
        losses: losses of the run, for the verdict.
        start_judge: starts the judge; by default this process judges.
        queue_ends: the ends of queues after the commit before; read if they are not known.
        is_masked: True if rows may be masked.

    Raises:
        CriticalQualityError: if a critical expectation is not met.
        QualityError: if an expectation cannot be evaluated.
        ProfileError: if a task's profile is missing or damaged.
    """
    run_id = work.commit.run_id
    facts, queue_ends = _collect_run_facts(work, manifest, is_masked=is_masked), queue_ends or QueueEnds()
    queue_ends.begin_commit(
        lake, work.last, [name for name, broker in facts.brokers.items() if broker.log_bytes is not None]
    )
    judging, figures = (start_judge or _make_local_judge)(facts), RunPageSummary()
    with open_profiles_file(lake, run_id) as profiles:  # the file is dropped if the run is stopped
        for piece in merge_task_profiles(lake, manifest):
            for stretch in split_by_topics(piece):
                # The ends of earlier runs come first, so that a gap between two commits is judged like one within a
                # commit.
                judging.add_profile_part(pa.concat_tables([stretch, queue_ends.previous_end_rows(stretch)]))
                queue_ends.add_profile(stretch)
                figures.add_windows(stretch)
                profiles.add_windows(stretch)
        report = judging.make_report()
        verdict = (losses or Losses()).verdict(report)
        results = to_quality_results(report, run_id=run_id, verdict=verdict)
        if not report.has_passed:
            # In a commit of their own, because the run will not have one that could add them.
            append_rows(lake, "quality_results", results)
            if page is not None:
                page.show(Result(lake, run_id, work.snapshot.ranges, verdict=verdict, report=report, figures=figures))
            raise _quality_error(report, work, page.path if page else None)
    written = write_plain_file(results, lake, "quality_results", f"part-{run_id}.zstd.parquet")
    files = {"profiles": profiles.data_file, "quality_results": written}
    incomplete = [name for name, broker in facts.brokers.items() if broker.is_damaged or broker.log_bytes is None]
    return JudgedRun(files, report, figures, frozenset(incomplete))


def _make_local_judge(facts: RunFacts) -> ProfileJudge:
    from commitlake.pipelines.quality.profile_judge import ProfileJudging  # noqa: PLC0415 (pandas, which a process of its own loads)

    return ProfileJudging(facts=facts)


def _quality_error(report: QualityReport, work: ArchiveWork, page_path: Path | None) -> CriticalQualityError:
    problems = "\n  ".join(expectation_sentences(report))
    shown = f" {page_path} shows it." if page_path is not None else ""
    return CriticalQualityError(
        f"{len(report.critical_failures)} critical expectations were not met, and nothing of this commit was archived."
        f"{shown} {_failure_advice(report, work)}\n  {problems}"
    )


def _failure_advice(report: QualityReport, work: ArchiveWork) -> str:
    """Return a sentence on what the user can do after critical failures, such as archiving the other brokers."""
    without = "'--no-quality' archives everything as it is."
    concerned = brokers_with_failures(report)
    others = set(work.commit.ranges) - set(concerned or work.commit.ranges)
    if not others or concerned is None:
        return without
    names = ", ".join(ascii(name) for name in concerned)
    return f"Only {names} failed: a --store that names only the other brokers archives these meanwhile. {without}"


def _archived_log_bytes(work: ArchiveWork, broker: str) -> int | None:
    """Return the number of log bytes that a run read; None if it pulled from queues."""
    progress, part = work.commit.stores.get(broker), work.commit.ranges[broker]
    return part.end - part.start if progress is None or progress.pulled is None else None


def _collect_run_facts(work: ArchiveWork, manifest: Sequence[ManifestRow], *, is_masked: bool) -> RunFacts:
    refused: dict[str, RefusalCounts] = defaultdict(RefusalCounts)
    for row in manifest:
        for broker, counts in row.refusal_counts.items():
            refused[broker] += counts
    brokers = {
        broker: BrokerFacts(
            log_bytes=_archived_log_bytes(work, broker),
            bad_ranges=refused[broker].bad_ranges,
            missing_ranges=refused[broker].missing_ranges,
            marked_rows=refused[broker].marked_rows,
        )
        for broker in work.commit.ranges
    }
    written = sum(row.rows for row in manifest if row.table == "messages")
    return RunFacts(brokers, written, is_masked=is_masked)
