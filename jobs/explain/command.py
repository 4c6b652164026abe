"""Explain which parts of broker stores a read would read and skip, and why, without reading most of the log.

    commitlake explain /data/rocketmq/store --topic orders --from -2h

Reads stores; writes a table or a JSON array to standard output, one row per store. Exit codes: 0; 2 for a wrong path or
option; 3 if a segment is missing in the part that would be read, because a read in mode FAILFAST would fail there.
"""

from __future__ import annotations

import argparse
import datetime
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from commitlake.connectors.printable import printable_line
from commitlake.jobs.cli.command import JobError, job_parser, run_job
from commitlake.jobs.cli.layouts import FOLDERS, add_layout_argument, layout_of
from commitlake.jobs.cli.names import warn
from commitlake.jobs.cli.once import Once
from commitlake.jobs.cli.output_forms import add_format_argument
from commitlake.jobs.cli.rows_output import write_objects
from commitlake.jobs.cli.store_arguments import add_store_argument, at_least, check_store_is_given
from commitlake.jobs.cli.times import join_times, parse_time
from commitlake.schemas.counts import count_text
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.times import epoch_ms

if TYPE_CHECKING:
    from commitlake.connectors.formats.engine.read_plan import ReadPlan

DESCRIPTION = (
    "Explain how stores would be read: which segments would be skipped by offset and by time, whether a queue or an "
    "IndexFile would be used or all records scanned, and why an index would not be used. Options are those of the "
    "Spark source; an option given twice accepts either value. Times are store times in UTC, --from inclusive, --to "
    "exclusive."
)
EXAMPLES = (
    ("explain /data/rocketmq/store --topic orders", "what reading a topic costs"),
    ("explain /data/rocketmq/store --topic orders --key order-4711", "whether the broker's index has a key"),
    ("explain '/mnt/brokers/{broker}/store' --from -2h", "which segments of a cluster cover the last two hours"),
    (
        "explain /data/rocketmq/store --topic orders --queue 3 --format json | jq '.rows[].reasons'",
        "why no index is used",
    ),
)
_BY_TIME = (
    "by time: none of 18 sampled records is near these times; records with a wrong clock between the samples would be "
    "missed (see --clock-tolerance)"
)


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of the job's arguments."""
    parser = job_parser("explain", DESCRIPTION, EXAMPLES)
    add_store_argument(parser, f"store folder (the one that holds {FOLDERS}), or a glob")
    parser.add_argument("--broker", action=Once, help="the store's name (default: the folder's name)")
    add_layout_argument(parser)
    parser.add_argument("--topic", action="append", default=[], help="stored topic")
    parser.add_argument("--queue", action="append", default=[], type=at_least(0), help="queue id")
    parser.add_argument("--key", action="append", default=[], help="business key or unique key; needs --topic")
    parser.add_argument("--from", dest="start", type=parse_time, metavar="TIME",
                        help="stored at or after this time: 2026-11-20T14:00, 2026-11-20, ms since 1970, now, "
                             "-2h")  # fmt: skip
    parser.add_argument("--to", dest="end", type=parse_time, metavar="TIME", help="stored before this time")
    parser.add_argument("--from-offset", type=int, metavar="N", help="physical offset, inclusive")
    parser.add_argument("--to-offset", type=int, metavar="N", help="physical offset, exclusive")
    parser.add_argument("--clock-tolerance", type=int, metavar="MS",
                        help="largest expected error of a broker's clock; a larger error that lasted for less than "
                             "a sixteenth of a segment can hide records from --from and --to "
                             "(default: 600000)")  # fmt: skip
    indexes_help = "do not use queues and IndexFiles (Spark option useIndexes=false)"
    parser.add_argument("--no-indexes", action="store_true", help=indexes_help)
    add_format_argument(parser)
    return parser


def job(arguments: argparse.Namespace) -> ExitCode:
    """Plan the read, and print the plan."""
    check_store_is_given(arguments)
    _check(arguments)
    from commitlake.connectors.formats.engine.filters import narrow
    from commitlake.connectors.formats.engine.options import ReadOptions
    from commitlake.connectors.formats.engine.read_plan import plan_read

    options = ReadOptions.parse(_options(arguments))
    plan = plan_read(options, narrow(options))
    _warn_of_unknown_names(arguments)
    rows = [store.to_row() for store in plan.stores]
    if arguments.output == "table":
        _print_table(rows)
    else:
        write_objects(arguments.output, rows)
    missing = _missing(plan)
    for sentence in missing:
        print(f"damage: {sentence}", file=sys.stderr)
    return ExitCode.DAMAGE if missing else ExitCode.OK


