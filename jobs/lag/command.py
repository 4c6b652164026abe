"""Show how far consumer groups are behind: now, or at any past minute.

    commitlake lag --lake /data/lake
    commitlake lag --store /data/rocketmq/store

Reads `messages`, `consumer_offsets` and `subscriptions` of a lake, or a store's own log and offsets; writes a row for
each group, or with `--by queue` for each of its queues, to standard output, and for delay levels, for timers and for
half messages of transactions. Messages in the retry store of a JMQ store (in a lake, from `edges`) have rows, too. It
starts no JVM, unless `--spark` is given: Spark then reads and counts the messages, and everything else stays in this
process. Messages that a group's filter excludes do not count. Exit codes: 0; 2 for a wrong lake, store or
option; 3 if a row meets a condition of --fail-if, if the lag of a store is unknown, or that of a group or topic
that --fail-if is to check, if a range of a store's log is damaged, or if the lake has lost messages that a group has
still to consume.
"""

from __future__ import annotations

import argparse
import operator
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from commitlake.connectors.lake.sql import Engine
from commitlake.jobs.arguments.durations import parse_duration
from commitlake.jobs.arguments.html_option import HtmlPageOption
from commitlake.jobs.arguments.query_engine import EngineArguments, is_spark_option_given
from commitlake.jobs.arguments.similar_names import print_warning
from commitlake.jobs.cli.command import Command, JobError
from commitlake.jobs.cli.options import flag, option, repeated, requires_one_of, rules_for_values, shorthand_option
from commitlake.jobs.cli.terminal import print_line
from commitlake.jobs.lag.arguments import TITLE, LagArguments, LagGroupArguments
from commitlake.jobs.report.output_formats import OutputArguments
from commitlake.pipelines.lag.group_lag import LagRow
from commitlake.pipelines.lag.verdicts import LagVerdict
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.layouts.integer_parsing import INT64_MAX, parse_int

if TYPE_CHECKING:
    from commitlake.jobs.report.page_file import PageFile
    from commitlake.pipelines.lag.store_lag import LagAnswer
    from commitlake.schemas.report import Report


_CONDITION = re.compile(r"\s*(messages|bytes|time_lag|verdict)\s*(>=|<=|>|<|=)\s*(\S+)\s*")
_ORDERS: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le, "=": operator.eq,
}  # fmt: skip
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
    ("lag --lake s3://archive/lake --at -30d --spark", "for groups that are billions of messages behind"),
)


@dataclass(frozen=True, slots=True)
class AlertCondition:
    """Condition of an alert option of `lag`, such as a limit on the number of messages that a group is behind.

    Attributes:
        text: The condition as it was given.
        field: Name of the field: messages, bytes, time_lag or verdict.
        sign: Sign of the comparison.
        value: Value that the field is compared with: seconds for time_lag, a verdict's name for verdict.
    """

    text: str
    field: str
    sign: str
    value: float | str

    def is_met_by(self, row: LagRow) -> bool:
        """Return True if a row of lag meets the condition; of a figure given as a range, the upper bound counts."""
        if self.field == "verdict":
            return row.judged.verdict == self.value
        bounds = {"messages": row.messages, "bytes": row.bytes, "time_lag": row.seconds}[self.field]
        assert not isinstance(self.value, str)
        return _ORDERS[self.sign](bounds.largest, self.value)


def parse_alert_condition(text: str) -> AlertCondition:
    """Parse a condition on a row of `lag`, such as `time_lag > 10m`.

    Raises:
        argparse.ArgumentTypeError: The text is not a condition.
    """
    match = _CONDITION.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a condition: expected messages, bytes, time_lag or verdict, one of > >= < <= =, and a "
            "value, as in 'time_lag > 10m', 'messages >= 1000' or 'verdict = stalled'"
        )
    field, sign, value = match.groups()
    if field == "verdict":
        names = [str(verdict) for verdict in LagVerdict]
        if sign != "=" or value not in names:
            raise argparse.ArgumentTypeError(f"{text!r}: expected verdict = one of {', '.join(names)}")
        return AlertCondition(text, field, sign, value)
    if field == "time_lag":
        return AlertCondition(text, field, sign, parse_duration(value).total_seconds())
    number = parse_int(value, 0, INT64_MAX)
    if number is None:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number after {sign}, found {value!r}")
    return AlertCondition(text, field, sign, number)


