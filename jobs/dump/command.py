"""Print the contents of a store as JSON lines: records, queue entries or index entries. Needs no Spark and no lake.

Reads a store; writes one object per line to standard output, in physical order, and reports on standard error where and
why it stopped. Exit codes: 0 if the log is intact (a torn end is not damage); 3 if there are bad ranges before its end,
if a body cannot be decompressed for `--body-as text`, or, for a JMQ store's queues, if an entry has a wrong CRC or is
missing before others.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from commitlake.connectors.printable import printable_json
from commitlake.jobs.cli.broker_conf import add_broker_conf_argument, read_store_conf
from commitlake.jobs.cli.combinations import check_has_effect
from commitlake.jobs.cli.command import JobError, job_parser, run_job
from commitlake.jobs.cli.layouts import FOLDERS, add_layout_argument, layout_of
from commitlake.jobs.cli.names import some_names, warn
from commitlake.jobs.cli.once import Once
from commitlake.jobs.cli.store_arguments import add_store_argument, at_least, check_store_is_given
from commitlake.jobs.cli.terminal import trusted
from commitlake.schemas.counts import count_text
from commitlake.schemas.errors import ExitCode

if TYPE_CHECKING:
    from commitlake.connectors.formats.engine.stores import Store
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


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of the job's arguments."""
    parser = job_parser("dump", DESCRIPTION, EXAMPLES)
    add_store_argument(parser, f"store folder (the one that holds {FOLDERS})")
    parser.add_argument("--broker", action=Once, help="the store's name (default: the folder's name)")
    add_layout_argument(parser)
    body_help = "print bodies: as stored, in base64; or decompressed, as UTF-8 text (default: none)"
    # Its older name is a flag in query, dlq and lineage.
    forms = ("base64", "text", "none")
    parser.add_argument("--body-as", "--body", dest="body", choices=forms, default="none", help=body_help)
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--consumequeue",
        action="store_true",
        help="print the entries of the queues instead",
    )
    index_help = "print the entries of the IndexFiles instead (a copy in an object store lacks the newest one)"
    what.add_argument("--index", action="store_true", help=index_help)
    parser.add_argument("--topic", action="append", default=[], help="with --consumequeue: only this topic")
    queue_help = "with --consumequeue: only this queue"
    parser.add_argument("--queue", action="append", default=[], type=at_least(0), help=queue_help)
    add_broker_conf_argument(parser)
    parser.add_argument("--index-slots", type=int, metavar="N", help="with --index: the broker's maxHashSlotNum")
    parser.add_argument("--index-entries", type=int, metavar="N", help="with --index: the broker's maxIndexNum")
    return parser


def run(arguments: argparse.Namespace) -> ExitCode:
    """Print what the arguments ask for."""
    _check(arguments)
    if arguments.consumequeue or arguments.index:
        return _run_indexes(arguments)
    from commitlake.connectors.formats.engine.stores import segment_size
    from commitlake.jobs.dump.record_rows import DumpReport, dump_records, how_it_ended

    store = _find_store(arguments)
    report = DumpReport()
    _print(dump_records(store, segment_size(store), arguments.body, report))
    _warn_of_unread(store)
    for sentence in report.damage:
        print(f"damage: {sentence}", file=sys.stderr)
    if report.unreadable:
        bodies = count_text(report.unreadable, "body", "bodies")
        print(f"damage: {bodies} cannot be decompressed; body_error of each record says why", file=sys.stderr)
    damage = f", {count_text(len(report.damage), 'damaged range')}" if report.damage else ""
    print(f"{count_text(report.records, 'record')}{damage}; {how_it_ended(report)}", file=sys.stderr)
    return ExitCode.DAMAGE if report.damage or report.unreadable else ExitCode.OK


def _warn_of_unread(store: Store) -> None:
    """Warn of messages that are not in the folder that is read; for a copy in an object store, `ship` does."""
    from commitlake.connectors.formats.unread import UNREAD
    from commitlake.pipelines.ship.store import ShipStoreError, SourceStore

    if store.is_remote:
        return
    with suppress(ShipStoreError):  # logs of several formats are in one folder
        for sentence in SourceStore(str(Path(store.root).parent)).newer_data(store.broker):
            UNREAD.warning("%s", sentence)


