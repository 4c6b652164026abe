"""Show how far consumer groups are behind: now, or at any past minute.

    commitlake lag --lake /data/lake
    commitlake lag --store /data/rocketmq/store

Reads `messages`, `consumer_offsets` and `subscriptions` of a lake, or a store's own log and offsets; writes a row for
each group, or with `--by queue` for each of its queues, to standard output, and for delay levels, for timers and for
half messages of transactions. Messages in the retry store of a JMQ store (in a lake, from `edges`) have rows, too. It
never starts Spark. Messages that a group's filter excludes do not count. Exit codes: 0; 2 for a wrong lake, store or
option; 3 if a row meets a condition of --fail-if, if the lag of a store is unknown, or that of a group or topic
that --fail-if is to check, if a range of a store's log is damaged, or if the lake has lost messages that a group has
still to consume.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from commitlake.jobs.cli.command import JobError, job_parser, run_job
from commitlake.jobs.cli.html import add_html_argument
from commitlake.jobs.cli.names import warn
from commitlake.jobs.cli.output_forms import add_format_argument
from commitlake.jobs.cli.terminal import print_line
from commitlake.jobs.cli.times import join_times, parse_time
from commitlake.jobs.lag.arguments import add_lag_arguments
from commitlake.jobs.lag.conditions import parse_condition
from commitlake.schemas.counts import count_text
from commitlake.schemas.errors import ExitCode

if TYPE_CHECKING:
    from commitlake.jobs.pages.output import PageFile
    from commitlake.jobs.pages.page import Page
    from commitlake.pipelines.lag.answer import LagAnswer
    from commitlake.pipelines.lag.measure import Lag

DESCRIPTION = (
    "Show how many messages, how many bytes and how long consumer groups are behind, for each group, topic and queue. "
    "Messages that a group's filter excludes, by tag or SQL92, are not counted. With a lake, the time is that of the "
    "last snapshot ('commitlake snapshot', or each run of 'archive'), or any earlier time (--at); between two "
    "snapshots, figures are ranges. With a store (--store), nothing needs to be archived."
)
EXAMPLES = (
    ("lag --lake /data/lake", "all groups that are behind, the worst first"),
    ("lag --lake /data/lake --group shipping --all --by queue", "every queue of one group"),
    ("lag --lake /data/lake --at 2026-11-20T14:05", "the lag at that minute"),
    ("lag --lake /data/lake --html lag.html", "a page with charts"),
    ("lag --store /data/rocketmq/store", "a store that is not archived"),
    (
        "lag --store /data/rocketmq/store --filter 'shipping@orders=paid || refunded'",
        "a filter that is not stored in any file",
    ),
    (
        "lag --lake /data/lake --fail-if 'time_lag > 10m' --fail-if 'verdict = stopped'",
        "for monitoring: exit code 3 if a row meets the condition",
    ),
    ("lag --lake /data/lake --all --format jsonl | jq .messages_max", "for a program"),
)


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of the job's arguments."""
    parser = job_parser("lag", DESCRIPTION, EXAMPLES)
    parser.set_defaults(spark=False)
    add_lag_arguments(parser)
    at_help = "with --lake: a past time, as 2026-11-20T14:05, ms since 1970, or -2h (default: the last snapshot)"
    parser.add_argument("--at", type=parse_time, metavar="TIME", help=at_help)
    parser.add_argument("--broker", action="append", default=[], help="only this store")
    parser.add_argument("--group", action="append", default=[], help="only this group")
    parser.add_argument("--topic", action="append", default=[], help="only this topic")
    filter_help = "a group's filter on a topic: tags separated by ||, or sql:EXPRESSION; overrides the stored filter"
    parser.add_argument(
        "--filter", action="append", default=[], type=_filter, metavar="GROUP@TOPIC=FILTER", help=filter_help
    )
    parser.add_argument("--all", action="store_true", help="also print groups that are not behind")
    by_help = (
        "rows of the table: a row for each group, or for each of its queues, as in all other formats (default: group)"
    )
    parser.add_argument("--by", choices=("group", "queue"), help=by_help)
    add_format_argument(parser)
    add_html_argument(parser)
    fail_help = (
        "exit with 3 if a row meets this condition: messages, bytes, time_lag or verdict, > >= < <= or =, and a value; "
        "for a range, its upper bound is compared"
    )
    parser.add_argument(
        "--fail-if", action="append", default=[], type=parse_condition, metavar="CONDITION", help=fail_help
    )
    return parser


