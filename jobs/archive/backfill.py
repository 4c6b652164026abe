"""`archive --backfill`: add the rows that a table of the lake lacks, computed from the lake's messages."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from commitlake.connectors.lake.archive_run_completion import finish_runs
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.runtime.local_runner import ProcessRunner
from commitlake.connectors.runtime.runner import Runner
from commitlake.jobs.archive.arguments import ArchiveOptions
from commitlake.jobs.archive.run import VERSION
from commitlake.jobs.arguments.lake_location import open_lake_argument
from commitlake.jobs.arguments.runner import make_runner
from commitlake.jobs.cli.progress import counted_progress, runner_progress
from commitlake.jobs.cli.terminal import print_line
from commitlake.pipelines.archive.derived_table_updates import unreadable_trace_notes
from commitlake.pipelines.edges.table_update import catch_up_edges
from commitlake.pipelines.lag_minutes.backfill import backfill_lag_minutes
from commitlake.pipelines.topic_minutes.backfill import backfill_minutes
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.formatted_counts import format_count


def backfill_table(command: ArchiveOptions) -> ExitCode:
    """Add the rows that one of the derived tables, such as `topic_minutes`, lacks, and print how many were added."""
    lake = open_lake_argument(command)
    lake.table("messages")
    lake.check_writable()
    finish_runs(lake, "", VERSION)
    runner = make_runner(command, "archive", lake.s3)
    tables = {
        "edges": _backfill_edges,
        "lag_minutes": _backfill_lag_minutes,
        "topic_minutes": _backfill_topic_minutes,
    }
    return tables[command.backfill or ""](command, lake, runner)


def _backfill_topic_minutes(command: ArchiveOptions, lake: Lake, runner: Runner) -> ExitCode:
    started = time.monotonic()
    with runner_progress(runner, f"counting messages of {lake.root}", 0, quiet=command.quiet):
        done = backfill_minutes(lake, runner)
    if not command.quiet:
        seconds = time.monotonic() - started
        counted = (
            f"{format_count(done.messages, 'message')} counted, {format_count(done.rows, 'row')} added"
            if done.messages
            else "lacks nothing"
        )
        print_line(f"topic_minutes: {counted} ({seconds:.1f} s)")
    return ExitCode.OK


def _backfill_edges(command: ArchiveOptions, lake: Lake, runner: Runner) -> ExitCode:
    with runner_progress(runner, f"linking messages of {lake.root}", 0, quiet=command.quiet):
        done = catch_up_edges(lake, runner)
    if not command.quiet:
        added = f"{format_count(done.rows, 'row')} written" if done.rows else "lacks nothing"
        print_line(f"edges: {added} ({done.seconds:.1f} s)")
        for note in unreadable_trace_notes(done):
            print_line(f"  {note}")
    return ExitCode.OK


def _backfill_lag_minutes(command: ArchiveOptions, lake: Lake, runner: Runner) -> ExitCode:
    started = time.monotonic()
    if not command.is_on_spark:
        runner = ProcessRunner(command.threads)  # most of the work is Python's, for which threads have one core

    def show_progress(total: int) -> AbstractContextManager[Callable[[int], None]]:
        return counted_progress(f"computing lag in {lake.root}", total, "minutes", quiet=command.quiet)

    done = backfill_lag_minutes(lake, runner, show_progress)
    if not command.quiet:
        again = f", {format_count(done.repeated, 'minute')} computed again" if done.repeated else ""
        added = (
            f"{format_count(done.minutes, 'minute')} computed, {format_count(done.rows, 'row')} added{again}"
            if done.minutes
            else "lacks nothing"
        )
        print_line(f"lag_minutes: {added} ({time.monotonic() - started:.1f} s)")
    return ExitCode.OK
