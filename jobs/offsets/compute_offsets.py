"""Computation of a group's offsets from a job's command."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.snapshot_tables import OFFSETS, open_snapshots
from commitlake.connectors.rocketmq import Admin, ClientOptions, Puller
from commitlake.jobs.arguments.broker_name import find_named_stores
from commitlake.jobs.arguments.lake_location import open_lake_argument
from commitlake.jobs.arguments.similar_names import (
    known_names_hint,
    shorten_name_list,
    suggest_or_list_names,
    suggest_similar_name,
)
from commitlake.jobs.arguments.store_layout import find_formats
from commitlake.jobs.arguments.unknown_lake_names import check_archived_brokers
from commitlake.jobs.cli.command import JobError
from commitlake.jobs.cli.damaged_file_errors import explain_damaged_files
from commitlake.jobs.lag.lag_measurement import open_messages
from commitlake.jobs.offsets.arguments import OffsetsOptions
from commitlake.pipelines.lag.subscriptions import BROADCASTING
from commitlake.pipelines.offsets.group_offsets import PlannedOffset
from commitlake.pipelines.offsets.live_queues import LiveQueues, OffsetClient
from commitlake.pipelines.offsets.offset_sources import OffsetSource, open_lake_sources, open_store_sources
from commitlake.pipelines.offsets.past_offsets import read_past_offsets
from commitlake.pipelines.offsets.plan import plan_offsets_since, plan_past_offsets
from commitlake.pipelines.snapshot.progress import GroupTopic

_READ = ("messages", "consumer_offsets", "subscriptions")
_CLIENT_GROUP = "commitlake-offsets"
_REQUEST_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class GatheredOffsets:
    """A group's offsets by queue, with sentences about what is unknown or missing.

    Attributes:
        rows: Offsets by queue.
        missing: Sentences about offsets that are not known, or queues that are missing.
        unknown: Sentence that nothing is known of the group; empty otherwise.
    """

    rows: Sequence[PlannedOffset]
    missing: Sequence[str]
    unknown: str = ""


@contextmanager
def offset_client(name_servers: str) -> Iterator[OffsetClient]:
    """Return a client connected to live brokers, with access keys and TLS settings from the environment."""
    options = ClientOptions(name_servers, request_seconds=_REQUEST_SECONDS)
    with Admin(options) as admin, Puller(_CLIENT_GROUP, options) as puller:
        yield OffsetClient(admin, puller)


def gather_group_offsets(command: OffsetsOptions, client: OffsetClient | None) -> GatheredOffsets:
    """Return a group's offsets by queue, as the options of `offsets` request them.

    Args:
        client: Client of the brokers; None if they are not asked.

    Raises:
        JobError: A broker or the topics of a group are unknown, or the lake has no history.
        LakeError: There is no lake.
        QueryError: A table cannot be read.
        CommitLogError: There is no store, or it cannot be read.
        RocketMQError: A broker does not answer.
    """
    if command.lake is None:
        stores = find_named_stores(command.source_option[1], None, None, find_formats(command))
        sources = open_store_sources(store for store in stores if not command.broker or store.broker in command.broker)
        if not sources:
            raise JobError(
                f"--broker: {command.store} has no store named {', '.join(command.broker)}",
                known_names_hint(s.broker for s in stores),
            )
        return _gather_from_sources(command, sources, None, client)
    lake = open_lake_argument(command).pin_versions()
    with explain_damaged_files(lake, _READ):
        check_archived_brokers(lake, command.broker)
        messages = open_messages(lake, "offsets", is_on_spark=command.is_on_spark)
        return _gather_from_sources(command, open_lake_sources(lake, command.broker, messages), lake, client)


def _gather_from_sources(
    command: OffsetsOptions, sources: Sequence[OffsetSource], lake: Lake | None, client: OffsetClient | None
) -> GatheredOffsets:
    live = None if client is None else LiveQueues(client, command.group[0])
    if client is not None:
        _check_live_brokers(client, sources)
    if command.at is not None:
        assert lake is not None, "--at needs --lake"
        return _offsets_at_time(command, command.at, sources, lake, live)
    assert command.consume_from is not None
    return _offsets_to_consume_from(command, command.consume_from, sources, live)


def _check_live_brokers(client: OffsetClient, sources: Sequence[OffsetSource]) -> None:
    """Raise an error if a broker of the sources is unknown to the name server, which may belong to another cluster."""
    known = sorted(client.admin.clusters().broker_addr_table)
    for source in sources:
        if source.broker not in known:
            raise JobError(
                "--namesrv: the name server has no broker "
                f"{source.broker!a}.{suggest_similar_name(source.broker, known)}",
                f"brokers: {shorten_name_list(known)}; --broker selects brokers of the lake",
            )


def _offsets_at_time(
    command: OffsetsOptions,
    moment: datetime.datetime,
    sources: Sequence[OffsetSource],
    lake: Lake,
    live_queues: LiveQueues | None,
) -> GatheredOffsets:
    table = open_snapshots(lake, OFFSETS)
    if table is None:
        raise JobError(
            "the lake has no snapshots of consumer offsets, from which the offsets at a time are read",
            "'commitlake snapshot' and each run of 'archive' add to it; --consume-from needs none",
        )
    had = read_past_offsets(table, sources, command.group[0], moment, command.topic)
    groups = set(had.groups).union(*(source.known_groups for source in sources))
    if command.group[0] not in groups and len(had.missing) < len(sources):
        return _unknown_group_result(command.group[0], groups)
    missing = list(had.missing)
    if not had.offsets and not missing:
        of_what = f" of {' or '.join(command.topic)}" if command.topic else ""
        missing.append(f"the group {command.group[0]} had no offset{of_what} at that time")
    return GatheredOffsets(plan_past_offsets(sources, command.group[0], had.offsets, live_queues), missing)


def _offsets_to_consume_from(
    command: OffsetsOptions, start: datetime.datetime, sources: Sequence[OffsetSource], live_queues: LiveQueues | None
) -> GatheredOffsets:
    group = command.group[0]
    topics = set(command.topic) or {topic for source in sources for topic in source.topics_of_group(group)}
    if not topics:
        groups = {name for source in sources for name in source.known_groups}
        if group in groups:
            raise JobError(f"it is not known which topics the group {group!a} consumes", "name the topics with --topic")
        if not_read := [f"{source.broker}: {sentence}" for source in sources for sentence in source.not_read]:
            return GatheredOffsets((), not_read)
        return _unknown_group_result(group, groups)
    broadcast = {topic for source in sources for topic in topics if _is_broadcast_topic(source, group, topic)}
    missing = [
        f"the group {group} broadcasts {topic}: each of its clients keeps its own offsets, and ignores those of the "
        "broker"
        for topic in sorted(broadcast)
    ]
    wanted = topics - broadcast
    rows = plan_offsets_since(sources, group, wanted, start, live_queues)
    found = {row.asked.queue.topic for row in rows}
    known = {topic for source in sources for topic in source.topics_of_group(group)}
    missing += [
        f"no message of the topic {topic!a} is known.{suggest_similar_name(topic, known - {topic})}"
        for topic in sorted(wanted - found)
    ]
    if live_queues is not None and not command.broker:
        others = live_queues.brokers_with_topics(wanted) - {source.broker for source in sources}
        missing += [
            f"{broker} has queues of these topics, but none of its messages is archived" for broker in sorted(others)
        ]
    return GatheredOffsets(rows, missing)


def _is_broadcast_topic(source: OffsetSource, group: str, topic: str) -> bool:
    return source.subscriptions.find_subscription(GroupTopic(group, topic)).message_model == BROADCASTING


def _unknown_group_result(group: str, groups: set[str]) -> GatheredOffsets:
    unknown = (
        f"no offset and no subscription of the group {group!a} is known (--topic names topics for --consume-from)."
        f"{suggest_or_list_names(group, groups)}"
    )
    return GatheredOffsets((), (), unknown)


def is_in_future(moment: datetime.datetime) -> bool:
    """Return True if a time is in the future."""
    return moment > datetime.datetime.now(datetime.UTC)
