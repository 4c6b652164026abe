"""Explain which parts of broker stores a read would read and skip, and why, without reading most of the log.

    commitlake explain /data/rocketmq/store --topic orders --from -2h

Reads stores; writes a table or a JSON array to standard output, one row per store. Exit codes: 0; 2 for a wrong path or
option; 3 if a segment is missing in the part that would be read, because a read in mode FAILFAST would fail there.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from commitlake.connectors.printable import escape_line
from commitlake.jobs.arguments.selection import WHICH, Keys, Queues, TimeRange, Topics
from commitlake.jobs.arguments.similar_names import print_warning
from commitlake.jobs.arguments.store_layout import FOLDERS, LayoutArgument, find_formats
from commitlake.jobs.arguments.stores import StoreName, declare_broker_option, declare_store_argument, require_store
from commitlake.jobs.cli.command import Command, JobError
from commitlake.jobs.cli.options import flag, must_be_less_than, option, repeated, requires_one_of
from commitlake.jobs.report.output_formats import OutputArguments
from commitlake.jobs.report.rows_output import write_varying_rows
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.formatted_counts import format_count

if TYPE_CHECKING:
    from commitlake.connectors.reading.planning import ReadPlan

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


@dataclass(frozen=True, kw_only=True)
class Explain(
    Command, StoreName, LayoutArgument, Topics, Queues, TimeRange, Keys, OutputArguments,
    after={
        **dict.fromkeys((StoreName, LayoutArgument, Topics, Queues, TimeRange, Keys), "broker"),
        OutputArguments: "no_indexes",
    },
):  # fmt: skip
    """The command `explain`, which shows how stores would be read: the skipped segments, and the indexes used."""

    NAME = "explain"
    DESCRIPTION = DESCRIPTION
    EXAMPLES = EXAMPLES

    store: str | None = declare_store_argument(f"store folder (the one that holds {FOLDERS}), or a glob")
    broker: str | None = declare_broker_option("the store's name (default: the folder's name)")
    key: tuple[str, ...] = repeated(
        "business key or unique key; needs --topic",
        section=WHICH,
        rules=requires_one_of("topic", hint="a broker's index knows keys by topic"),
    )
    from_offset: int | None = option(
        "physical offset, inclusive", parse=int, metavar="N", section=WHICH, rules=must_be_less_than("to_offset")
    )
    to_offset: int | None = option("physical offset, exclusive", parse=int, metavar="N", section=WHICH)
    clock_tolerance: int | None = option(
        "largest expected error of a broker's clock; a larger error that lasted for less than "
        "a sixteenth of a segment can hide records from --from and --to "
        "(default: 600000)",
        parse=int,
        metavar="MS",
    )
    no_indexes: bool = flag("do not use queues and IndexFiles (Spark option useIndexes=false)")

    def run(self) -> ExitCode:
        """Plan how the stores would be read, and print the plan."""
        require_store(self.store)
        _check_options(self)
        from commitlake.connectors.formats.registry import COMMITLOGS
        from commitlake.connectors.reading.options import ReadOptions
        from commitlake.connectors.reading.planning import plan_read
        from commitlake.connectors.reading.read_request import Filters

        options = ReadOptions.parse(_source_options(self), formats=COMMITLOGS)
        filters = Filters.of(self.selection)
        filters = replace(filters, min_offset=options.starting_offset, end_offset=options.ending_offset)
        plan = plan_read(options, filters)
        _warn_of_unknown_names(self)
        rows = [store.to_row() for store in plan.stores]
        if self.output == "table":
            _print_plans(rows)
        else:
            write_varying_rows(self.output, rows)
        missing = _missing_segment_sentences(plan)
        for sentence in missing:
            print(f"damage: {sentence}", file=sys.stderr)
        return ExitCode.DAMAGE if missing else ExitCode.OK


def _warn_of_unknown_names(command: Explain) -> None:
    """Warn of requested topics and queues that have no folder in any store, although the log may contain them."""
    if not command.topic and not command.queue:
        return
    from commitlake.connectors.reading.stores import find_stores
    from commitlake.jobs.arguments.store_queues import unknown_store_name_sentences

    stores = find_stores(require_store(command.store), command.broker, formats=find_formats(command))
    for sentence in unknown_store_name_sentences(stores, command.topic, command.queue):
        print_warning("commitlake explain", f"there is {sentence}")


def _check_options(command: Explain) -> None:
    for name in ("topic", "key"):
        for value in getattr(command, name):
            if not value.strip():
                raise JobError(f"--{name}: expected a {name}, found {value!r}", "leave the option out to take all")


def _source_options(command: Explain) -> dict[str, str]:
    """Return the options of the Spark source, except those that select messages."""
    given = {
        "path": command.store,
        "broker": command.broker,
        "layout": str(find_formats(command)),
        "startingOffset": command.from_offset,
        "endingOffset": command.to_offset,
        "clockTolerance": command.clock_tolerance,
        "useIndexes": "false" if command.no_indexes else None,
    }
    return {name: str(value) for name, value in given.items() if value is not None}


def _missing_segment_sentences(plan: ReadPlan) -> list[str]:
    return [
        f"store {store.broker}: no segment from {segment.whole.start} to {segment.whole.end}"
        for store in plan.stores
        for segment in store.planned_segments
        if segment.whole.missing
    ]


def _print_plans(plan_rows: list[dict[str, object]]) -> None:
    """Print the plans as paragraphs, one per store, because a plan does not fit on one line."""
    for number, row in enumerate(plan_rows):
        print(("\n" if number else "") + f"{escape_line(str(row['broker']))}  {escape_line(str(row['path']))}")
        for name, value in _paragraph_lines(row):
            print(f"  {name.ljust(12)}{value}")


def _paragraph_lines(row: dict[str, object]) -> list[tuple[str, str]]:
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
        ("bytes", f"{row['bytes_planned']:,} of {row['bytes']:,} in {format_count(splits, 'split')}"),
    ]
    records = row["records"]
    if isinstance(records, int):
        lines.append(("records", f"{format_count(records, 'record')} to examine"))
    lines += [
        ("no index" if not place else "", f"{escape_line(str(reason))} ({format_count(count, 'segment')})")
        for place, (reason, count) in enumerate(reasons.items())
    ]
    return lines


build_parser, main = Explain.parser, Explain.main
