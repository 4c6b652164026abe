"""Options of commands that read a lake or stores, and options of those that measure lag."""

from __future__ import annotations

import argparse
import datetime
from dataclasses import dataclass

from commitlake.jobs.arguments.broker_conf import BrokerConfArgument
from commitlake.jobs.arguments.durations import parse_duration
from commitlake.jobs.arguments.lake_location import BODIES_HELP
from commitlake.jobs.arguments.s3 import S3Arguments
from commitlake.jobs.arguments.selection import Brokers, Groups, Topics
from commitlake.jobs.arguments.store_layout import FOLDERS, LayoutArgument
from commitlake.jobs.arguments.times import parse_time
from commitlake.jobs.cli.options import OneOf, option, repeated, requires_one_of

TITLE = "Consumer lag"
_SOURCE = OneOf(required=True)


@dataclass(frozen=True, kw_only=True)
class SourceArguments(S3Arguments, LayoutArgument, after={S3Arguments: "store", LayoutArgument: "store"}):
    """Options that name the lake or the stores to read; exactly one of the two must be given."""

    lake: str | None = option(
        "the lake: a folder, s3://bucket/prefix, or catalog.schema", metavar="PLACE", one_of=_SOURCE
    )
    store: str | None = option(
        f"a store folder (the one that holds {FOLDERS}), or a glob", metavar="PATH", one_of=_SOURCE
    )

    @property
    def source_option(self) -> tuple[str, str]:
        """The option that names the lake or the stores, and its value."""
        return ("--lake", self.lake) if self.lake is not None else ("--store", self.store or "")


@dataclass(frozen=True, kw_only=True)
class LagArguments(SourceArguments, BrokerConfArgument, after={BrokerConfArgument: "watch"}):
    """Options for measuring lag."""

    bodies: str | None = option(
        BODIES_HELP, metavar="PLACE", rules=requires_one_of("lake", hint="a store has its bodies in its log")
    )
    watch: datetime.timedelta = option(
        "with --lake: time over which the movement of groups is watched, for rates, the time to catch up, and the "
        "verdicts slow, stalled and rewound; if snapshots are rarer, the one before is compared (default: 5m)",
        parse=parse_duration,
        default=parse_duration("5m"),
        metavar="TIME",
    )


def _parse_filter(text: str) -> tuple[str, str, str]:
    place, equals, expression = text.partition("=")
    group, at, topic = place.strip().rpartition("@")
    if not equals or not at or not group or not topic or not expression.strip():
        raise argparse.ArgumentTypeError(
            f"{text!r}: expected GROUP@TOPIC=FILTER, as in 'shipping@orders=paid || refunded'"
        )
    return group, topic, expression.strip()


@dataclass(frozen=True, kw_only=True)
class LagGroupArguments(Brokers, Groups, Topics):
    """Options that select consumer groups; by default, all groups are measured."""

    at: datetime.datetime | None = option(
        "with --lake: a past time, as 2026-11-20T14:05, ms since 1970, or -2h (default: the last snapshot)",
        parse=parse_time,
        metavar="TIME",
        rules=requires_one_of("lake", hint="a store has no history of its groups; 'commitlake snapshot' records one"),
    )
    filter: tuple[tuple[str, str, str], ...] = repeated(
        "a group's filter on a topic: tags separated by ||, or sql:EXPRESSION; overrides the stored filter",
        parse=_parse_filter,
        metavar="GROUP@TOPIC=FILTER",
    )
