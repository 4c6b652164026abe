"""What `archive --backfill` does: it counts messages of the lake in a table that lacks them."""

from __future__ import annotations

import argparse
import time

from commitlake.connectors.lake.follower import finish_runs
from commitlake.connectors.lake.lost_tables import check_writable
from commitlake.connectors.lake.reader import open_table
from commitlake.jobs.archive.run import VERSION
from commitlake.jobs.cli.places import lake_of
from commitlake.jobs.cli.progress import runner_progress
from commitlake.jobs.cli.runner import make_runner
from commitlake.jobs.cli.terminal import print_line
from commitlake.pipelines.topic_minutes.backfill import backfill_minutes
from commitlake.schemas.errors import ExitCode


def backfill(arguments: argparse.Namespace) -> ExitCode:
    """Count what `topic_minutes` lacks, and tell how much that was."""
    started = time.monotonic()
    lake = lake_of(arguments)
    open_table(lake, "messages")
    check_writable(lake)
    finish_runs(lake, "", VERSION)
    runner = make_runner(arguments, "archive", lake.s3)
    with runner_progress(runner, f"counting messages of {lake.root}", 0, quiet=arguments.quiet):
        done = backfill_minutes(lake, runner)
    if not arguments.quiet:
        seconds = time.monotonic() - started
        counted = f"{done.messages:,} messages counted, {done.rows:,} rows added" if done.messages else "lacks nothing"
        print_line(f"topic_minutes: {counted} ({seconds:.1f} s)")
    return ExitCode.OK
