"""Print the contents of a store as JSON lines: records, queue entries or index entries. Needs no Spark and no lake.

Reads a store; writes one object per line to standard output, in physical order, and reports on standard error where and
why it stopped. Exit codes: 0 if the log is intact (a torn end is not damage); 3 if there are bad ranges before its end,
if a body cannot be decompressed for `--body-as text`, or, for a JMQ store's queues, if an entry has a wrong CRC or is
missing before others.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from commitlake.connectors.printable import escape_json
from commitlake.jobs.arguments.broker_conf import (
    BROKER_CONF_HELP,
    BrokerConfArgument,
    read_store_conf,
)
from commitlake.jobs.arguments.selection import Queues, Topics
from commitlake.jobs.arguments.similar_names import print_warning, shorten_name_list
from commitlake.jobs.arguments.store_layout import FOLDERS, LayoutArgument, find_formats
from commitlake.jobs.arguments.stores import (
    StoreName,
    declare_broker_option,
    declare_store_argument,
    make_integer_parser,
    positive,
    require_store,
)
from commitlake.jobs.cli.command import Command, JobError
from commitlake.jobs.cli.options import OneOf, conflicts_with, flag, only_with, option, repeated, requires_one_of
from commitlake.jobs.cli.terminal import unguarded_stream
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.formatted_counts import format_count

if TYPE_CHECKING:
    from commitlake.connectors.reading.stores import Store
    from commitlake.schemas.layouts.rocketmq.indexfile import Geometry

DESCRIPTION = (
    "Print a store's records as JSON lines, in physical order: every column of the table messages, timestamps as ms, "
    "and segment, magic and body_sha256 (of the stored bytes). Damaged ranges, and where the log ends, are reported on "
    "standard error."
)
EXAMPLES = (
    ("dump /data/rocketmq/store | head -3", "the oldest records"),
    ("dump /data/rocketmq/store --body-as text | jq 'select(.topic == \"orders\")'", "one topic, bodies decompressed"),
    ("dump /data/rocketmq/store --consumequeue --topic orders --queue 0", "a queue's entries"),
    ("dump /data/rocketmq/store --index", "what the broker's index holds"),
)


_WHAT = OneOf()
_OF_QUEUES = requires_one_of("consumequeue", hint="to pick records, filter the JSON, or use 'query' on a lake")


@dataclass(frozen=True, kw_only=True)
class Dump(
    Command, StoreName, LayoutArgument, Topics, Queues, BrokerConfArgument,
    after={
        **dict.fromkeys((StoreName, LayoutArgument), "broker"),
        **dict.fromkeys((Topics, Queues, BrokerConfArgument), "index"),
    },
):  # fmt: skip
    """The command `dump`, which prints a store's records, or the entries of its queues or indexes, as JSON lines."""

    NAME = "dump"
    DESCRIPTION = DESCRIPTION
    EXAMPLES = EXAMPLES

    store: str | None = declare_store_argument(f"store folder (the one that holds {FOLDERS})")
    broker: str | None = declare_broker_option("the store's name (default: the folder's name)")
    body: str = option(
        "print bodies: as stored, in base64; or decompressed, as UTF-8 text (default: none)",
        "--body-as",
        "--body",
        default="none",
        choices=("base64", "text", "none"),
        rules=conflicts_with("consumequeue", "index", hint="entries have no bodies: leave {this} out"),
    )
    consumequeue: bool = flag("print the entries of the queues instead", one_of=_WHAT)
    index: bool = flag(
        "print the entries of the IndexFiles instead (a copy in an object store lacks the newest one)", one_of=_WHAT
    )
    topic: tuple[str, ...] = repeated("with --consumequeue: only this topic", rules=_OF_QUEUES)
    queue: tuple[int, ...] = repeated(
        "with --consumequeue: only this queue", parse=make_integer_parser(0), rules=_OF_QUEUES
    )
    broker_conf: str | None = option(BROKER_CONF_HELP, metavar="FILE", rules=only_with("index"))
    index_slots: int | None = option(
        "with --index: the broker's maxHashSlotNum",
        parse=positive,
        metavar="N",
        rules=(*requires_one_of("index"), *requires_one_of("index_entries")),
    )
    index_entries: int | None = option(
        "with --index: the broker's maxIndexNum",
        parse=positive,
        metavar="N",
        rules=(*requires_one_of("index"), *requires_one_of("index_slots")),
    )

    def run(self) -> ExitCode:
        """Print the requested records or entries as JSON lines."""
        if self.consumequeue or self.index:
            return _dump_index_entries(self)
        from commitlake.connectors.reading.stores import segment_size
        from commitlake.jobs.dump.record_rows import DumpReport, describe_dump_end, dump_records

        store = _find_store(self)
        report = DumpReport()
        _print_rows(dump_records(store, segment_size(store), self.body, report))
        _warn_of_unread_messages(store)
        for sentence in report.damage:
            print(f"damage: {sentence}", file=sys.stderr)
        if report.unreadable:
            bodies = format_count(report.unreadable, "body", "bodies")
            print(f"damage: {bodies} cannot be decompressed; body_error of each record says why", file=sys.stderr)
        damage = f", {format_count(len(report.damage), 'damaged range')}" if report.damage else ""
        print(f"{format_count(report.records, 'record')}{damage}; {describe_dump_end(report)}", file=sys.stderr)
        return ExitCode.DAMAGE if report.damage or report.unreadable else ExitCode.OK


