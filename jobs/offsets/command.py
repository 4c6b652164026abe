"""Show the offsets that a group had at a time, or needs to consume from a time; and set them.

    commitlake offsets --lake /data/lake --group billing --at 2026-11-17T14:00
    commitlake offsets --lake /data/lake --group billing --consume-from -2h --namesrv 127.0.0.1:9876 --apply

Reads `messages`, `consumer_offsets` and `subscriptions` of a lake, or a store's own files; with --namesrv, asks the
brokers which messages they still have. Writes a row for each queue with the resulting lag, or commands of mqadmin; with
--apply, sets the offsets and reads them back. A second run sets nothing. It never starts Spark. Exit codes: 0; 1 if a
broker does not answer; 2 for a wrong lake, store, name or option; 3 if an offset is unknown or could not be set, or the
lake has lost messages that it depends on; 4 if the group has clients, or the answer was no.
"""

from __future__ import annotations

import argparse
import datetime
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING

from commitlake.jobs.cli.command import JobError, job_parser, run_job
from commitlake.jobs.cli.lost_ranges import warn_of_lost_ranges
from commitlake.jobs.cli.names import warn
from commitlake.jobs.cli.output_forms import add_format_argument, add_json_argument
from commitlake.jobs.cli.places import lake_of
from commitlake.jobs.cli.terminal import print_line
from commitlake.jobs.cli.times import join_times, parse_time
from commitlake.jobs.lag.arguments import add_source_arguments
from commitlake.schemas.errors import ExitCode

if TYPE_CHECKING:
    from commitlake.pipelines.offsets.live_queues import OffsetClient

DESCRIPTION = (
    "Show the offsets of a consumer group for each queue, exact to the message: those that it had at a time (--at), "
    "from the snapshots in a lake, with lower and upper bounds between two of them; or those that it needs to consume "
    "everything stored from a time on (--consume-from). Each comes with the resulting lag. With --namesrv, the brokers "
    "are asked which messages they still have; --mqadmin prints commands that set the offsets, and --apply sets them."
)
EXAMPLES = (
    ("offsets --lake lake --group billing --at 2026-11-17T14:00", "the group's offsets at that time"),
    (("offsets --lake lake --group billing --consume-from "
     "2026-11-17T14:00"), "the offsets from which it would consume everything since then"),
    ("offsets --lake lake --group billing --consume-from -2h --topic orders --namesrv 127.0.0.1:9876 --apply",
     "make it consume the last two hours of a topic again; asks first"),
    ("offsets --lake lake --group billing --at 2026-11-17T14:00 --namesrv 127.0.0.1:9876 --mqadmin",
     "print commands for RocketMQ's mqadmin 5.x"),
    ("offsets --store /data/rocketmq/store --group billing --consume-from -2h --json", "from a store, for a program"),
)  # fmt: skip
MQADMIN = "mqadmin"


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of the job's arguments."""
    parser = job_parser("offsets", DESCRIPTION, EXAMPLES)
    parser.set_defaults(spark=False)
    add_source_arguments(parser)
    parser.add_argument("--group", action="append", required=True, help="the consumer group")
    time = parser.add_mutually_exclusive_group(required=True)
    at_help = "with --lake: the offsets that the group had at this time: 2026-11-20T14:00, ms since 1970, or -2h"
    time.add_argument("--at", type=parse_time, metavar="TIME", help=at_help)
    from_help = "for each queue, the first message stored at this time or later"
    time.add_argument("--consume-from", type=parse_time, metavar="TIME", help=from_help)
    topic_help = (
        "only this topic (default with --at: all topics for which the group had offsets; with "
        "--consume-from: all topics that it consumes, except its own retry topic)"
    )
    parser.add_argument("--topic", action="append", default=[], help=topic_help)
    broker_help = "only this store"
    parser.add_argument("--broker", action="append", default=[], help=broker_help)
    namesrv_help = (
        "the brokers' name servers, separated by semicolons: the output also shows what the brokers still have"
    )
    parser.add_argument("--namesrv", metavar="HOST:PORT", help=namesrv_help)
    add_format_argument(parser, more=(MQADMIN,))
    add_json_argument(parser)
    mqadmin_help = "same as --format mqadmin: commands for mqadmin 5.x, ready to be pasted"
    parser.add_argument("--mqadmin", dest="output", action="store_const", const=MQADMIN, help=mqadmin_help)
    parser.add_argument("--apply", action="store_true", help="set the offsets on the brokers of --namesrv")
    yes_help = "do not ask for confirmation; required to set offsets without a terminal"
    parser.add_argument("--yes", action="store_true", help=yes_help)
    online_help = "also while the group has clients; brokers 5.x tell them the new offsets, older ones cannot"
    parser.add_argument("--online", action="store_true", help=online_help)
    return parser


