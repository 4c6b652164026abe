"""The options of `journeys`."""

from __future__ import annotations

import argparse
import datetime
from dataclasses import dataclass
from typing import ClassVar

from commitlake.connectors.lake.sql import Engine
from commitlake.jobs.arguments.durations import parse_duration
from commitlake.jobs.arguments.html_option import HtmlPageOption
from commitlake.jobs.arguments.lake_location import LakeArguments
from commitlake.jobs.arguments.query_engine import EngineArguments
from commitlake.jobs.arguments.selection import WHICH, Brokers, Keys, Predicate, Tags, TimeRange, Topics
from commitlake.jobs.arguments.stores import make_integer_parser
from commitlake.jobs.cli.command import Command
from commitlake.jobs.cli.options import Section, flag, option, overrides, repeated, rules_for_values, shorthand_option
from commitlake.jobs.report.output_formats import JsonArgument, OutputArguments
from commitlake.pipelines.journeys.journeys_query import MARGIN

PATHS, HOPS, KEYS = "paths", "hops", "keys"
TITLE = "Paths of keys"
_SHOWN = {
    PATHS: "the most frequent paths; as a table for people, hops follow",
    HOPS: "times from topic to topic",
    KEYS: "keys, with their paths",
}
_OF_KEYS = ("through", "missing", "stuck_after", "unexpected")
_MISFITS = Section("keys that do not fit")
DESCRIPTION = (
    "Show the paths that business keys take over topics, the times between topics, and the keys that do not fit. A "
    "step of a path is a message: half message and commit, delay and delivery, retries and dead letters are one step, "
    "and so is what a replay sent again. Keys of a time are those with a record in it. Their records up to --margin "
    "before and after it belong to their paths, too. Keys that began before the time are counted, and not shown."
)
EXAMPLES = (
    ("journeys --lake lake --from -1d", "the paths of the last day, and the times between topics"),
    ("journeys --lake lake --from 2026-11-20 --to 2026-11-21 --through payments --missing shipments",
     "orders of a day that were paid and not shipped"),
    ("journeys --lake lake --from -1d --stuck-after payments:30m --limit 0 --json", "all that stopped, for programs"),
    ("journeys --lake lake --from -1d --unexpected", "keys on paths that few take"),
    ("journeys --lake lake --from -1d --stuck-after payments:30m --html journeys.html", "a page with a flow diagram"),
    ("journeys --lake s3://archive/lake --from -7d --show hops --spark", "for hundreds of millions of messages"),
)  # fmt: skip


def parse_topic_and_duration(text: str) -> tuple[str, datetime.timedelta]:
    """Parse a topic and a duration, as in `payments:30m`.

    Raises:
        argparse.ArgumentTypeError: if the text is not TOPIC:TIME.

    >>> parse_topic_and_duration("payments:30m")
    ('payments', datetime.timedelta(seconds=1800))
    """
    topic, colon, length = text.rpartition(":")
    if not topic or not colon:
        raise argparse.ArgumentTypeError(f"{text!r}: expected TOPIC:TIME, as in payments:30m")
    return topic, parse_duration(length)


@dataclass(frozen=True, kw_only=True)
class JourneysOptions(
    Command, LakeArguments, Topics, Keys, Tags, Brokers, TimeRange, Predicate, EngineArguments, OutputArguments,
    HtmlPageOption, JsonArgument,
    after={
        **dict.fromkeys((Topics, Keys, Tags, Brokers, TimeRange, Predicate), "unexpected"),
        **dict.fromkeys((EngineArguments, OutputArguments, HtmlPageOption, JsonArgument), "limit"),
    },
):  # fmt: skip
    """The options of `journeys`."""

    NAME = "journeys"
    DESCRIPTION = DESCRIPTION
    EXAMPLES = EXAMPLES

    show: str | None = option(
        "; ".join(f"{name}: {text}" for name, text in _SHOWN.items())
        + f" (default: {PATHS}; {KEYS} with an option of keys that do not fit)",
        choices=tuple(_SHOWN),
        rules=rules_for_values(
            PATHS,
            HOPS,
            rules=overrides("through", "missing", "stuck_after", "unexpected", hint="leave one of them out"),
        ),
    )
    margin: datetime.timedelta = option(
        "read records of the same keys so long before and after the time (default: 1d)",
        parse=parse_duration,
        default=MARGIN,
        metavar="TIME",
    )
    through: tuple[str, ...] = repeated("only keys whose path has this topic", metavar="TOPIC", section=_MISFITS)
    missing: tuple[str, ...] = repeated("keys whose path does not have this topic", metavar="TOPIC", section=_MISFITS)
    stuck_after: tuple[tuple[str, datetime.timedelta], ...] = repeated(
        "keys whose last message is of this topic, and has been the last for this time", parse=parse_topic_and_duration,
        metavar="TOPIC:TIME", section=_MISFITS,
    )  # fmt: skip
    unexpected: bool = flag("keys whose path less than 1 of 100 keys have", section=_MISFITS)
    topic: tuple[str, ...] = repeated("only messages that were sent to this topic", section=WHICH)
    limit: int = option(
        "rows to show at most; 0 for all (default: 50)", parse=make_integer_parser(0), default=50, metavar="N"
    )
    spark: ClassVar = shorthand_option(
        "compute on Spark, for hundreds of millions of messages", engine=str(Engine.SPARK)
    )

    @property
    def show_choice(self) -> str:
        """Kind of rows to show: the value of `--show`, or else a default that depends on the other options."""
        asks_keys = bool(self.through or self.missing or self.stuck_after or self.unexpected)
        return self.show or (KEYS if asks_keys else PATHS)
