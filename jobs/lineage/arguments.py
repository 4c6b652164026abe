"""The command line arguments of `lineage`, and the checks on their combinations."""

from __future__ import annotations

import argparse
import datetime
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace

from commitlake.connectors.lake.lake import Lake
from commitlake.jobs.arguments.durations import parse_duration
from commitlake.jobs.arguments.html_option import HtmlPageOption
from commitlake.jobs.arguments.keys_file import keys_file_option
from commitlake.jobs.arguments.lake_location import LakeArguments
from commitlake.jobs.arguments.runner import WHERE, SparkArguments
from commitlake.jobs.arguments.selection import WHICH, Ids, Keys, TimeRange
from commitlake.jobs.arguments.unknown_lake_names import check_archived_brokers
from commitlake.jobs.cli.command import Command, JobError
from commitlake.jobs.cli.options import conflicts_with, flag, option, overrides, repeated, requires_one_of
from commitlake.jobs.report.output_formats import DisplayArguments
from commitlake.pipelines.lineage.message_history import MAX_RECORDS, Question
from commitlake.pipelines.masking.masks import KEY_VARIABLE, Mask, check_hash_key, parse_mask
from commitlake.schemas.layouts.integer_parsing import INT64_MAX, parse_int

TREE, TABLE, JSON, MERMAID = "tree", "table", "json", "mermaid"
TITLE = "What happened to a message"
_ONE_RECORD = ("key", "id", "offset")
_OF_STORIES = ("depth", "related_by", "mask", "body", "follow", "limit")
_AS_IN = "as in --from -1d --to now"
_SEVERAL = "; of several, each has its own story"


def _parse_log_position(text: str) -> tuple[str, int]:
    broker, _, number = text.rpartition(":")
    offset = parse_int(number, 0, INT64_MAX)
    if not broker or offset is None:
        raise argparse.ArgumentTypeError(f"{text[:200]!r}: expected BROKER:OFFSET, as in broker-a:4096")
    return broker, offset


@dataclass(frozen=True, kw_only=True)
class LineageOptions(
    Command,
    LakeArguments,
    Keys,
    Ids,
    TimeRange,
    DisplayArguments,
    HtmlPageOption,
    SparkArguments,
    after={TimeRange: "topics", DisplayArguments: "format", HtmlPageOption: "format", SparkArguments: "openlineage"},
):
    """Command line options of `lineage`."""

    key: tuple[str, ...] = repeated(f"business key{_SEVERAL}", section=WHICH)
    id: tuple[str, ...] = repeated(f"offset message id, or client message id (UNIQ_KEY){_SEVERAL}", section=WHICH)
    keys_file: str | None = keys_file_option(
        "file of business keys, one per line, in UTF-8: the story of each, as with --key; the tables are read for "
        "thousands of keys together",
        "--keys-from",
        section=WHICH,
    )
    offset: tuple[str, int] | None = option(
        "the record at a physical offset of a broker's log",
        parse=_parse_log_position,
        metavar="BROKER:OFFSET",
        section=WHICH,
    )
    topics: bool = flag(
        "show which topics feed which, between --from and --to, by keys that pass from one to the other",
        rules=(
            *overrides(*_OF_STORIES, hint="{other} belongs to a single story"),
            *requires_one_of("start", hint=_AS_IN),
            *requires_one_of("end", hint=_AS_IN),
        ),
    )
    depth: int | None = option(
        "follow at most this many edges from the records that match (default: no limit)", parse=int, metavar="N"
    )
    related_by: str | None = option(
        "also show records with the same value of this property, stored within a day of the matching records, or "
        "between --from and --to",
        metavar="PROPERTY",
    )
    limit: int | None = option(
        f"at most this many matching records, the newest (default: {MAX_RECORDS})", parse=int, metavar="N"
    )
    format: str = option(
        "output format; mermaid is a diagram for a ticket or a wiki (default: tree)",
        "--format",
        "--output",
        default=TREE,
        choices=(TREE, TABLE, JSON, MERMAID),
    )
    body: bool = flag(
        "include bodies, for --format json and for --html",
        rules=requires_one_of("format json", "html", hint="query --body prints the body of one message"),
    )
    mask: tuple[str, ...] = repeated(
        "mask a field in all output, as in body.email=hash, property.phone=last:4, keys=null; the "
        f"key of hash is in {KEY_VARIABLE}",
        metavar="FIELD=RULE",
    )
    follow: bool = flag(
        "print new steps as they are archived, until each outcome is final; archives nothing itself",
        rules=conflicts_with(
            "format json", "format mermaid", "html", "openlineage", hint="{this} prints steps as they are archived"
        ),
    )
    follow_for: datetime.timedelta | None = option(
        "with --follow: give up after this time (default: 10m)",
        parse=parse_duration,
        metavar="TIME",
        rules=requires_one_of("follow"),
    )
    spark: bool = flag(
        "with --keys-file: read the stories in tasks on Spark, for hundreds of thousands of keys",
        one_of=WHERE,
        rules=requires_one_of("keys_file", hint="the story of one key is read in this process"),
    )
    openlineage: str | None = option(
        "write OpenLineage events to a file, one per line, or send them to a server", metavar="FILE|URL"
    )


def check_options(command: LineageOptions) -> None:
    """Check that the options do not conflict.

    Raises:
        JobError: for the first conflict.
    """
    asked = [f"--{name}" for name in (*_ONE_RECORD, "topics") if getattr(command, name) not in (None, False, ())]
    if command.keys_file is not None and "--key" not in asked:
        asked.append("--keys-file")
    if len(asked) != 1:
        found = " and ".join(asked) or "none of them"
        raise JobError(
            f"expected only one of --key, --id, --offset and --topics, found {found}", "--key takes the key of an order"
        )
    is_single = len(command.key) + len(command.id) <= 1 and command.keys_file is None
    if not is_single and (command.follow or command.html or command.openlineage):
        option = "follow" if command.follow else "html" if command.html else "openlineage"
        if command.keys_file is not None:
            raise JobError(f"--{option} shows only one history, and cannot be used with --keys-file", "give one --key")
        raise JobError(
            f"--{option} shows only one history: expected one --key or one --id, found "
            f"{len(command.key) + len(command.id)}"
        )


def split_options_by_id(command: LineageOptions) -> Iterator[LineageOptions]:
    """Yield a copy of the options for each requested message id, because each message is shown separately."""
    for message_id in command.id:
        yield replace(command, key=(), id=(message_id,))


def make_story_question(command: LineageOptions, lake: Lake) -> Question:
    """Return which messages the options select, and how many of their records, deliveries and retries may be read.

    Raises:
        JobError: for a broker that the lake does not have.
        UsageError: for a number out of range.
    """
    if command.offset is not None:
        check_archived_brokers(lake, [command.offset[0]])
    limit = MAX_RECORDS if command.limit is None else command.limit
    return Question(
        next(iter(command.key), None),
        next(iter(command.id), None),
        command.offset,
        command.start,
        command.end,
        command.depth,
        command.related_by,
        limit,
    )


def read_masks(command: LineageOptions) -> tuple[list[Mask], bytes]:
    """Return the masks for printed values, and the key with which values are hashed.

    Raises:
        ReplayError: if a mask is invalid, or needs a key.
    """
    masks = [parse_mask(text) for text in command.mask]
    key = os.environ.get(KEY_VARIABLE, "").encode()
    check_hash_key(masks, key)
    return masks, key
