"""Save the offsets of consumer groups: a snapshot of a store's files, or of live brokers, in the lake.

    commitlake snapshot --lake /data/lake --store /data/rocketmq/store

Reads consumerOffset.json, delayOffset.json, timercheck and consumerFilter.json (or BoltMQ's or JMQ's own files), or
asks brokers over the remoting protocol, which also know the groups' subscriptions and clients. Writes a row for each
offset that has changed to `consumer_offsets`, and for each subscription that has changed to `subscriptions`. A second
run does not change the tables. It never starts Spark. Exit codes: 0; 1 if a broker does not answer; 2 for a wrong lake,
store or option; 3 if a store's offsets exist but cannot be read; 4 if other snapshots committed first ten times.
"""

from __future__ import annotations

import datetime
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from commitlake.jobs.arguments.durations import make_duration_parser
from commitlake.jobs.arguments.lake_location import LakeArguments, open_lake_argument
from commitlake.jobs.arguments.similar_names import print_warning, shorten_name_list, suggest_similar_name
from commitlake.jobs.arguments.store_layout import FOLDERS, LayoutArgument, find_formats
from commitlake.jobs.arguments.stores import StoreName, declare_broker_option
from commitlake.jobs.cli.command import Command, JobError
from commitlake.jobs.cli.options import OneOf, option, requires_one_of
from commitlake.jobs.cli.terminal import print_line
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.formatted_counts import format_count

if TYPE_CHECKING:
    from commitlake.connectors.lake.lake import Lake
    from commitlake.pipelines.snapshot.progress import StoreSnapshot
    from commitlake.pipelines.snapshot.table_append import AppendedCounts


DESCRIPTION = (
    "Save the offsets of consumer groups in the tables consumer_offsets and subscriptions of a lake. Offsets are read "
    "from the files of a store, or from live brokers, which also know each group's subscription and clients. Only "
    "offsets that have changed are written. 'commitlake archive' takes a snapshot of its stores with each run."
)
EXAMPLES = (
    ("snapshot --lake /data/lake --store /data/rocketmq/store", "from the files of one broker"),
    ("snapshot --lake /data/lake --store '/mnt/brokers/{broker}/store' --every 30s", "a cluster, every 30 seconds"),
    ("snapshot --lake /data/lake --namesrv 10.0.0.1:9876", "ask all brokers that a name server knows"),
    ("snapshot --lake /data/lake --namesrv 10.0.0.1:9876 --broker broker-a", "ask one of them"),
)
_SOURCE = OneOf(required=True)


@dataclass(frozen=True, kw_only=True)
class Snapshot(
    Command, LakeArguments, StoreName, LayoutArgument, after={StoreName: "broker", LayoutArgument: "broker_conf"}
):
    """The command `snapshot`, which saves the offsets of consumer groups in a lake."""

    NAME = "snapshot"
    DESCRIPTION = DESCRIPTION
    EXAMPLES = EXAMPLES

    DEFAULTS: ClassVar = {"spark": False}

    store: str | None = option(
        f"store folder (the one that holds {FOLDERS}), a glob, or several separated by commas; {{broker}} stands for "
        "the path component that names the broker",
        metavar="PATH",
        one_of=_SOURCE,
    )
    namesrv: str | None = option("name servers, separated by semicolons", metavar="HOST:PORT", one_of=_SOURCE)
    broker: str | None = declare_broker_option("the store's name in the lake; with --namesrv: only this broker")
    broker_conf: str | None = option(
        "with --store: the broker's settings file broker.conf, for brokerName and the folders of the log",
        metavar="FILE",
        rules=requires_one_of("store", hint="live brokers report their own names"),
    )
    every: datetime.timedelta | None = option(
        "take a snapshot at this interval, until stopped (SIGTERM)", parse=make_duration_parser("1s"), metavar="TIME"
    )

    def run(self) -> ExitCode:
        """Save the offsets of consumer groups once, or again at each interval."""
        from commitlake.jobs.cli.process import call_on_first_signal

        lake = open_lake_argument(self)
        lake.table("messages")  # raises an error if this is not a lake
        shown: set[str] = set()
        if self.every is None:
            return _take_snapshots(self, lake, shown)
        stop = threading.Event()
        worst = ExitCode.OK
        with call_on_first_signal(stop.set):
            while not stop.is_set():
                worst = max(worst, _take_snapshots(self, lake, shown))
                stop.wait(self.every.total_seconds())
        return worst


