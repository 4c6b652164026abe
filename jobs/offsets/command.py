"""Show the offsets that a group had at a time, or needs to consume from a time; and set them.

    commitlake offsets --lake /data/lake --group billing --at 2026-11-17T14:00
    commitlake offsets --lake /data/lake --group billing --consume-from -2h --namesrv 127.0.0.1:9876 --apply

Reads `messages`, `consumer_offsets` and `subscriptions` of a lake, or a store's own files; with --namesrv, asks the
brokers which messages they still have. Writes a row for each queue with the resulting lag, or commands of mqadmin; with
--apply, sets the offsets and reads them back. A second run sets nothing. It starts no JVM, unless `--spark` is given.
Exit codes: 0; 1 if a broker does not answer; 2 for a wrong lake, store, name or option; 3 if an offset is unknown or
could not be set, or the lake has lost messages that it depends on; 4 if the group has clients, or the answer was no.
"""

from __future__ import annotations

import datetime
import sys
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from commitlake.jobs.arguments.lake_location import open_lake_argument
from commitlake.jobs.arguments.query_engine import is_spark_option_given
from commitlake.jobs.arguments.similar_names import print_warning
from commitlake.jobs.cli.command import JobError
from commitlake.jobs.cli.lost_range_warnings import warn_of_lost_ranges
from commitlake.jobs.cli.terminal import print_line
from commitlake.jobs.offsets.arguments import MQADMIN, OffsetsOptions
from commitlake.schemas.errors import ExitCode

if TYPE_CHECKING:
    from commitlake.pipelines.offsets.live_queues import OffsetClient

DESCRIPTION = (
    "Show the offsets of a consumer group for each queue, exact to the message: those that it had at a time (--at), "
    "from the snapshots in a lake, with lower and upper bounds between two of them; or those that it needs to consume "
    "everything stored from a time on (--consume-from). Each comes with the resulting lag. With --namesrv, the brokers "
    "are asked which messages they still have; --mqadmin prints commands that set the offsets, and --apply sets them."
)
EXAMPLES = (
    ("offsets --lake lake --group billing --at 2026-11-17T14:00", "the group's offsets at that time"),
    (("offsets --lake lake --group billing --consume-from "
     "2026-11-17T14:00"), "the offsets from which it would consume everything since then"),
    ("offsets --lake lake --group billing --consume-from -2h --topic orders --namesrv 127.0.0.1:9876 --apply",
     "make it consume the last two hours of a topic again; asks first"),
    ("offsets --lake lake --group billing --at 2026-11-17T14:00 --namesrv 127.0.0.1:9876 --mqadmin",
     "print commands for RocketMQ's mqadmin 5.x"),
    ("offsets --store /data/rocketmq/store --group billing --consume-from -2h --json", "from a store, for a program"),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Offsets(OffsetsOptions):
    """The command `offsets`, which shows or sets the offsets that a consumer group had, or needs."""

    NAME = "offsets"
    DESCRIPTION = DESCRIPTION
    EXAMPLES = EXAMPLES

    def run(self) -> ExitCode:
        """Compute the group's offsets, print them, and set them on the brokers if requested."""
        from commitlake.jobs.offsets.compute_offsets import is_in_future, offset_client

        if self.store is not None and is_spark_option_given(self):
            raise JobError("--spark needs --lake", "a store's log is read in this process")
        for name in ("at", "consume_from"):
            moment = getattr(self, name)
            if moment is not None and is_in_future(moment):
                raise JobError(f"--{name.replace('_', '-')}: expected a time in the past, found {moment.isoformat()}")
        with nullcontext() if self.namesrv is None else offset_client(self.namesrv) as client:
            return _compute_and_print(self, client)


def _compute_and_print(command: OffsetsOptions, client: OffsetClient | None) -> ExitCode:
    from commitlake.jobs.offsets.apply import apply_offsets, mqadmin_lines
    from commitlake.jobs.offsets.compute_offsets import gather_group_offsets
    from commitlake.jobs.offsets.formatting import (
        GROUP_COLUMNS,
        PLAIN_COLUMNS,
        format_table_row,
        machine_readable_rows,
        summary_sentence,
    )
    from commitlake.jobs.report.rows_output import write_rows

    groups = [replace(command, group=(group,)) for group in dict.fromkeys(command.group)]
    found = [(one, gather_group_offsets(one, client)) for one in groups]
    for _, gathered in found:
        if gathered.unknown and command.apply:
            raise JobError(f"--apply: {gathered.unknown}", "no offset was set")
    now = datetime.datetime.now(datetime.UTC)
    lost = _warn_of_lost_messages(command)
    shown = (row for one, gathered in found for row in machine_readable_rows(gathered.rows, one.group[0], now))
    if command.output == MQADMIN and client is not None:
        for one, gathered in found:
            for line in mqadmin_lines(one, gathered.rows, client):
                print(line)
    elif command.output == "table":
        write_rows("table", map(format_table_row, shown), GROUP_COLUMNS if len(found) > 1 else GROUP_COLUMNS[1:])
    else:
        write_rows(command.output, shown, PLAIN_COLUMNS, lost)
    sys.stdout.flush()
    is_complete = not lost
    for one, gathered in found:
        rows = gathered.rows
        if gathered.unknown:
            print_warning("commitlake offsets", gathered.unknown)
            continue
        for sentence in gathered.missing:
            print_warning("commitlake offsets", sentence)
        if rows and not command.quiet:
            print_line(summary_sentence(rows, one.group[0]))
        is_whole = bool(rows) and not gathered.missing and not any(row.asked.problem for row in rows)
        if command.apply and client is not None:
            is_whole = apply_offsets(one, rows, client) and is_whole
        is_complete = is_complete and is_whole
    return ExitCode.OK if is_complete else ExitCode.DAMAGE


def _warn_of_lost_messages(command: OffsetsOptions) -> list[str]:
    """Warn of lost messages that may belong to the requested queues and times; return the warnings as sentences."""
    if command.lake is None:
        return []
    return warn_of_lost_ranges("offsets", open_lake_argument(command), command.broker, command.consume_from, command.at)


build_parser, main = Offsets.parser, Offsets.main
