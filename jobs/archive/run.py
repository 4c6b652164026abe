"""The archive run of the command line, in a separate module because its imports take longer than parsing arguments."""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from commitlake.connectors.hbase.errors import HBaseError
from commitlake.connectors.lake.archive_commits import read_last_commit
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.reading.errors import EmptyStoreError
from commitlake.connectors.runtime.runner import Runner
from commitlake.jobs.archive.arguments import ArchiveOptions, make_broker_source
from commitlake.jobs.archive.offset_snapshots import (
    PeriodicSnapshots,
    append_snapshots,
    read_offset_snapshots,
    unreadable_offsets_sentences,
)
from commitlake.jobs.archive.report import TITLE, archive_report, make_run_page_writer, summary_lines
from commitlake.jobs.arguments.broker_name import BrokerName, choose_broker_name
from commitlake.jobs.arguments.evidence_key import last_number_with_evidence, read_evidence_key, write_evidence
from commitlake.jobs.arguments.lake_location import open_lake_argument
from commitlake.jobs.arguments.runner import get_spark_session, make_runner
from commitlake.jobs.arguments.sizes import size_text
from commitlake.jobs.arguments.store_layout import find_formats
from commitlake.jobs.cli.command import JobError
from commitlake.jobs.cli.lost_range_warnings import warn_of_lost_ranges
from commitlake.jobs.cli.progress import runner_progress
from commitlake.jobs.cli.run_metrics import add_to_counter
from commitlake.jobs.cli.terminal import print_line
from commitlake.jobs.report.page_file import PageFile, check_page_file, write_page_on_failure
from commitlake.pipelines.archive.body_location import check_bodies_writable
from commitlake.pipelines.archive.quality_check import CriticalQualityError
from commitlake.pipelines.archive.result import ArchivePageWriter, Result
from commitlake.pipelines.archive.run import MIB, Config, OnBadRange, finish_earlier_runs, plan_work
from commitlake.pipelines.masking.archive_masks import parse_archive_masks
from commitlake.pipelines.quality.judge_subprocess import JudgeSubprocess
from commitlake.schemas.errors import ExitCode

if TYPE_CHECKING:
    from commitlake.connectors.hbase.options import HBaseOptions

VERSION = importlib.metadata.version("commitlake")
_COMMIT_BYTES_PER_CORE = 8 << 30  # a core reads it in about a minute
_ON_REFUSAL = {
    None: OnBadRange.KEEP,
    "fail": OnBadRange.FAIL,
    "quarantine": OnBadRange.ACCEPT,
    "record": OnBadRange.ACCEPT,
}


def run_archive(command: ArchiveOptions, quality_judge: JudgeSubprocess | None = None) -> ExitCode:
    """Find the new messages, start Spark only if there are any, and print the result.

    Args:
        quality_judge: the process that judges the run; started if there are new messages. By default this process
            judges.
    """
    file = check_page_file(command.html_report_path)
    lake = open_lake_argument(command)
    facts = [("Lake", lake.root), ("Store", command.store or f"brokers of {command.from_broker}")]
    with write_page_on_failure(file, "archive", TITLE, facts, lake, shown_errors=(CriticalQualityError, HBaseError)):
        code = _archive_into_lake(command, lake, quality_judge, file)
    return max(code, ExitCode.DAMAGE if warn_of_lost_ranges("archive", lake) else ExitCode.OK)


def _archive_into_lake(
    command: ArchiveOptions, lake: Lake, quality_judge: JudgeSubprocess | None, page_file: PageFile | None
) -> ExitCode:
    read_evidence_key(command)  # an unusable key fails before any work is done
    name = _find_store_name(command, lake)
    config = Config(
        store=command.store or "",
        source=None if command.from_broker is None else make_broker_source(command),
        lake=lake,
        bodies_moved=command.bodies_moved,
        broker=name.name,
        layout=find_formats(command),
        max_partition_bytes=command.partition_mib * MIB,
        on_corrupt=_ON_REFUSAL[command.on_corrupt],
        on_gap=_ON_REFUSAL[command.on_gap],
        parser_version=VERSION,
        keys=not command.no_keys,
        edges=not command.no_edges,
        quality=not command.no_quality,
        hbase=_hbase_options(command),
        page=_choose_page_writer(command, lake, page_file),
        commit_bytes=command.commit_every,
        judge=None if quality_judge is None else quality_judge.begin_judging,
        masks=parse_archive_masks(command.mask, os.environ),
    )
    if name.note and not command.quiet:
        print_line(name.note)
    if command.follow and config.source is not None:
        return _follow_brokers(command, config)
    if command.follow or command.available_now:
        return _follow_stores(command, config)
    # Before the ends of the logs are read, so that this run archives all messages that the offsets have passed.
    snapshots = read_offset_snapshots(config)
    config = replace(config, problems=unreadable_offsets_sentences(snapshots))
    on_new = None if quality_judge is None else quality_judge.start
    work = plan_work(config, on_new_data=on_new)
    check_bodies_writable(lake)
    # Without new messages, no tasks are needed, and Spark is not started.
    if not work.has_new_data and config.hbase is None:
        result = finish_earlier_runs(config, work)
    else:
        from commitlake.pipelines.archive.commit_series import archive_concurrently

        runner = make_runner(command, "archive", lake.s3)
        config = _set_default_commit_bytes(config, runner)
        progress = partial(archive_progress, quiet=command.quiet)
        committed = partial(_print_result, command)
        result = archive_concurrently(runner, config, work, progress, on_committed=committed)
    if result.sequence or work.last.sequence:
        append_snapshots(config, snapshots, work.snapshot.ranges)
    if page_file is not None and not page_file.is_written:
        page_file.write(archive_report(result))
    return _print_result(command, result)