def _warn_of_unread_messages(store: Store) -> None:
    """Warn of newer messages of a local store in folders that `dump` does not read."""
    from commitlake.connectors.reading.unread_warnings import UNREAD
    from commitlake.pipelines.ship.source_store import SourceStore
    from commitlake.schemas.errors import UsageError

    if store.is_remote:
        return
    try:
        source = SourceStore(str(Path(store.root).parent), store.broker)
    except UsageError:  # logs of several formats are in one folder
        return
    for sentence in source.newer_data_sentences():
        UNREAD.warning("%s", sentence)


def _find_store(command: Dump) -> Store:
    from commitlake.connectors.reading.stores import find_stores

    stores = find_stores(require_store(command.store), command.broker, formats=find_formats(command))
    if len(stores) > 1:
        raise JobError(
            f"{command.store} matches {format_count(len(stores), 'store')}: expected one store", "dump them one by one"
        )
    return stores[0]


def _dump_index_entries(command: Dump) -> ExitCode:
    from commitlake.jobs.dump.record_rows import dump_index_files, dump_queues

    store = _find_store(command)
    damage = 0

    def print_damage_warning(sentence: str) -> None:
        nonlocal damage
        damage += 1
        print(f"damage: {sentence}", file=sys.stderr)

    if command.index and not store.format.indexes.has_files:
        raise JobError(
            f"{command.store} is a {store.format.title} store, which has no IndexFiles: expected a RocketMQ store"
        )
    if command.index:
        if (reason := store.format.indexes.no_key_index_reason(store.segments)) is not None:
            print(f"note: keys cannot be looked up in this index: {reason}", file=sys.stderr)
        if store.is_remote:
            print("note: a copy has all IndexFiles but the broker's newest one", file=sys.stderr)
        count = _print_rows(dump_index_files(store, _index_file_geometry(command, store)))
    else:
        _warn_of_unknown_names(store, command.topic, command.queue)
        count = _print_rows(dump_queues(store, command.topic, command.queue, print_damage_warning))
    print(
        format_count(count, "entry", "entries") + (f", {format_count(damage, 'damaged place')}" if damage else ""),
        file=sys.stderr,
    )
    return ExitCode.DAMAGE if damage else ExitCode.OK


def _index_file_geometry(command: Dump, store: Store) -> Geometry | None:
    """Return the numbers of slots and entries of IndexFiles, as set by options or --broker-conf; None if by neither."""
    from commitlake.schemas.layouts.rocketmq.indexfile import Geometry

    if command.index_slots is not None and command.index_entries is not None:
        return Geometry(command.index_slots, command.index_entries)
    conf = read_store_conf(command.broker_conf, store.broker)
    if conf.index_slots is None or conf.index_entries is None:
        return None
    return Geometry(conf.index_slots, conf.index_entries)


def _warn_of_unknown_names(store: Store, topics: Sequence[str], queues: Sequence[int]) -> None:
    """Warn of requested topics or queues that have no folder."""
    from commitlake.jobs.arguments.store_queues import queue_ids_by_topic, unknown_store_name_sentences

    for sentence in unknown_store_name_sentences([store], topics, queues):
        print_warning(
            "commitlake dump",
            f"the store has {sentence}; topics with queues: {shorten_name_list(queue_ids_by_topic(store))}",
        )


def _print_rows(rows: Iterable[dict[str, object]]) -> int:
    encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
    write = unguarded_stream(sys.stdout).write
    count = 0
    for row in rows:
        write(escape_json(encode(row)) + "\n")
        count += 1
    return count


build_parser, main = Dump.parser, Dump.main
