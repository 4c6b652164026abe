"""Sources of the messages of a new replay: a lake, a store's log, or live topics.

Messages of a log or of topics are first copied into a temporary folder, so that they can be selected like those of a
lake. The messages to send are written to the lake's table `replay_rows` before the first one is sent. So a replay that
is resumed after the broker has deleted them sends the same messages.
"""

from __future__ import annotations

import datetime
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from deltalake import DeltaTable

from commitlake.connectors.lake.archive_commits import read_last_commit
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.rocketmq import Admin
from commitlake.jobs.arguments.similar_names import known_names_hint, print_warning, suggest_similar_name
from commitlake.jobs.arguments.store_layout import find_formats
from commitlake.jobs.cli.command import JobError
from commitlake.jobs.cli.lost_range_warnings import warn_of_lost_ranges
from commitlake.jobs.cli.progress import counted_progress
from commitlake.jobs.replay.arguments import ReplayOptions
from commitlake.jobs.replay.replay_management import PROG
from commitlake.pipelines.replay.groups.consumed_counts import (
    KnownOffsets,
    Places,
    fetch_live_offsets,
    read_known_offsets,
)
from commitlake.pipelines.replay.groups.not_consumed_messages import (
    NotConsumed,
    find_not_consumed_in_lake,
    find_not_consumed_in_stores,
    find_not_consumed_live,
)
from commitlake.pipelines.replay.sending.target_client import client_options
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.layouts.rocketmq.topics import DLQ_PREFIX, Kind, kind_of, strip_broadcast_suffix
from commitlake.schemas.remoting.routes import subscribe_queues
from commitlake.schemas.selection import Selection

_STEPS = 1000
"""Total of a progress bar whose real total is known only once reading begins."""


@dataclass(frozen=True, slots=True)
class MessageSource:
    """Place from which a replay takes messages: a lake, a store's log, or live topics.

    Attributes:
        table: the table `messages` to select from.
        offsets: function that takes broker names, and returns the next offset of every group in their queues.
        not_consumed: function that returns the messages not consumed by the group of `--not-consumed-by`. Its
            parameters are the options, the group, and a function that tells whether a topic is relevant.
        is_copied: whether the table is a copy that contains the bodies, and is deleted at the end.
        damaged: number of ranges of the log without an intact record.
        missing: sentences on messages that the lake has lost, and that may be among those to send.
    """

    table: DeltaTable
    offsets: Callable[[Sequence[str]], KnownOffsets]
    not_consumed: Callable[[ReplayOptions, str, Callable[[str], bool]], NotConsumed]
    is_copied: bool = False
    damaged: int = 0
    missing: Sequence[str] = ()


def lake_source(lake: Lake, table: DeltaTable) -> MessageSource:
    """Return a lake's archived messages as the source of a replay."""

    def find_not_consumed(arguments: ReplayOptions, group: str, is_chosen_topic: Callable[[str], bool]) -> NotConsumed:
        brokers = arguments.broker or archived_store_names(lake)
        return find_not_consumed_in_lake(lake, table, group, brokers, is_chosen_topic, arguments.offsets_at)

    return MessageSource(table, partial(read_known_offsets, lake), find_not_consumed)


def archived_store_names(lake: Lake) -> list[str]:
    """Return the names of the stores whose messages the lake has."""
    last = read_last_commit(lake)
    return [] if last is None else sorted(last.stores)