def _filter(text: str) -> tuple[str, str, str]:
    place, equals, expression = text.partition("=")
    group, at, topic = place.strip().rpartition("@")
    if not equals or not at or not group or not topic or not expression.strip():
        raise argparse.ArgumentTypeError(
            f"{text!r}: expected GROUP@TOPIC=FILTER, as in 'shipping@orders=paid || refunded'"
        )
    return group, topic, expression.strip()


def job(arguments: argparse.Namespace) -> ExitCode:
    """Measure the lag, print it, and return an exit code."""
    if arguments.html is None:
        return _answer(None, arguments)
    from commitlake.jobs.pages.lag import TITLE
    from commitlake.jobs.pages.output import failure_page, page_file

    file = page_file(arguments.html)
    option, place = _place(arguments)
    with failure_page(file, "lag", TITLE, [(option.removeprefix("--").capitalize(), place)]):
        return _answer(file, arguments)


def _answer(file: PageFile | None, arguments: argparse.Namespace) -> ExitCode:
    from commitlake.jobs.cli.rows_output import write
    from commitlake.jobs.lag import formatting
    from commitlake.jobs.lag.source import measure_lag, unknown_names
    from commitlake.pipelines.lag.groups import worst_first

    if arguments.by == "group" and arguments.output != "table":
        raise JobError(f"--by group: rows of --format {arguments.output} are queues", "leave --by out")
    if arguments.store is not None and arguments.at is not None:
        raise JobError("--at needs --lake", "a store has no history of its groups; 'commitlake snapshot' records one")
    answer = measure_lag(arguments)
    unknown = unknown_names(arguments, answer)
    missing = [*answer.missing, *unknown]
    failing = [(row, condition) for row in answer.rows for condition in arguments.fail_if if condition.holds(row)]
    rows = worst_first(row for row in answer.rows if arguments.all or _is_behind(row))
    if arguments.output != "table":
        write(arguments.output, formatting.plain_rows(rows), formatting.PLAIN_COLUMNS, missing)
    elif arguments.by == "queue":
        write("table", formatting.queue_rows(rows), formatting.QUEUE_COLUMNS)
    else:
        write("table", formatting.group_rows(rows), formatting.GROUP_COLUMNS)
    sys.stdout.flush()
    if file is not None:
        file.write(_page(arguments, replace(answer, missing=missing)))
    for sentence in missing:
        warn("commitlake lag", sentence)
    if not arguments.quiet:
        for group in answer.broadcasting:
            print_line(str(group))
        print_line(formatting.summary(answer.rows))
        if hidden := len(answer.rows) - len(rows):
            print_line(f"not shown: {count_text(hidden, 'queue')} without anything behind; --all shows them")
    for row, condition in failing:
        where = f"{row.group or row.kind} on {row.topic}, queue {row.queue_id}"
        print_line(f"failed: {where}: {condition.text}")
    is_unchecked = bool(unknown and arguments.fail_if)  # a check of a misspelt group must not succeed
    return ExitCode.DAMAGE if failing or answer.missing or is_unchecked else ExitCode.OK


def _page(arguments: argparse.Namespace, answer: LagAnswer) -> Page:
    from commitlake.jobs.lag.source import measure_history
    from commitlake.jobs.pages.lag import MAX_HEAT_GROUPS, LagSource, lag_page

    history = measure_history(arguments, answer, MAX_HEAT_GROUPS)
    return lag_page(answer, history, LagSource(_place(arguments), arguments.at))


def _place(arguments: argparse.Namespace) -> tuple[str, str]:
    return ("--store", arguments.store) if arguments.lake is None else ("--lake", arguments.lake)


def _is_behind(row: Lag) -> bool:
    from commitlake.pipelines.lag.verdicts import LagVerdict

    return bool(row.messages.high is None or row.messages.high) or row.judged.verdict is not LagVerdict.OK


def main(argv: Sequence[str] | None = None) -> int:
    """`commitlake lag`."""
    return run_job(build_parser(), job, join_times(sys.argv[1:] if argv is None else argv, "--at"))