def job(arguments: argparse.Namespace) -> ExitCode:
    """Compute the offsets, print them, and set them if asked to."""
    from commitlake.jobs.offsets.gather import is_in_future, offset_client

    for name in ("at", "consume_from"):
        moment = getattr(arguments, name)
        if moment is not None and is_in_future(moment):
            raise JobError(f"--{name.replace('_', '-')}: expected a time in the past, found {moment.isoformat()}")
    if arguments.at is not None and arguments.lake is None:
        raise JobError("--at needs --lake", "a store has no history of its groups; 'commitlake snapshot' records one")
    if arguments.namesrv is None:
        for name, is_given in (("apply", arguments.apply), ("mqadmin", arguments.output == MQADMIN)):
            if is_given:
                raise JobError(f"--{name}: expected --namesrv, the brokers' name server")
    for name in ("yes", "online"):
        if getattr(arguments, name) and not arguments.apply:
            raise JobError(f"--{name} needs --apply")
    with nullcontext() if arguments.namesrv is None else offset_client(arguments.namesrv) as client:
        return _answer(arguments, client)


def _answer(arguments: argparse.Namespace, client: OffsetClient | None) -> ExitCode:
    from commitlake.jobs.cli.rows_output import write
    from commitlake.jobs.offsets.apply import apply_offsets, mqadmin_lines
    from commitlake.jobs.offsets.formatting import GROUP_COLUMNS, PLAIN_COLUMNS, plain_rows, summary, table_rows
    from commitlake.jobs.offsets.gather import gather

    groups = [argparse.Namespace(**vars(arguments) | {"group": group}) for group in dict.fromkeys(arguments.group)]
    found = [(one, gather(one, client)) for one in groups]
    for _, gathered in found:
        if gathered.unknown and arguments.apply:
            raise JobError(f"--apply: {gathered.unknown}", "no offset was set")
    now = datetime.datetime.now(datetime.UTC)
    lost = _warn_of_lost(arguments)
    if arguments.output == MQADMIN and client is not None:
        for one, gathered in found:
            for line in mqadmin_lines(one, gathered.rows, client):
                print(line)
    elif arguments.output == "table":
        columns = GROUP_COLUMNS if len(found) > 1 else GROUP_COLUMNS[1:]
        write("table", (row for one, of in found for row in table_rows(of.rows, one.group, now)), columns)
    else:
        write(
            arguments.output,
            (row for one, of in found for row in plain_rows(of.rows, one.group, now)),
            PLAIN_COLUMNS,
            lost,
        )
    sys.stdout.flush()
    is_complete = not lost
    for one, gathered in found:
        rows = gathered.rows
        if gathered.unknown:
            warn("commitlake offsets", gathered.unknown)
            continue
        for sentence in gathered.missing:
            warn("commitlake offsets", sentence)
        if rows and not arguments.quiet:
            print_line(summary(rows, one.group))
        is_whole = bool(rows) and not gathered.missing and not any(row.asked.problem for row in rows)
        if arguments.apply and client is not None:
            is_whole = apply_offsets(one, rows, client) and is_whole
        is_complete = is_complete and is_whole
    return ExitCode.OK if is_complete else ExitCode.DAMAGE


def _warn_of_lost(arguments: argparse.Namespace) -> list[str]:
    """Warn of messages that the lake has lost, and that may be in the queues at these times; return the sentences."""
    if arguments.lake is None:
        return []
    return warn_of_lost_ranges("offsets", lake_of(arguments), arguments.broker, arguments.consume_from, arguments.at)


def main(argv: Sequence[str] | None = None) -> int:
    """Run `commitlake offsets`."""
    return run_job(build_parser(), job, join_times(sys.argv[1:] if argv is None else argv, "--at", "--consume-from"))
