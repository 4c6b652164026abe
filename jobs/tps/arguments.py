"""The command line arguments of `tps`, and the checks on their combinations."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import ClassVar

from commitlake.connectors.lake.sql import Engine
from commitlake.jobs.arguments.durations import duration_text, make_duration_parser, parse_duration
from commitlake.jobs.arguments.html_option import HtmlPageOption
from commitlake.jobs.arguments.query_engine import EngineArguments, is_spark_option_given
from commitlake.jobs.arguments.selection import Brokers, Kinds, Queues, Tags, TimeRange, Topics
from commitlake.jobs.arguments.similar_names import suggest_similar_name
from commitlake.jobs.arguments.stores import make_integer_parser
from commitlake.jobs.cli.command import Command, JobError
from commitlake.jobs.cli.options import flag, option, overrides, requires_one_of, rules_for_values, shorthand_option
from commitlake.jobs.lag.arguments import SourceArguments
from commitlake.jobs.report.output_formats import OutputArguments
from commitlake.pipelines.tps.rates_query import GROUPS, SECOND

RATES, HOT_QUEUES, HOT_KEYS, DELAYED = "rates", "hot-queues", "hot-keys", "delayed"
TITLE = "Messages per second"
DESCRIPTION = (
    "Show how many messages and bytes per second brokers stored, at any time that is archived, or that a store's log "
    "still covers. Without --window, the output has one row per group for the whole time, with its busiest minute (or "
    "second, if messages are counted); with --window, one row per group and window. A time that is not archived has no "
    "figures: 0 means that no message was stored. --show hot-queues, hot-keys and delayed answer other questions about "
    "that time."
)
EXAMPLES = (
    ("tps --lake lake", "each topic, over the whole archived time"),
    ("tps --lake lake --from -1d --window 1h --by topic,queue", "queues, hour by hour, since yesterday"),
    ("tps --lake lake --topic orders --from 2026-11-20T14:00 --to 2026-11-20T14:05 --window 1s", "second by second"),
    ("tps --lake lake --by topic --percentiles", "with p50, p95 and p99 of size and latency"),
    ("tps --lake lake --from -1h --compare week", "the last hour, and the same hour a week before"),
    ("tps --lake lake --window 5m --step 1m --topic orders", "windows of five minutes, one beginning each minute"),
    ("tps --lake lake --from -1h --by producer-host --top 5", "the five hosts that sent the most messages"),
    ("tps --store /data/rocketmq/store --from -2h --window 1m", "from a store's own log, without an archive"),
    ("tps --lake lake --show hot-queues --topic orders", "queues, with their share and their deviation from the mean"),
    ("tps --lake lake --show hot-keys --from -1d --top 10", "the business keys with the most messages"),
    ("tps --lake lake --show delayed --from -1d --format jsonl", "delayed messages: waiting, delivered, overdue"),
    ("tps --lake lake --window 1h --format csv", "for a spreadsheet"),
    ("tps --lake lake --from -1d --html rates.html", "a page with charts"),
    ("tps --lake s3://archive/lake --window 1s --spark", "for billions of messages"),
)
COMPARED = {"day": datetime.timedelta(days=1), "week": datetime.timedelta(weeks=1)}
_SHOWN = {
    RATES: "messages per second",
    HOT_QUEUES: "queues, their share of all messages and of their topic's, and their deviation from the topic's mean",
    HOT_KEYS: "business keys with the most messages, estimated by a sketch, with lower and upper bounds",
    DELAYED: "delayed messages and timers: how many are waiting, were delivered, are overdue, or wait longer than a "
    "segment is kept",
}
_OF_RATES = ("window", "step", "percentiles", "compare", "html", "by")
_OF_DELAYED = "its rows name topics and levels; select with --broker, --from and --to"


@dataclass(frozen=True, kw_only=True)
class TpsOptions(
    Command,
    SourceArguments,
    Topics,
    Queues,
    Tags,
    Kinds,
    Brokers,
    TimeRange,
    EngineArguments,
    OutputArguments,
    HtmlPageOption,
    after={
        **dict.fromkeys((Topics, Queues, Tags, Kinds, Brokers, TimeRange), "step"),
        **dict.fromkeys((EngineArguments, OutputArguments, HtmlPageOption), "top"),
    },
):
    """Command line options of `tps`."""

    NAME = "tps"
    DESCRIPTION = DESCRIPTION
    EXAMPLES = EXAMPLES

    show: str = option(
        "; ".join(f"{name}: {text}" for name, text in _SHOWN.items()) + f" (default: {RATES})",
        default=RATES,
        choices=tuple(_SHOWN),
        rules=(
            *rules_for_values(HOT_QUEUES, HOT_KEYS, DELAYED, rules=overrides(*_OF_RATES, hint="leave one of them out")),
            *rules_for_values(DELAYED, rules=overrides("kind", "topic", "queue", "tag", hint=_OF_DELAYED)),
        ),
    )
    by: str | None = option(
        f"what to group by, separated by commas: {', '.join(GROUPS)}; 'none' for a single group (default: topic). Only "
        "messages of transactions name their producer group; origin-topic is the topic that a delayed, half, retried "
        "or dead message was sent to",
        metavar="A,B",
    )
    window: datetime.timedelta | None = option(
        "one row for each window of this length, 1s or more, as in 1s, 5m, 1h (default: one row for the whole time)",
        parse=make_duration_parser("1s"),
        metavar="TIME",
    )
    step: datetime.timedelta | None = option(
        "with --window: begin a window at this interval, so that windows overlap; must divide --window",
        parse=parse_duration,
        metavar="TIME",
        rules=requires_one_of("window"),
    )
    percentiles: bool = flag(
        "also show p50, p95 and p99 of size, latency and wait, in ms: see schemas/tables/topic_minutes.py; only for "
        "groups and windows that topic_minutes has"
    )
    compare: str | None = option(
        "compare with the same time a day or a week before; a group that has messages only at that time has a row with "
        "0 messages",
        choices=tuple(COMPARED),
    )
    segment_life: datetime.timedelta | None = option(
        "with --show delayed: how long segments are kept, the broker's fileReservedTime (default: 72h)",
        parse=parse_duration,
        metavar="TIME",
        rules=requires_one_of("show delayed"),
    )
    top: int = option(
        "only the groups with the most messages, now or at the time of --compare; 0 for all (default: 20)",
        parse=make_integer_parser(0),
        default=20,
        metavar="N",
    )
    spark: ClassVar = shorthand_option("count on Spark, for more than a billion rows", engine=str(Engine.SPARK))

    @property
    def counting_engine(self) -> Engine:
        """Engine that counts messages: Spark if it is selected and can count them, otherwise `deltalake`."""
        is_possible = self.store is None and self.show not in (HOT_KEYS, DELAYED)
        return Engine.SPARK if self.is_on_spark and is_possible else Engine.DELTALAKE


def check_options(command: TpsOptions) -> None:
    """Check that the options do not conflict.

    Raises:
        JobError: for the first conflict.
    """
    if is_spark_option_given(command) and command.counting_engine != Engine.SPARK:
        if command.store is not None:
            raise JobError("--spark works only with --lake, not with --store", "a store's log is read in this process")
        raise JobError(f"--spark has no effect with --show {command.show}", "leave one of them out")
    _check_window_and_step(command)


def parse_group_names(text: str | None) -> list[str]:
    """Return the names of groups in the value of `--by`.

    Raises:
        JobError: for a name that is unknown, or is given twice.
    """
    if text is None:
        return ["topic"]
    names = [] if text == "none" else [name.strip() for name in text.split(",")]
    for name in names:
        if name not in GROUPS:
            raise JobError(
                f"--by: there is no group {name!r}.{suggest_similar_name(name, GROUPS)}",
                f"there are: {', '.join(GROUPS)}",
            )
    if len(set(names)) < len(names):
        raise JobError(f"--by: expected each group once, found {text!r}", "name each once")
    return names


def _check_window_and_step(command: TpsOptions) -> None:
    window, step = command.window, command.step
    if command.compare is not None and window is not None and COMPARED[command.compare] % (step or window):
        raise JobError(
            f"--compare {command.compare}: expected a {'--step' if step else '--window'} of which a {command.compare} "
            f"is a multiple, found {duration_text(step or window)}",
            "as in --window 1h",
        )
    if window is None or step is None:
        return
    if step < SECOND or window % step:
        raise JobError(
            f"--step: expected a time of which --window {duration_text(window)} is a multiple, found "
            f"{duration_text(step)}",
                       "as in --window 5m --step 1m")  # fmt: skip
    if command.html is not None and step != window:
        raise JobError(
            "--html and --step cannot be used together", "windows of a chart do not overlap: leave --step out"
        )
    if command.percentiles and step != window:
        raise JobError("--percentiles and --step cannot be used together", "leave --step out")