def _find_store_name(command: ArchiveOptions, lake: Lake) -> BrokerName:
    """Return the name under which the lake has the store; no name if messages are pulled from brokers."""
    if command.from_broker is not None:
        return BrokerName(None)
    last = read_last_commit(lake)
    known = () if last is None else tuple(last.stores)
    try:
        return choose_broker_name(
            command.store or "", command.broker, command.broker_conf, known, find_formats(command)
        )
    except EmptyStoreError:  # reported later, or waited for with --follow
        return BrokerName(command.broker)


def default_page_writer(lake: Lake) -> ArchivePageWriter | None:
    """Return the function that writes a run's page into the lake; None if the lake is not a folder."""
    return None if lake.report_page_path is None else make_run_page_writer(PageFile(Path(lake.report_page_path)))


def _choose_page_writer(command: ArchiveOptions, lake: Lake, page_file: PageFile | None) -> ArchivePageWriter | None:
    """Return the function that writes each run's page, to a file or to the lake; None if no page is requested."""
    if page_file is not None:
        return make_run_page_writer(page_file)
    return None if command.no_quality else default_page_writer(lake)


def _hbase_options(command: ArchiveOptions) -> HBaseOptions | None:
    if command.hbase is None:
        return None
    from commitlake.connectors.hbase.options import HBaseOptions

    return HBaseOptions.of_address(command.hbase, **dict(command.hbase_option))


def _follow_stores(command: ArchiveOptions, config: Config) -> ExitCode:
    """Archive messages of stores as they arrive, until a signal, and return the worst exit code of all runs."""
    from commitlake.connectors.spark.connect_session import is_connect
    from commitlake.jobs.archive.follow_stores import StoreFollower, find_unfinished_work

    config.lake.check_writable()
    check_bodies_writable(config.lake)
    left = find_unfinished_work(config)
    session = get_spark_session("archive", config.lake.s3)
    if is_connect(session):
        raise JobError(
            "--follow and --available-now do not work with Spark Connect, where the code that archives each batch "
            "would run on the server: use a Spark session with a JVM in this process",
            "leave both out: a run archives all messages that are there",
        )
    worst = ExitCode.OK

    def report_run(result: Result) -> None:
        nonlocal worst
        worst = max(worst, _print_result(command, result))

    interval = None if command.available_now else command.trigger
    snapshots = PeriodicSnapshots(config, command.snapshot_every)

    def take_due_snapshot() -> None:
        if snapshots.take_snapshot_if_due():
            follower.add_deliveries()

    follower = StoreFollower(session, config, report_run, take_due_snapshot)
    follower.follow_store(interval, command.max_mib_per_run * MIB, left)
    return worst


def _follow_brokers(command: ArchiveOptions, config: Config) -> ExitCode:
    """Archive messages of live brokers as they arrive, until a signal, and return the worst exit code of all runs."""
    from commitlake.jobs.archive.follow_brokers import BrokerFollower

    config.lake.check_writable()
    check_bodies_writable(config.lake)
    worst = ExitCode.OK

    def report_run(result: Result) -> None:
        nonlocal worst
        worst = max(worst, _print_result(command, result))

    runner = make_runner(command, "archive", config.lake.s3)
    config = _set_default_commit_bytes(config, runner)
    BrokerFollower(runner, config, report_run, command.snapshot_every).follow_brokers(command.trigger)
    return worst


def _set_default_commit_bytes(config: Config, runner: Runner) -> Config:
    if config.commit_bytes is not None:
        return config
    return replace(config, commit_bytes=_COMMIT_BYTES_PER_CORE * runner.cores)


def _print_result(command: ArchiveOptions, result: Result) -> ExitCode:
    add_to_counter("archive_messages", result.messages)
    add_to_counter("archive_log_bytes", result.bytes)
    add_to_counter("archive_quarantined_ranges", result.quarantined)
    add_to_counter("archive_gaps", result.gaps)
    if not command.quiet:
        for line in summary_lines(result):
            print_line(line)
    _sign_evidence(command, result)
    return ExitCode.DAMAGE if result.verdict.is_damage else ExitCode.OK


def _sign_evidence(command: ArchiveOptions, result: Result) -> None:
    """Sign evidence for each archive run that has none yet, for example because the run was killed."""
    key = read_evidence_key(command)
    if key is None:
        return
    from commitlake.pipelines.evidence.archive_evidence import collect_archive_evidence

    lake, last = result.lake, last_number_with_evidence(result.lake, "archive")
    if last is None:
        if not result.sequence:
            return
        last = result.commits[0][0] - 1  # evidence begins with this run
    line = write_evidence(lake, key, "archive", collect_archive_evidence(lake, last))
    if line is not None and not command.quiet:
        print_line(line)


def archive_progress(runner: Runner, log_bytes: int, *, quiet: bool) -> AbstractContextManager[Callable[[int], None]]:
    """Show the progress of an archive run's tasks."""
    return runner_progress(runner, f"archiving {size_text(log_bytes)}", log_bytes, quiet=quiet)
