"""Queries offsets and subscriptions of a live broker over the remoting protocol, with the requests of mqadmin.

A broker answers with the offsets in its memory, which are up to five seconds newer than those in its files.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Iterable, Iterator, Mapping

from commitlake.connectors.rocketmq.admin import Admin
from commitlake.connectors.rocketmq.errors import ProtocolError, RefusedError, UnreachableError
from commitlake.pipelines.snapshot.progress import (
    GroupTopic,
    Member,
    OffsetKind,
    OffsetOwner,
    SnapshotSource,
    StoreSnapshot,
    Subscription,
)
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.layouts.integer_parsing import parse_int64
from commitlake.schemas.layouts.rocketmq.topics import (
    SCHEDULE_TOPIC,
    is_system_group,
    split_offset_key,
    strip_broadcast_suffix,
)
from commitlake.schemas.remoting.codes import ResponseCode
from commitlake.schemas.remoting.frames import version_name
from commitlake.schemas.remoting.heartbeats import ConsumerConnection

_NOBODY = (ResponseCode.CONSUMER_NOT_ONLINE, ResponseCode.SYSTEM_ERROR)
"""Codes by which brokers say that a group has no client."""
GROUPS_SECONDS = 600.0
"""Time limit of the requests for the clients of all groups: there is one for each group."""


def fetch_store_snapshot(
    admin: Admin, broker_name: str, store_name: str | None = None, *, clock: Callable[[], float] = time.monotonic
) -> StoreSnapshot:
    """Take a snapshot of a live broker: the offsets and subscriptions of all its groups.

    Args:
        broker_name: name of the broker at the name servers.
        store_name: name of the store in the lake, if different.
        clock: a monotonic clock, in seconds.

    Raises:
        RocketMQError: The broker does not answer in time, refuses the request, or gives an impossible answer.
    """
    # Before the request, so that the offsets are at least as new as the time says.
    asked_at = _current_time()
    offsets = dict(_fetch_group_offsets(admin, broker_name))
    taken = {OffsetKind.GROUP: asked_at, OffsetKind.DELAY: _current_time()}
    for level, offset in admin.delay_offsets(broker_name).offset_table.items():
        if level < 1:
            raise _impossible_answer_error(broker_name, "the offsets of delays", "delay levels from 1 on", level)
        offsets[OffsetOwner(OffsetKind.DELAY, "", SCHEDULE_TOPIC, level - 1)] = offset
    # Groups with a client but without any offset are known to `admin.groups` only.
    groups = {strip_broadcast_suffix(position.group) for position in offsets if position.group} | set(
        admin.groups(broker_name)
    )
    subscriptions: dict[GroupTopic, Subscription] = {}
    deadline = clock() + GROUPS_SECONDS
    wanted = sorted(group for group in groups if not is_system_group(group))
    for number, group in enumerate(wanted):
        if clock() > deadline:
            raise UnreachableError(
                f"broker {broker_name!r}: expected answers about the clients of {format_count(len(wanted), 'group')} "
                f"within {GROUPS_SECONDS:g} s, found only those of {number:,}"
            )
        subscriptions |= _to_subscriptions(group, _fetch_connections(admin, group, broker_name))
    # After the offsets, so that all messages that they have passed are before the log's end.
    runtime = _fetch_runtime_info(admin, broker_name)
    return StoreSnapshot(
        broker=store_name or broker_name,
        source=SnapshotSource.BROKER,
        taken=taken,
        offsets=offsets,
        subscribed_as_of=asked_at,  # one time for the whole snapshot, so that subscriptions match offsets
        subscriptions=subscriptions,
        log_end=parse_int64(runtime.get("commitLogMaxOffset", "")),
        log_start=parse_int64(runtime.get("commitLogMinOffset", "")),
    )


def fetch_group_snapshot(admin: Admin, group: str, broker_name: str) -> StoreSnapshot:
    """Take a snapshot of one group of a live broker: its offsets, and its clients' subscriptions.

    Args:
        group: the consumer group.
        broker_name: name of the broker at the name servers.

    Raises:
        RocketMQError: The broker does not answer in time, refuses the request, or gives an impossible answer.
    """
    asked_at = _current_time()
    offsets = {
        position: offset
        for position, offset in _fetch_group_offsets(admin, broker_name)
        if strip_broadcast_suffix(position.group) == group
    }
    return StoreSnapshot(
        broker=broker_name,
        source=SnapshotSource.BROKER,
        taken={OffsetKind.GROUP: asked_at},
        offsets=offsets,
        subscribed_as_of=asked_at,
        subscriptions=_to_subscriptions(group, _fetch_connections(admin, group, broker_name)),
    )


def _fetch_group_offsets(admin: Admin, broker_name: str) -> Iterator[tuple[OffsetOwner, int]]:
    for key, queues in admin.all_group_offsets(broker_name).offset_table.items():
        topic, group = split_offset_key(key)
        for queue_id, offset in queues.items():  # a broker accepts any queue id from a client, also a negative one
            yield OffsetOwner(OffsetKind.GROUP, group, topic, queue_id), offset


def _impossible_answer_error(broker_name: str, value_name: str, expected: str, found: int) -> ProtocolError:
    return ProtocolError(f"broker {broker_name!r}: {value_name}: expected {expected}, found {found}")


def _fetch_runtime_info(admin: Admin, broker_name: str) -> Mapping[str, str]:
    """Return a broker's runtime information; empty if the broker reports an error, as just after its start."""
    try:
        return admin.runtime_info(broker_name)
    except RefusedError as error:
        if error.code == ResponseCode.SYSTEM_ERROR:
            return {}
        raise


def _current_time() -> datetime.datetime:
    """Return the time, rounded down to milliseconds as in the tables."""
    now = datetime.datetime.now(datetime.UTC)
    return now.replace(microsecond=now.microsecond // 1000 * 1000)


def _fetch_connections(admin: Admin, group: str, broker_name: str) -> ConsumerConnection | None:
    """Return a group's clients; None if it has none."""
    try:
        return admin.consumer_connections(group, broker_name)
    except RefusedError as error:
        if error.code in _NOBODY:
            return None
        raise


def _to_subscriptions(group: str, connection: ConsumerConnection | None) -> Mapping[GroupTopic, Subscription]:
    if connection is None:
        return {}
    members = tuple(sorted(_iterate_members(connection)))
    return {
        GroupTopic(group, topic): Subscription(
            expression_type=wanted.expression_type,
            expression=wanted.sub_string,
            subscribed_at=wanted.sub_version,
            consume_type=connection.consume_type,
            message_model=connection.message_model,
            consume_from_where=connection.consume_from_where,
            members=members,
        )
        for topic, wanted in connection.subscription_table.items()
    }


def _iterate_members(connection: ConsumerConnection) -> Iterable[Member]:
    for client in connection.connection_set:
        yield Member(
            client.client_id, client.client_addr, client.language, client.version, version_name(client.version)
        )