def _take_snapshots(command: Snapshot, lake: Lake, printed_notes: set[str]) -> ExitCode:
    """Save the consumer offsets of each store or live broker once.

    Args:
        printed_notes: notes that were printed before; new ones are added.
    """
    from commitlake.pipelines.snapshot.table_append import append_snapshot

    code = ExitCode.OK
    for progress in (
        _read_store_offsets(command, lake, command.store, printed_notes)
        if command.store is not None
        else _read_broker_offsets(command)
    ):
        appended = append_snapshot(lake, progress)
        for sentence in progress.unreadable:
            code = ExitCode.DAMAGE
            print_warning("commitlake snapshot", f"{sentence}; none of its offsets were saved")
        if not command.quiet:
            for line in summary_lines(progress, appended):
                print_line(line)
    return code


def _read_store_offsets(
    command: Snapshot, lake: Lake, store_path: str, printed_notes: set[str]
) -> Iterator[StoreSnapshot]:
    """Yield the offsets in the files of each store."""
    from commitlake.connectors.lake.archive_commits import read_last_commit
    from commitlake.connectors.reading.snapshots import take_snapshot
    from commitlake.connectors.reading.stores import find_stores
    from commitlake.jobs.arguments.broker_name import choose_broker_name
    from commitlake.jobs.arguments.unknown_lake_names import warn_of_unknown_broker
    from commitlake.pipelines.snapshot.store_file_reader import read_store_snapshot

    last = read_last_commit(lake)
    known = () if last is None else tuple(last.stores)
    warn_of_unknown_broker("commitlake snapshot", command.broker, known)
    formats = find_formats(command)
    name = choose_broker_name(store_path, command.broker, command.broker_conf, known, formats)
    if name.note and name.note not in printed_notes and not command.quiet:
        print_line(name.note)
        printed_notes.add(name.note)
    for store in find_stores(store_path, name.name, formats=formats):
        progress = read_store_snapshot(store, datetime.datetime.now(datetime.UTC))
        if progress is None:
            raise JobError(
                f"{store.root} is a copy whose age is not known: expected the folder of a broker on this machine",
                "--namesrv asks the broker itself",
            )
        # The log is read after the offsets, so that it has all messages that the offsets count.
        yield replace(progress, log_end=take_snapshot([store]).ranges[store.broker].end)


def _read_broker_offsets(command: Snapshot) -> Iterator[StoreSnapshot]:
    """Yield a snapshot of the offsets of each live broker."""
    from commitlake.connectors.rocketmq import Admin, ClientOptions
    from commitlake.pipelines.snapshot.broker_queries import fetch_store_snapshot

    with closing(Admin(ClientOptions(command.namesrv or ""))) as admin:
        brokers = sorted(admin.clusters().broker_addr_table)
        if command.broker is not None and command.broker not in brokers:
            raise JobError(
                "--broker: the name server has no broker "
                f"{command.broker!a}.{suggest_similar_name(command.broker, brokers)}",
                f"brokers: {shorten_name_list(brokers)}",
            )
        for broker in brokers if command.broker is None else [command.broker]:
            yield fetch_store_snapshot(admin, broker)


build_parser, main = Snapshot.parser, Snapshot.main


def summary_lines(snapshot: StoreSnapshot, appended_counts: AppendedCounts) -> list[str]:
    """Return lines on the offsets that a snapshot found in a store, and the rows that it added to the lake."""
    if appended_counts.as_of is None:
        return [f"{appended_counts.broker}: {snapshot.note or 'no offsets were read'}"]
    offsets, groups = format_count(appended_counts.read, "offset"), format_count(appended_counts.groups, "group")
    found = f"{appended_counts.broker}: {offsets} of {groups} as of {appended_counts.as_of:%FT%TZ}"
    if appended_counts.is_old:
        return [f"{found}; the lake already has this snapshot or a newer one, so nothing was added"]
    lines = [f"{found}, {format_count(appended_counts.moved, 'offset')} moved"]
    if snapshot.subscriptions or appended_counts.subscribed:
        subscriptions = format_count(len(snapshot.subscriptions), "subscription")
        lines[0] += f"; {subscriptions}, {appended_counts.subscribed:,} changed"
    return lines
