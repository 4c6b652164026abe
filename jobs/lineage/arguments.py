"""The command line arguments of `lineage`, and the checks on their combinations."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator

from commitlake.connectors.lake.lake import Lake
from commitlake.jobs.cli.command import JobError
from commitlake.jobs.cli.durations import parse_duration
from commitlake.jobs.cli.html import add_html_argument
from commitlake.jobs.cli.lake_names import check_brokers
from commitlake.jobs.cli.output_forms import add_display_arguments
from commitlake.jobs.cli.places import add_place_arguments
from commitlake.jobs.cli.times import add_time_arguments
from commitlake.pipelines.lineage.story import MAX_RECORDS, Question
from commitlake.pipelines.masking.masks import KEY_VARIABLE, Mask, check_key, parse_mask
from commitlake.schemas.layouts.numbers import parse_int64

TREE, TABLE, JSON, MERMAID = "tree", "table", "json", "mermaid"
_ONE_RECORD = ("key", "id", "offset")
_OF_STORIES = ("depth", "related_by", "mask", "body", "follow", "limit")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `lineage`."""
    add_place_arguments(parser)
    several = "; of several, each has its own story"
    parser.add_argument("--key", action="append", default=[], help=f"business key{several}")
    id_help = f"offset message id, or client message id (UNIQ_KEY){several}"
    parser.add_argument("--id", action="append", default=[], help=id_help)
    parser.add_argument("--offset", metavar="BROKER:OFFSET", help="the record at a physical offset of a broker's log")
    topics_help = "show which topics feed which, between --from and --to, by keys that pass from one to the other"
    parser.add_argument("--topics", action="store_true", help=topics_help)
    add_time_arguments(parser)
    depth_help = "follow at most this many edges from the records that match (default: no limit)"
    parser.add_argument("--depth", type=int, metavar="N", help=depth_help)
    related_help = (
        "also show records with the same value of this property, stored within a day of the matching records, or "
        "between --from and --to"
    )
    parser.add_argument("--related-by", metavar="PROPERTY", help=related_help)
    limit_help = f"at most this many matching records, the newest (default: {MAX_RECORDS})"
    parser.add_argument("--limit", type=int, metavar="N", help=limit_help)
    forms = (TREE, TABLE, JSON, MERMAID)
    form_help = "output format; mermaid is a diagram for a ticket or a wiki (default: tree)"
    parser.add_argument("--format", "--output", dest="format", choices=forms, default=TREE, help=form_help)
    add_display_arguments(parser)
    add_html_argument(parser)
    parser.add_argument("--body", action="store_true", help="include bodies, for --format json and for --html")
    mask_help = (
        "mask a field in all output, as in body.email=hash, property.phone=last:4, keys=null; the "
        f"key of hash is in {KEY_VARIABLE}"
    )
    parser.add_argument("--mask", action="append", default=[], metavar="FIELD=RULE", help=mask_help)
    follow_help = "print new steps as they are archived, until each outcome is final; archives nothing itself"
    parser.add_argument("--follow", action="store_true", help=follow_help)
    parser.add_argument(
        "--follow-for",
        type=parse_duration,
        metavar="TIME",
        help="with --follow: give up after this time (default: 10m)",
    )
    parser.add_argument("--openlineage", metavar="FILE|URL",
                        help="write OpenLineage events to a file, one per line, or send them to a server")  # fmt: skip


def check(arguments: argparse.Namespace) -> None:
    """Check that the options do not conflict.

    Raises:
        JobError: for the first conflict.
    """
    asked = [f"--{name}" for name in (*_ONE_RECORD, "topics") if getattr(arguments, name) not in (None, False, [])]
    if len(asked) != 1:
        found = " and ".join(asked) or "none of them"
        raise JobError(
            f"expected one of --key, --id, --offset and --topics, found {found}", "--key takes the key of an order"
        )
    if arguments.start and arguments.end and arguments.start >= arguments.end:
        raise JobError(f"--from {arguments.start} is not before --to {arguments.end}")
    if arguments.topics:
        _check_topics(arguments)
    if len(arguments.key) + len(arguments.id) > 1 and (arguments.follow or arguments.html or arguments.openlineage):
        option = "follow" if arguments.follow else "html" if arguments.html else "openlineage"
        raise JobError(f"--{option} is for one story: expected one --key or --id")
    if arguments.follow and (arguments.format not in (TREE, TABLE) or arguments.html or arguments.openlineage):
        raise JobError("--follow prints steps as they are archived: it needs --format tree, and no --html")
    if arguments.follow_for is not None and not arguments.follow:
        raise JobError("--follow-for needs --follow")
    if arguments.body and arguments.format != JSON and arguments.html is None:
        raise JobError("--body needs --format json or --html", "query --body prints the body of one message")


def _check_topics(arguments: argparse.Namespace) -> None:
    for name in _OF_STORIES:
        if getattr(arguments, name) not in (None, False, []):
            raise JobError(f"--{name.replace('_', '-')} belongs to a single story, found --topics")
    if arguments.start is None or arguments.end is None:
        raise JobError("--topics needs --from and --to", "as in --from -1d --to now")


def one_by_one(arguments: argparse.Namespace) -> Iterator[argparse.Namespace]:
    """Yield the arguments of each story."""
    asked = [*(("key", key) for key in arguments.key), *(("id", each) for each in arguments.id)]
    for name, value in asked:
        yield argparse.Namespace(**{**vars(arguments), "key": [], "id": [], name: [value]})
    if not asked:
        yield arguments


def question_of(arguments: argparse.Namespace, lake: Lake) -> Question:
    """Return the question that the arguments ask.

    Raises:
        JobError: for an invalid position, or a broker that the lake does not have.
        LineageError: for a number out of range.
    """
    place = None
    if arguments.offset is not None:
        broker, colon, text = arguments.offset.rpartition(":")
        offset = parse_int64(text)
        if not colon or not broker or offset is None or offset < 0:
            raise JobError(f"--offset: expected BROKER:OFFSET, as in broker-a:4096, found {arguments.offset[:200]!r}")
        check_brokers(lake, [broker])
        place = broker, offset
    limit = MAX_RECORDS if arguments.limit is None else arguments.limit
    return Question(
        next(iter(arguments.key), None),
        next(iter(arguments.id), None),
        place,
        arguments.start,
        arguments.end,
        arguments.depth,
        arguments.related_by,
        limit,
    )


def masks_of(arguments: argparse.Namespace) -> tuple[list[Mask], bytes]:
    """Return the masks, and the key for hashes.

    Raises:
        ReplayError: if a mask is invalid, or needs a key.
    """
    masks = [parse_mask(text) for text in arguments.mask]
    key = os.environ.get(KEY_VARIABLE, "").encode()
    check_key(masks, key)
    return masks, key
