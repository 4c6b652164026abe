"""The options of `offsets`."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import ClassVar

from commitlake.connectors.lake.sql import Engine
from commitlake.jobs.arguments.query_engine import EngineArguments
from commitlake.jobs.arguments.selection import WHICH, Brokers, Groups, Topics
from commitlake.jobs.arguments.times import parse_time
from commitlake.jobs.cli.command import Command
from commitlake.jobs.cli.options import (
    OneOf,
    flag,
    option,
    repeated,
    requires_one_of,
    rules_for_values,
    shorthand_option,
)
from commitlake.jobs.lag.arguments import SourceArguments
from commitlake.jobs.report.output_formats import (
    JsonArgument,
    OutputArguments,
    format_option,
)

MQADMIN = "mqadmin"


_TIME = OneOf(required=True)


@dataclass(frozen=True, kw_only=True)
class OffsetsOptions(
    Command, SourceArguments, Groups, Topics, Brokers, EngineArguments, OutputArguments, JsonArgument,
    after={
        **dict.fromkeys((Topics, Brokers), "consume_from"),
        **dict.fromkeys((EngineArguments, OutputArguments, JsonArgument), "namesrv"),
    },
):  # fmt: skip
    """Command line options of `offsets`."""

    group: tuple[str, ...] = repeated("the consumer group", required=True)
    at: datetime.datetime | None = option(
        "with --lake: the offsets that the group had at this time: 2026-11-20T14:00, ms since 1970, or -2h",
        parse=parse_time,
        metavar="TIME",
        one_of=_TIME,
        rules=requires_one_of("lake", hint="a store has no history of its groups; 'commitlake snapshot' records one"),
    )
    consume_from: datetime.datetime | None = option(
        "for each queue, the first message stored at this time or later", parse=parse_time, metavar="TIME", one_of=_TIME
    )
    topic: tuple[str, ...] = repeated(
        "only this topic (default with --at: all topics for which the group had offsets; with "
        "--consume-from: all topics that it consumes, except its own retry topic)",
        section=WHICH,
    )
    namesrv: str | None = option(
        "the brokers' name servers, separated by semicolons: the output also shows what the brokers still have",
        metavar="HOST:PORT",
    )
    output: str = format_option(
        more_formats=(MQADMIN,), rules=rules_for_values(MQADMIN, rules=requires_one_of("namesrv"))
    )
    mqadmin: ClassVar = shorthand_option(
        "same as --format mqadmin: commands for mqadmin 5.x, ready to be pasted", output=MQADMIN
    )
    apply: bool = flag("set the offsets on the brokers of --namesrv", rules=requires_one_of("namesrv"))
    yes: bool = flag(
        "do not ask for confirmation; required to set offsets without a terminal", rules=requires_one_of("apply")
    )
    online: bool = flag(
        "also while the group has clients; brokers 5.x tell them the new offsets, older ones cannot",
        rules=requires_one_of("apply"),
    )
    spark: ClassVar = shorthand_option(
        "search and count messages on Spark, for times long ago in a large lake", engine=str(Engine.SPARK)
    )