@dataclass(frozen=True, kw_only=True)
class LagCommand(
    Command,
    LagArguments,
    LagGroupArguments,
    EngineArguments,
    OutputArguments,
    HtmlPageOption,
    after=dict.fromkeys((EngineArguments, OutputArguments, HtmlPageOption), "by"),
):
    """The command `lag`, which shows how far consumer groups are behind."""

    NAME = "lag"
    DESCRIPTION = DESCRIPTION
    EXAMPLES = EXAMPLES

    all: bool = flag("also print groups that are not behind")
    by: str | None = option(
        "rows of the table: a row for each group, or for each of its queues, as in all other formats (default: group)",
        choices=("group", "queue"),
        rules=rules_for_values(
            "group", rules=requires_one_of("output table", hint="rows of the other formats are queues")
        ),
    )
    fail_if: tuple[AlertCondition, ...] = repeated(
        "exit with 3 if a row meets this condition: messages, bytes, time_lag or verdict, > >= < <= or =, and a value; "
        "for a range, its upper bound is compared",
        parse=parse_alert_condition,
        metavar="CONDITION",
    )
    spark: ClassVar = shorthand_option(
        "read and count messages on Spark, for groups that are far behind in a large lake", engine=str(Engine.SPARK)
    )

    def run(self) -> ExitCode:
        """Measure the lag, print it, and write the page."""
        if self.store is not None and is_spark_option_given(self):
            raise JobError("--spark needs --lake", "a store's log is read in this process")
        name, place = self.source_option
        with self.open_page("lag", TITLE, [(name.removeprefix("--").capitalize(), place)]) as file:
            return _print_lag_and_page(file, self)


def _print_lag_and_page(page_file: PageFile | None, command: LagCommand) -> ExitCode:
    from commitlake.jobs.lag import report
    from commitlake.jobs.lag.lag_measurement import measure_lag, unknown_name_sentences
    from commitlake.jobs.report.rows_output import write_rows, write_table_block
    from commitlake.pipelines.lag.group_summaries import sort_worst_first

    answer = measure_lag(command, command, is_on_spark=command.is_on_spark)
    unknown = unknown_name_sentences(command, answer)
    missing = [*answer.missing, *unknown]
    failing = [(row, condition) for row in answer.rows for condition in command.fail_if if condition.is_met_by(row)]
    rows = sort_worst_first(row for row in answer.rows if command.all or _is_group_behind(row))
    if command.output == "table":
        write_table_block(report.text_table(rows, shows_queues=command.by == "queue"), sys.stdout)
        sys.stdout.flush()
    else:
        write_rows(command.output, report.machine_readable_rows(rows), report.PLAIN_COLUMNS, missing)
    if page_file is not None:
        page_file.write(_make_report(command, answer, unknown))
    for sentence in missing:
        print_warning("commitlake lag", sentence)
    if not command.quiet:
        for group in answer.broadcasting:
            print_line(str(group))
        print_line(report.summary_sentence(answer))
        if hidden := len(answer.rows) - len(rows):
            print_line(f"not shown: {format_count(hidden, 'queue')} without anything behind; --all shows them")
    for row, condition in failing:
        where = f"{row.group or row.kind} on {row.topic}, queue {row.queue_id}"
        print_line(f"failed: {where}: {condition.text}")
    is_unchecked = bool(unknown and command.fail_if)  # a check of a misspelt group must not succeed
    return ExitCode.DAMAGE if failing or answer.missing or is_unchecked else ExitCode.OK


def _make_report(command: LagCommand, answer: LagAnswer, unknown_name_warnings: Sequence[str]) -> Report:
    from commitlake.jobs.arguments.lake_location import open_lake_argument
    from commitlake.jobs.lag.lag_measurement import find_worst_group_stalled_since, measure_lag_history
    from commitlake.jobs.lag.report import MAX_HEAT_GROUPS, MeasuredSource, lag_report

    source = MeasuredSource(command.source_option, command.at)
    if not source.is_lake:  # a store has no history
        return lag_report(answer, None, source, unknown_name_warnings)
    lake = open_lake_argument(command).pin_versions()
    history = measure_lag_history(lake, command, answer, MAX_HEAT_GROUPS, is_on_spark=command.is_on_spark)
    since = find_worst_group_stalled_since(lake, answer)
    return lag_report(answer, history, source, unknown_name_warnings, since)


def _is_group_behind(row: LagRow) -> bool:
    from commitlake.pipelines.lag.verdicts import LagVerdict

    return bool(row.messages.high is None or row.messages.high) or row.judged.verdict is not LagVerdict.OK


build_parser, main = LagCommand.parser, LagCommand.main