def _find_store(arguments: argparse.Namespace) -> Store:
    from commitlake.connectors.formats.engine.stores import find_stores

    check_store_is_given(arguments)
    stores = find_stores(arguments.store, arguments.broker, layout_of(arguments).formats)
    if len(stores) > 1:
        raise JobError(
            f"{arguments.store} matches {count_text(len(stores), 'store')}: expected one", "dump them one by one"
        )
    return stores[0]


def _run_indexes(arguments: argparse.Namespace) -> ExitCode:
    from commitlake.jobs.dump.record_rows import dump_index_files, dump_queues

    store = _find_store(arguments)
    damage = 0

    def report_damage(sentence: str) -> None:
        nonlocal damage
        damage += 1
        print(f"damage: {sentence}", file=sys.stderr)

    if arguments.index and not store.format.has_index_files:
        raise JobError(f"{arguments.store} has no IndexFiles: expected a RocketMQ store, found a {store.format.folder}")
    if arguments.index:
        if (reason := store.format.why_no_key_index(store)) is not None:
            print(f"note: keys cannot be looked up in this index: {reason}", file=sys.stderr)
        if store.is_remote:
            print("note: a copy has all IndexFiles but the broker's newest one", file=sys.stderr)
        count = _print(dump_index_files(store, _geometry(arguments, store)))
    else:
        _check_names(store, arguments.topic, arguments.queue)
        count = _print(dump_queues(store, arguments.topic, arguments.queue, report_damage))
    print(
        count_text(count, "entry", "entries") + (f", {count_text(damage, 'damaged place')}" if damage else ""),
        file=sys.stderr,
    )
    return ExitCode.DAMAGE if damage else ExitCode.OK


def _geometry(arguments: argparse.Namespace, store: Store) -> Geometry | None:
    """Return the size of the IndexFiles by the options or --broker-conf; None if neither gives it."""
    from commitlake.schemas.layouts.rocketmq.indexfile import Geometry

    if arguments.index_slots is not None:
        return Geometry(arguments.index_slots, arguments.index_entries)
    conf = read_store_conf(arguments.broker_conf, store.broker)
    if conf.index_slots is None or conf.index_entries is None:
        return None
    return Geometry(conf.index_slots, conf.index_entries)


def _check_names(store: Store, topics: Sequence[str], queues: Sequence[int]) -> None:
    """Warn of a topic or queue that has no folder."""
    from commitlake.jobs.cli.store_queues import queues_by_topic, unknown_names

    for sentence in unknown_names([store], topics, queues):
        warn("commitlake dump", f"the store has {sentence}; topics with queues: {some_names(queues_by_topic(store))}")


def _check(arguments: argparse.Namespace) -> None:
    if (arguments.topic or arguments.queue) and not arguments.consumequeue:
        raise JobError(
            "--topic and --queue need --consumequeue", "to pick records, filter the JSON, or use 'query' on a lake"
        )
    if arguments.body != "none" and (arguments.consumequeue or arguments.index):
        raise JobError("--body-as has no effect with --consumequeue and --index: their entries have no bodies")
    if (arguments.index_slots is None) != (arguments.index_entries is None):
        raise JobError("--index-slots and --index-entries must be given together")
    if arguments.index_slots is not None and min(arguments.index_slots, arguments.index_entries) < 1:
        raise JobError("--index-slots and --index-entries: expected at least 1 of each")
    if arguments.index_slots is not None and not arguments.index:
        raise JobError("--index-slots and --index-entries need --index")
    check_has_effect(arguments, ("broker-conf",), "index")


def _print(rows: Iterable[dict[str, object]]) -> int:
    encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
    write = trusted(sys.stdout).write
    count = 0
    for row in rows:
        write(printable_json(encode(row)) + "\n")
        count += 1
    return count


def main(argv: Sequence[str] | None = None) -> int:
    """Run `commitlake dump`."""
    return run_job(build_parser(), run, argv)