@contextmanager
def open_message_source(arguments: ReplayOptions, lake: Lake) -> Iterator[MessageSource]:
    """Open the source of messages that the options name.

    Raises:
        JobError: if a store has no log, or live topics are requested without names.
        LakeError: if there is no lake.
        CommitLogError: if a log cannot be read.
        RocketMQError: if a broker does not answer.
    """
    if arguments.store is not None:
        copy_messages = partial(_copy_store_messages, arguments.store)
    elif arguments.from_broker is not None:
        copy_messages = partial(_copy_live_topics, arguments.from_broker)
    else:
        times = (None, None) if arguments.born else (arguments.start, arguments.end)
        missing = warn_of_lost_ranges("replay", lake, arguments.broker, *times)
        yield replace(lake_source(lake, lake.table("messages")), missing=missing)
        return
    with tempfile.TemporaryDirectory(prefix="commitlake-replay-") as folder:
        source = copy_messages(arguments, Lake(folder))
        if source.damaged:
            print_warning(
                PROG,
                f"{format_count(source.damaged, 'range of the log is', 'ranges of the log are')} damaged, and their "
                "messages cannot be sent: 'commitlake verify' shows more",
            )
        yield source


def _copy_store_messages(store_path: str, arguments: ReplayOptions, copy_lake: Lake) -> MessageSource:
    from commitlake.jobs.arguments.broker_name import find_named_stores
    from commitlake.jobs.arguments.store_queues import unknown_store_name_sentences
    from commitlake.pipelines.replay.copied_messages import copy_log_messages
    from commitlake.pipelines.snapshot.progress import OffsetKind
    from commitlake.pipelines.snapshot.store_file_reader import read_store_snapshot

    stores = find_named_stores(store_path, None, None, find_formats(arguments))
    names = [store.broker for store in stores]
    stores = [store for store in stores if not arguments.broker or store.broker in arguments.broker]
    for broker in arguments.broker:
        if broker not in names:
            near = suggest_similar_name(broker, names)
            raise JobError(f"--broker: {store_path} has no store {broker!a}.{near}", known_names_hint(names))
    for sentence in unknown_store_name_sentences(stores, arguments.topic, arguments.queue):
        print_warning(PROG, sentence)

    def read_offsets(_: Sequence[str]) -> KnownOffsets:
        found: dict[str, Places] = {}
        as_of: dict[str, datetime.datetime] = {}
        for store in stores:
            progress = read_store_snapshot(store, datetime.datetime.now(datetime.UTC))
            if progress is None or OffsetKind.GROUP not in progress.taken:
                continue
            as_of[store.broker] = progress.taken[OffsetKind.GROUP]
            for place, offset in progress.offsets.items():
                if place.kind == OffsetKind.GROUP:
                    group = strip_broadcast_suffix(place.group)
                    found.setdefault(group, {})[store.broker, place.topic, place.queue_id] = offset
        return KnownOffsets(found, as_of)

    def find_not_consumed(_: ReplayOptions, group: str, is_chosen_topic: Callable[[str], bool]) -> NotConsumed:
        return find_not_consumed_in_stores(stores, group, is_chosen_topic)

    with _show_copy_progress(arguments, f"reading {store_path}") as advance:
        damaged = copy_log_messages(
            stores, _source_selection(arguments), copy_lake, advance, has_bodies=_needs_bodies(arguments)
        )
    return MessageSource(copy_lake.table("messages"), read_offsets, find_not_consumed, is_copied=True, damaged=damaged)


def _copy_live_topics(name_servers: str, arguments: ReplayOptions, copy_lake: Lake) -> MessageSource:
    from commitlake.pipelines.replay.copied_messages import copy_topic_messages

    wanted = _source_selection(arguments)
    with Admin(client_options(name_servers)) as admin:
        wanted = replace(wanted, topics=check_live_topics(arguments, admin, wanted.topics))

    def read_offsets(_: Sequence[str]) -> KnownOffsets:
        now = datetime.datetime.now(datetime.UTC)
        with Admin(client_options(name_servers)) as admin:
            groups = {group for topic in wanted.topics for group in admin.groups_of_topic(topic)}
            found = {group: places for group in sorted(groups) if (places := fetch_live_offsets(admin, group))}
        return KnownOffsets(found, {place[0]: now for places in found.values() for place in places})

    def find_not_consumed(_: ReplayOptions, group: str, __: Callable[[str], bool]) -> NotConsumed:
        with Admin(client_options(name_servers)) as admin:
            return find_not_consumed_live(admin, group, wanted.topics, arguments.broker)

    with _show_copy_progress(arguments, f"reading {', '.join(wanted.topics)}") as advance:
        damaged = copy_topic_messages(name_servers, wanted, copy_lake, advance, has_bodies=_needs_bodies(arguments))
    return MessageSource(copy_lake.table("messages"), read_offsets, find_not_consumed, is_copied=True, damaged=damaged)


