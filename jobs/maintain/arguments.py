"""The options of `maintain`."""

from __future__ import annotations

import argparse
import datetime
from dataclasses import dataclass

from commitlake.jobs.arguments.durations import make_duration_parser, parse_duration
from commitlake.jobs.arguments.lake_location import LakeArguments
from commitlake.jobs.arguments.runner import SparkArguments
from commitlake.jobs.arguments.store_layout import LayoutArgument, layout_option
from commitlake.jobs.arguments.stores import StoreName, declare_broker_option, positive
from commitlake.jobs.cli.command import Command
from commitlake.jobs.cli.options import flag, only_with, option, repeated


def _parse_keep_option(text: str) -> tuple[str, datetime.timedelta]:
    table, equals, length = text.partition("=")
    if not equals or not table:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a table and a time, as in messages=400d")
    return table, parse_duration(length)


@dataclass(frozen=True, kw_only=True)
class MaintainOptions(
    Command, LakeArguments, StoreName, LayoutArgument, SparkArguments,
    after={StoreName: "broker", LayoutArgument: "broker", SparkArguments: "dry_run"},
):  # fmt: skip
    """The options of `maintain`."""

    keep: tuple[tuple[str, datetime.timedelta], ...] = repeated(
        "delete what is older, by date: messages=400d, bodies=30d, topics=800d (rows of typed tables of topics, which "
        "otherwise go with their messages); without it everything is kept, "
        "except replay_rows, the copies of what replays sent, which are deleted 30d after a "
        "replay's end. If replay_rows is given, copies of replays that have stopped, and that "
        "nobody has resumed for that time, are deleted too",
        parse=_parse_keep_option,
        metavar="TABLE=TIME",
    )
    vacuum_after: datetime.timedelta = option(
        "delete files that the tables no longer use once they are this old (default: 7d)",
        parse=make_duration_parser(
            "1d", "a running archive must have committed its files by then, and readers must be done with their version"
        ),
        default=parse_duration("7d"),
        metavar="TIME",
    )
    target_mib: int = option(
        "size of a merged data file, MiB; files of at least half this size are not merged (default: 128)",
        parse=positive,
        default=128,
        metavar="N",
    )
    repair: bool = flag("repair damaged tables, and do nothing else; stop other jobs first")
    store: str | None = option(
        "with --repair: stores, as for archive, from which lost messages can be archived again",
        metavar="PATH",
        rules=only_with("repair"),
    )
    broker: str | None = declare_broker_option(
        "with --store: the store's name in the lake, if the path does not give it", only_with("store")
    )
    layout: str | None = layout_option(rules=only_with("store"))
    dry_run: bool = flag("only show what would be done")
