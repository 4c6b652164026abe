"""The options of `erase`."""

from __future__ import annotations

import datetime
from dataclasses import dataclass

from commitlake.jobs.arguments.durations import make_duration_parser, parse_duration
from commitlake.jobs.arguments.evidence_key import EvidenceArgument
from commitlake.jobs.arguments.keys_file import keys_file_option
from commitlake.jobs.arguments.lake_location import LakeArguments
from commitlake.jobs.arguments.runner import SparkArguments
from commitlake.jobs.cli.command import Command
from commitlake.jobs.cli.options import conflicts_with, flag, only_with, option, overrides, repeated
from commitlake.jobs.report.output_formats import OutputArguments

SELECTING = ("key", "keys_file", "unique_key", "id")


@dataclass(frozen=True, kw_only=True)
class EraseOptions(
    Command,
    LakeArguments,
    OutputArguments,
    EvidenceArgument,
    SparkArguments,
    after={OutputArguments: "yes", EvidenceArgument: "yes", SparkArguments: "yes"},
):
    """Command line options of `erase`, which select the messages to delete permanently."""

    key: tuple[str, ...] = repeated("business key of the messages")
    keys_file: str | None = keys_file_option("file of business keys, one per line, in UTF-8", "--keys")
    unique_key: tuple[str, ...] = repeated("client message id (UNIQ_KEY)", metavar="ID")
    id: tuple[str, ...] = repeated("offset message id, or client message id")
    reason: str | None = option("the reason, stored in the table erasures; it must not contain a key")
    retention: datetime.timedelta = option(
        "keep older versions of the tables for this time, at least 1d (default: 7d)",
        "--vacuum-after",
        "--retention",
        parse=make_duration_parser(
            "1d", "a running job must be done with its version by then; if no other job is running, use --now"
        ),
        default=parse_duration("7d"),
        metavar="TIME",
    )
    now: bool = flag("delete older versions at once; use it only while no other job reads or writes the lake")
    keep_later_copies: bool = flag(
        "archive later messages with these keys and ids as they are; by default, they are erased when they arrive"
    )
    hbase: str | None = option("also erase in HBase, through its Thrift server", metavar="HOST[:PORT]")
    hbase_table: str | None = option(
        "name of the table in HBase (default: commitlake_messages)", metavar="NAME", rules=only_with("hbase")
    )
    finish: bool = flag(
        "erase nothing new; finish interrupted erasures and delete old versions that are due",
        rules=overrides(*SELECTING, hint="leave one of them out"),
    )
    list: bool = flag(
        "show all erasures, and change nothing",
        rules=(
            *conflicts_with("finish", hint="leave one of them out"),
            *overrides(*SELECTING, hint="leave one of them out"),
        ),
    )
    dry_run: bool = flag("only show what would be done")
    yes: bool = flag("do not ask")