def _source_selection(arguments: ReplayOptions) -> Selection:
    """Return the conditions that are checked while a log or queue is read; other conditions are checked later."""
    dead = [] if arguments.dlq_of is None else [DLQ_PREFIX + arguments.dlq_of]
    return Selection(
        topics=() if arguments.all_copies else tuple(dict.fromkeys([*arguments.topic, *dead])),
        queue_ids=arguments.queue,
        start=None if arguments.born else arguments.start,
        end=None if arguments.born else arguments.end,
    )


def _needs_bodies(arguments: ReplayOptions) -> bool:
    return bool(not arguments.dry_run or arguments.transform or arguments.mask)


@contextmanager
def _show_copy_progress(arguments: ReplayOptions, label: str) -> Iterator[Callable[[int, int], None]]:
    with counted_progress(label, _STEPS, "parts in a thousand", quiet=arguments.quiet) as advance:
        shown = 0

        def advance_copy_progress(amount_read: int, total_amount: int) -> None:
            nonlocal shown
            reached = amount_read * _STEPS // max(1, total_amount)
            advance(reached - shown)
            shown = reached

        yield advance_copy_progress


def check_live_topics(arguments: ReplayOptions, admin: Admin, topics: Sequence[str]) -> list[str]:
    """Return the given topics that exist on the brokers, and warn of topics and queues that do not exist.

    Args:
        admin: client of the brokers.
        topics: the topics, with that of dead letters.

    Raises:
        JobError: if there is no such broker, or none of the topics.
        RocketMQError: if a server does not answer.
    """
    brokers = sorted(admin.clusters().broker_addr_table)
    for broker in arguments.broker:
        if broker not in brokers:
            near = suggest_similar_name(broker, brokers)
            raise JobError(f"--broker: the name server has no broker {broker!a}.{near}", known_names_hint(brokers))
    known = admin.topics()
    unknown = [_unknown_topic_sentence(topic, known) for topic in topics if topic not in known]
    found = [topic for topic in topics if topic in known]
    if not found:
        kind = kind_of(topics[0])
        others = [topic for topic in known if kind_of(topic) is kind]
        prefix = DLQ_PREFIX if kind is Kind.DLQ else ""
        raise JobError(unknown[0], known_names_hint(topic.removeprefix(prefix) for topic in others))
    for sentence in unknown:
        print_warning(PROG, sentence)
    if arguments.queue:
        queues = [queue for topic in found for queue in subscribe_queues(topic, admin.route(topic))]
        ids = {queue.queue_id for queue in queues if not arguments.broker or queue.broker_name in arguments.broker}
        for queue_id in arguments.queue:
            if queue_id not in ids:
                of_what, there = " or ".join(f"{topic!a}" for topic in found), ", ".join(map(str, sorted(ids)))
                print_warning(PROG, f"no queue {queue_id} of {of_what}; there are {there or 'none'}")
    return found


def _unknown_topic_sentence(topic: str, known_topics: Sequence[str]) -> str:
    if kind_of(topic) is Kind.DLQ:
        group = topic.removeprefix(DLQ_PREFIX)
        groups = [name.removeprefix(DLQ_PREFIX) for name in known_topics if kind_of(name) is Kind.DLQ]
        return f"the brokers have no dead letter of the group {group!a}.{suggest_similar_name(group, groups)}"
    return f"the brokers have no topic {topic!a}.{suggest_similar_name(topic, known_topics)}"
