"""Group dead letters by cause, export them, send them again, and track them until they are consumed or dead again.

    commitlake dlq --lake /data/lake --group billing --from -1d
    commitlake dlq redrive --lake /data/lake --group billing --cause 1 --namesrv 127.0.0.1:9876 --follow

It starts no JVM. Exit codes: 0 if there is no dead letter, or all redriven messages were consumed; 1 if the target did
not answer, or messages are still waiting; 2 for a wrong lake, option or cause; 3 if messages are dead again, were lost
(in the lake, too) or could not be sent, or a table is damaged; 4 if the target cannot accept them; 130 if the job was
stopped.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.owned_folders import check_no_owner
from commitlake.connectors.lake.packs.stores import open_store
from commitlake.jobs.cli.command import job_parser, run_job
from commitlake.jobs.cli.damaged_files import naming_damaged_files
from commitlake.jobs.cli.places import bodies_of, lake_of
from commitlake.jobs.cli.terminal import print_line
from commitlake.jobs.cli.times import join_times
from commitlake.jobs.dlq.arguments import EXPORT, OUTCOME, REDRIVE, SHOW, add_arguments, check
from commitlake.jobs.dlq.choice import choose, explaining_where
from commitlake.pipelines.dead_letters.export import ExportFormat, export_letters
from commitlake.schemas.counts import count_text
from commitlake.schemas.errors import ExitCode

DESCRIPTION = (
    "Show the dead letters of consumer groups by cause: group, original topic, tag, attempts, the error that the "
    "client reported (property EXCEPTION or ERROR), and the shape of the body's JSON. 'export' writes them to a file. "
    "'redrive' sends them to their topics again, as 'replay' does: all groups of the topic receive them, not only the "
    "one that failed. 'outcome' shows which of them were consumed, are dead again, or are waiting; --follow waits for "
    "the result. In CSV, a text that begins with =, +, -, @, a quote or a tab gets a leading quote ('), so that a "
    "spreadsheet does not run it as a formula; --raw turns that off, and JSON lines and Parquet are exact."
)
EXAMPLES = (
    ("dlq --lake lake --from -1d", "causes of the last day, with a chart over time"),
    ("dlq --lake lake --group billing --cause 1", "one cause, with its newest dead letters"),
    ("dlq --lake lake --group billing --samples 2 --json", "all details, for programs"),
    ("dlq export --lake lake --group billing --out letters.csv --body", "a file for a spreadsheet"),
    ("dlq redrive --lake lake --group billing --cause 1 --dry-run", "show what would be sent again"),
    ("dlq redrive --lake lake --group billing --cause 57524a --namesrv 127.0.0.1:9876 --rate 100/s --follow",
     "send them again, and wait until each is consumed or dead again"),
    ("dlq outcome 20261117-142003-5f2a1c --lake lake", "show what became of them so far"),
)  # fmt: skip
_READ = ("messages", "replays", "replay_messages", "consumer_offsets")


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of the job's arguments."""
    parser = job_parser("dlq", DESCRIPTION, EXAMPLES)
    add_arguments(parser)
    return parser


def job(arguments: argparse.Namespace) -> ExitCode:
    """Run the chosen action."""
    check(arguments)
    lake = lake_of(arguments)
    with naming_damaged_files(lake, _READ):
        return _act(arguments, lake)


def _act(arguments: argparse.Namespace, lake: Lake) -> ExitCode:
    from commitlake.jobs.dlq.outcome import print_outcome
    from commitlake.jobs.dlq.redrive import redrive
    from commitlake.jobs.dlq.report import show

    acts = {SHOW: show, EXPORT: export, REDRIVE: redrive, OUTCOME: print_outcome}
    return acts[arguments.action](arguments, lake)


def main(argv: Sequence[str] | None = None) -> int:
    """Run `commitlake dlq`."""
    return run_job(build_parser(), job, join_times(sys.argv[1:] if argv is None else argv, "--from", "--to"))


def export(arguments: argparse.Namespace, lake: Lake) -> ExitCode:
    """Write the selected dead letters to a file, outside tables and stores."""
    check_no_owner(arguments.out, "--out")
    chosen = choose(arguments, lake, samples=None)
    packs = chosen.packs
    if arguments.body and packs is None:  # --no-shape reads no bodies to find causes
        packs = open_store(bodies_of(arguments, lake))
    with explaining_where(arguments, lake):
        count = export_letters(
            chosen.table,
            chosen.narrowed(),
            packs,
            Path(arguments.out),
            ExportFormat(arguments.format),
            with_bodies=arguments.body,
            is_raw=arguments.raw,
        )
    if not arguments.quiet:
        print_line(f"{count_text(count, 'dead letter')} written to {arguments.out}")
    return chosen.exit_code