def _warn_of_unknown_names(arguments: argparse.Namespace) -> None:
    """Warn of topics and queues without a folder in any store; the log may still have messages of them."""
    if not arguments.topic and not arguments.queue:
        return
    from commitlake.connectors.formats.engine.stores import find_stores
    from commitlake.jobs.cli.store_queues import unknown_names

    stores = find_stores(arguments.store, arguments.broker, layout_of(arguments).formats)
    for sentence in unknown_names(stores, arguments.topic, arguments.queue):
        warn("commitlake explain", f"there is {sentence}")


def _check(arguments: argparse.Namespace) -> None:
    if arguments.key and not arguments.topic:
        raise JobError("--key needs --topic", "a broker's index knows keys by topic")
    if arguments.start and arguments.end and arguments.start >= arguments.end:
        raise JobError(f"--from {arguments.start} is not before --to {arguments.end}")
    low, high = arguments.from_offset, arguments.to_offset
    if low is not None and high is not None and low >= high:
        raise JobError(f"--from-offset {low} is not before --to-offset {high}")
    for name in ("topic", "key"):
        for value in getattr(arguments, name):
            if not value.strip():
                raise JobError(f"--{name}: expected a {name}, found {value!r}", "leave the option out to take all")
            if "," in value:
                raise JobError(f"--{name}: expected no comma, found {value!r}", "give the option twice")


def _options(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the equivalent options of the Spark source."""
    given = {
        "path": arguments.store,
        "broker": arguments.broker,
        "layout": str(layout_of(arguments)),
        "topics": ",".join(arguments.topic) or None,
        "queueIds": ",".join(map(str, arguments.queue)) or None,
        "keys": ",".join(arguments.key) or None,
        "startingTimestamp": _milliseconds(arguments.start),
        "endingTimestamp": _milliseconds(arguments.end),
        "startingOffset": arguments.from_offset,
        "endingOffset": arguments.to_offset,
        "clockTolerance": arguments.clock_tolerance,
        "useIndexes": "false" if arguments.no_indexes else None,
    }
    return {name: str(value) for name, value in given.items() if value is not None}


def _milliseconds(moment: datetime.datetime | None) -> int | None:
    return None if moment is None else epoch_ms(moment)


def _missing(plan: ReadPlan) -> list[str]:
    return [
        f"store {store.broker}: no segment from {segment.whole.start} to {segment.whole.end}"
        for store in plan.stores
        for segment in store.planned
        if segment.whole.missing
    ]


def _print_table(rows: list[dict[str, object]]) -> None:
    """Print one paragraph per store, because a plan does not fit on one line."""
    for number, row in enumerate(rows):
        print(("\n" if number else "") + f"{printable_line(str(row['broker']))}  {printable_line(str(row['path']))}")
        for name, value in _lines(row):
            print(f"  {name.ljust(12)}{value}")


def _lines(row: dict[str, object]) -> list[tuple[str, str]]:
    segments = f"{row['segments_planned']} of {row['segments']}"
    skipped = [
        f"{row[f'segments_skipped_by_{what}']} skipped by {what}"
        for what in ("offset", "time")
        if row[f"segments_skipped_by_{what}"]
    ]
    answered = row["answered_by"]
    reasons = row["reasons"]
    splits = row["splits"]
    assert isinstance(answered, list)
    assert isinstance(reasons, dict)
    assert isinstance(splits, int)
    lines = [
        ("answered by", " and ".join(answered) or "nothing: no segment can have matching records"),
        ("segments", ", ".join([segments, *skipped])),
        *([("", _BY_TIME)] if row["segments_skipped_by_time"] else []),
        ("bytes", f"{row['bytes_planned']:,} of {row['bytes']:,} in {count_text(splits, 'split')}"),
    ]
    records = row["records"]
    if isinstance(records, int):
        lines.append(("records", f"{count_text(records, 'record')} to examine"))
    lines += [
        ("no index" if not place else "", f"{printable_line(str(reason))} ({count_text(count, 'segment')})")
        for place, (reason, count) in enumerate(reasons.items())
    ]
    return lines


def main(argv: Sequence[str] | None = None) -> int:
    """Run `commitlake explain`."""
    return run_job(build_parser(), job, join_times(sys.argv[1:] if argv is None else argv, "--from", "--to"))
