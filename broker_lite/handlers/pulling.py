"""Pulls and held pulls. Source: PullMessageProcessor, PullRequestHoldService (5.5.0)."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace

from commitlake.broker_lite.broker import statistics
from commitlake.broker_lite.broker.broker import Answering, Broker, Handlers
from commitlake.broker_lite.broker.clients import BROADCASTING
from commitlake.broker_lite.broker.filters import Filter, FilterError, check_expression_length, compile_filter
from commitlake.broker_lite.broker.held_pulls import HeldPull
from commitlake.broker_lite.broker.slice_scheduler import SLICE_SECONDS, Steps
from commitlake.broker_lite.errors import StoreError
from commitlake.broker_lite.protocol import Channel
from commitlake.broker_lite.stores.engine.queue_reader import GetStatus, PullLimits, PullResult
from commitlake.schemas.layouts.rocketmq.commitlog import HEAD
from commitlake.schemas.layouts.rocketmq.topics import is_system_group
from commitlake.schemas.remoting.codes import RequestCode, ResponseCode
from commitlake.schemas.remoting.ext_fields import from_ext_fields, to_ext_fields
from commitlake.schemas.remoting.frames import Command
from commitlake.schemas.remoting.headers import PullMessageRequest, PullMessageResponse, PullSysFlag
from commitlake.schemas.remoting.heartbeats import TAG_EXPRESSION, SubscriptionData, subscription_of_tags
from commitlake.schemas.remoting.routes import MASTER_ID, PERM_READ
from commitlake.schemas.remoting.topic_and_group_configs import SubscriptionGroupConfig

UNFILTERED_SECONDS = 0.05
"""Time limit of a pull without SQL92; in RocketMQ's layout it takes a millisecond."""
PULL_SECONDS = 0.1
"""Time limit of a filtered pull; the consumer then pulls again from the offset that was reached."""
MAX_SUSPEND_MS = 600_000
"""RocketMQ has no limit; a consumer asks for 15 to 30 s."""

_PHYSICAL_OFFSET = [field.name for field in HEAD.fields].index("physical_offset")

_CODES = {
    GetStatus.FOUND: ResponseCode.SUCCESS,
    GetStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}
"""Codes by status; for the other two statuses, of a queue without messages, the code depends on the offset."""
_EXHAUSTED = frozenset({GetStatus.NO_MATCHED_MESSAGE, GetStatus.OFFSET_OVERFLOW_ONE})
"""Statuses of a pull that has examined all messages from its offset on, at least for now."""
_NOTHING_YET = frozenset({ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY})
"""Answers with which a held pull keeps waiting."""


def pull_message(broker: Broker, channel: Channel, request: Command) -> Command | Answering | None:
    """Answer with messages of a queue; if there are none, let the request wait, and answer it later."""
    header = from_ext_fields(PullMessageRequest, request.ext_fields)
    refusal, group = _check_pull_request(broker, request, header)
    if refusal is not None or group is None:
        return refusal
    wanted = _filter_or_refusal_response(broker, request, header, group)
    if isinstance(wanted, Command):
        return wanted
    may_wait = bool(header.sys_flag & PullSysFlag.SUSPEND)
    # A pull that may not wait does not commit, as in RocketMQ (brokerAllowSuspend).
    commits = header.sys_flag & PullSysFlag.COMMIT_OFFSET and may_wait and header.commit_offset >= 0
    commits = commits and not is_system_group(header.consumer_group)
    if commits and not broker.is_reset_pending(header.topic, header.consumer_group, header.queue_id):
        broker.check_offset_limit(header.topic, header.consumer_group, header.queue_id)
        broker.store.config.consumer_offsets.acknowledge(
            header.topic, header.consumer_group, header.queue_id, header.commit_offset, channel.peer
        )
    if (answer := _make_reset_response(broker, request, header)) is not None:
        return answer
    if wanted.accepts_record is not None:
        return _pull_with_sql_filter(broker, channel, request, header, wanted, group)
    result = _pull_slice(broker, header, wanted, header.queue_offset)
    if result.is_cut and not result.records:
        return _continue_pull(broker, request, header, wanted, result, group)
    return _answer_or_hold_pull(broker, channel, request, header, wanted, result, group)


def _pull_with_sql_filter(
    broker: Broker,
    channel: Channel,
    request: Command,
    header: PullMessageRequest,
    message_filter: Filter,
    group: SubscriptionGroupConfig,
) -> Answering:
    """Answer a pull with an SQL92 filter, in slices that run after earlier pulls of the same client."""
    result = _pull_slice(broker, header, message_filter, header.queue_offset)
    if result.is_cut and not result.records:
        return (yield from _continue_pull(broker, request, header, message_filter, result, group))
    return _answer_or_hold_pull(broker, channel, request, header, message_filter, result, group)


def _answer_or_hold_pull(
    broker: Broker,
    channel: Channel,
    request: Command,
    header: PullMessageRequest,
    message_filter: Filter,
    result: PullResult,
    group: SubscriptionGroupConfig,
) -> Command | None:
    """Return the answer to a pull, or None if the pull waits on the broker until a message arrives."""
    answer = _make_pull_response(broker, request, header, result, group)
    if answer.code != ResponseCode.PULL_NOT_FOUND or not header.sys_flag & PullSysFlag.SUSPEND:
        return answer
    deadline_ms = broker.now_ms() + min(max(0, header.suspend_timeout_millis), MAX_SUSPEND_MS)
    # The body has no meaning here, and would be kept as long as the pull.
    question = replace(request, ext_fields={}, body=b"")
    held = HeldPull(channel, question, header, message_filter, deadline_ms, header.queue_offset)
    return None if broker.held.hold(held) else answer


def _check_pull_request(
    broker: Broker, request: Command, header: PullMessageRequest
) -> tuple[Command | None, SubscriptionGroupConfig | None]:
    group = broker.groups.find_or_create(header.consumer_group)
    if group is None:
        remark = f"subscription group [{header.consumer_group}] does not exist"
        return request.reply(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark=remark), None
    if not group.consume_enable:
        remark = f"subscription group no permission, {header.consumer_group}"
        return request.reply(ResponseCode.NO_PERMISSION, remark=remark), None
    topic = broker.topics.find(header.topic)
    if topic is None:
        remark = f"topic[{header.topic}] not exist, apply first please!"
        return request.reply(ResponseCode.TOPIC_NOT_EXIST, remark=remark), None
    if not topic.perm & PERM_READ:
        remark = f"the topic[{header.topic}] pulling message is forbidden"
        return request.reply(ResponseCode.NO_PERMISSION, remark=remark), None
    if not 0 <= header.queue_id < topic.read_queue_nums:
        remark = (
            f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] "
            f"topicConfig.readQueueNums:[{topic.read_queue_nums}]"
        )
        return request.reply(ResponseCode.INVALID_PARAMETER, remark=remark), None
    return None, group


def _filter_or_refusal_response(
    broker: Broker, request: Command, header: PullMessageRequest, group: SubscriptionGroupConfig
) -> Filter | Command:
    """Return the consumer's filter, from the request or its group's subscription; if refused, an error response."""
    subscription = None
    if not header.sys_flag & PullSysFlag.SUBSCRIPTION:
        consumers = broker.clients.consumers.get(header.consumer_group)
        known = consumers.subscriptions.get(header.topic) if consumers else None
        if consumers is None or known is None:
            remark = f"the consumer's subscription not exist, {header.consumer_group} {header.topic}"
            return request.reply(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark=remark)
        if not group.consume_broadcast_enable and consumers.data.message_model == BROADCASTING:
            remark = f"the consumer group[{header.consumer_group}] can not consume by broadcast way"
            return request.reply(ResponseCode.NO_PERMISSION, remark=remark)
        if known.sub_version < header.sub_version:
            return request.reply(ResponseCode.SUBSCRIPTION_NOT_LATEST, remark="the consumer's subscription not latest")
        subscription = known
    try:
        subscription = subscription or _parse_subscription(header)
        return compile_filter(subscription, broker.store.tag_codes_in_queue_entries)
    except FilterError as error:
        remark = f"parse the consumer's subscription failed: {error}"
        return request.reply(ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark=remark)


def _parse_subscription(header: PullMessageRequest) -> SubscriptionData:
    kind, expression = header.expression_type or TAG_EXPRESSION, header.subscription or "*"
    check_expression_length(expression)
    if kind == TAG_EXPRESSION:
        return subscription_of_tags(header.topic, expression, header.sub_version)
    return SubscriptionData(header.topic, expression, sub_version=header.sub_version, expression_type=kind)


def _pull_slice(broker: Broker, header: PullMessageRequest, message_filter: Filter, offset: int) -> PullResult:
    """Pull the messages that match a consumer's filter, for at most the time of one slice."""
    limits = _pull_limits_of_slice(broker, header, message_filter)
    return broker.store.pull(
        header.topic, header.queue_id, offset, limits, message_filter.codes, message_filter.accepts_record
    )


def _pull_limits_of_slice(broker: Broker, header: PullMessageRequest, message_filter: Filter) -> PullLimits:
    """Return the limits on messages, bytes and time for one slice of a pull."""
    options = broker.options
    limit_bytes = options.max_transfer_bytes
    if header.max_msg_bytes is not None and header.max_msg_bytes > 0:
        limit_bytes = min(limit_bytes, header.max_msg_bytes)
    count = min(max(0, header.max_msg_nums), options.max_transfer_messages)
    seconds = UNFILTERED_SECONDS if message_filter.accepts_record is None else SLICE_SECONDS
    return PullLimits(count, limit_bytes, time.perf_counter() + seconds)


def _continue_pull(
    broker: Broker,
    request: Command,
    header: PullMessageRequest,
    message_filter: Filter,
    result: PullResult,
    group: SubscriptionGroupConfig | None = None,
) -> Answering:
    """Continue a pull, one slice of work after another, until it finds a message or has worked for PULL_SECONDS."""
    spent = SLICE_SECONDS
    while result.is_cut and not result.records:
        # Only after some progress: a pull that does not advance would be repeated forever.
        if spent >= PULL_SECONDS and result.next_offset > header.queue_offset:
            break
        yield
        started = time.perf_counter()
        result = _pull_slice(broker, header, message_filter, result.next_offset)
        spent += time.perf_counter() - started
    return _make_pull_response(broker, request, header, result, group)


def _make_pull_response(
    broker: Broker,
    request: Command,
    header: PullMessageRequest,
    result: PullResult,
    group: SubscriptionGroupConfig | None = None,
) -> Command:
    options = broker.options
    response = PullMessageResponse(
        suggest_which_broker_id=_suggested_broker_id(broker, group, result.records),
        next_begin_offset=result.next_offset,
        min_offset=result.min_offset,
        max_offset=result.max_offset,
        topic_sys_flag=0,
        group_sys_flag=0,
    )
    body = b"".join(result.records)
    if result.records:
        topic, group_name, queue_id, offset = header.topic, header.consumer_group, header.queue_id, header.queue_offset
        broker.store.config.consumer_offsets.mark_delivered(topic, group_name, queue_id, offset, result.next_offset)
        key = f"{topic}@{group_name}"
        broker.statistics.add(statistics.GROUP_GET_NUMS, key, len(result.records))
        broker.statistics.add(statistics.GROUP_GET_SIZE, key, len(body))
        broker.statistics.add(statistics.BROKER_GET_NUMS, options.cluster, len(result.records))
    return request.reply(_response_code_of(header, result.status), to_ext_fields(response), body, result.status.value)


def _response_code_of(header: PullMessageRequest, status: GetStatus) -> ResponseCode:
    code = _CODES.get(status)
    if code is not None:
        return code
    return ResponseCode.PULL_OFFSET_MOVED if header.queue_offset else ResponseCode.PULL_NOT_FOUND


def _suggested_broker_id(broker: Broker, group: SubscriptionGroupConfig | None, records: Sequence[bytes]) -> int:
    """Return the id of the broker for the next pull: the master or, if configured, a slave for old messages."""
    if group is None or not records or not broker.options.slave_read:
        return MASTER_ID
    last: int = HEAD.unpack(records[-1])[_PHYSICAL_OFFSET]
    is_lagging = broker.store.log_end - last > broker.options.in_memory_bytes
    return group.which_broker_when_consume_slowly if is_lagging else group.broker_id


def _make_reset_response(broker: Broker, request: Command, header: PullMessageRequest) -> Command | None:
    """Return a response with the new offset if an offset reset is pending for the group in this queue, else None."""
    target = broker.take_pending_reset(header.topic, header.consumer_group, header.queue_id)
    if target is None:
        return None
    store, topic, queue_id = broker.store, header.topic, header.queue_id
    response = PullMessageResponse(
        MASTER_ID, target, store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
    )
    return request.reply(ResponseCode.PULL_OFFSET_MOVED, to_ext_fields(response), remark="OFFSET_RESET")


def answer_pulls_after_reset(broker: Broker, topic: str, queue_id: int) -> None:
    """Answer those waiting pulls of a queue whose group has a pending offset reset; other pulls keep waiting."""
    for pull in broker.held.take(topic, queue_id):
        answer = _make_reset_response(broker, pull.request, pull.header)
        if answer is None:
            broker.held.hold(pull)
        else:
            pull.channel.send(answer)


def answer_pulls_with_new_messages(broker: Broker) -> None:
    """Answer the waiting pulls of queues in which messages have arrived."""
    for topic, queue_id in broker.store.take_queues_with_new_messages():
        if pulls := broker.held.take(topic, queue_id):
            _answer_pulls_in_slices(broker, pulls, _answer_or_hold_again)


def _answer_pulls_in_slices(
    broker: Broker, pulls: Sequence[HeldPull], answer_pulls: Callable[[Broker, Sequence[HeldPull]], Steps]
) -> None:
    """Answer waiting pulls; those with SQL92 filters may take long, and count against their clients' limits."""
    unfiltered = [pull for pull in pulls if pull.wanted.accepts_record is None]
    if unfiltered:
        broker.slices.run(answer_pulls(broker, unfiltered))
    for pull in pulls:
        if pull.wanted.accepts_record is not None and not broker.slices.run(answer_pulls(broker, [pull]), pull.channel):
            remark = "too many long requests of this client are waiting"
            pull.channel.send(pull.request.reply(ResponseCode.SYSTEM_BUSY, remark=remark))


def _answer_or_hold_again(broker: Broker, pulls: Sequence[HeldPull]) -> Steps:
    """Search for messages for waiting pulls; answer pulls that have a match, and let the other pulls wait again."""
    for pull in pulls:
        result = yield from _search_for_pull(broker, pull)
        if result is None:
            continue
        if _response_code_of(pull.header, result.status) not in _NOTHING_YET:
            pull.channel.send(_make_pull_response(broker, pull.request, pull.header, result))
        else:
            # The next search begins here, so that messages that did not match are not examined again.
            pull.next_offset = max(pull.next_offset, result.next_offset)
            if not broker.held.hold(pull):
                pull.channel.send(_make_pull_response(broker, pull.request, pull.header, result))


def _search_for_pull(broker: Broker, pull: HeldPull) -> Generator[None, None, PullResult | None]:
    """Search in slices for messages that match a waiting pull, from the first offset not yet checked.

    Returns:
        The messages; None if the connection has closed, or the pull was answered with an error.
    """
    try:
        result = _pull_slice(broker, pull.header, pull.wanted, pull.next_offset)
        yield
        while not result.records and result.status in _EXHAUSTED and pull.channel.is_open:
            # Messages that arrive before the next slice would otherwise be noticed by nobody.
            if result.next_offset >= broker.store.max_offset(pull.header.topic, pull.header.queue_id):
                break
            following = _pull_slice(broker, pull.header, pull.wanted, result.next_offset)
            result = following if following.status is not GetStatus.OFFSET_OVERFLOW_ONE else result
            yield
    except StoreError as error:
        pull.channel.send(pull.request.reply(ResponseCode.SYSTEM_ERROR, remark=str(error)))
        return None
    return result if pull.channel.is_open else None


def answer_pulls_past_deadline(broker: Broker, now_ms: int) -> None:
    """Answer the waiting pulls that have reached their deadline."""
    if pulls := list(broker.held.take_expired(now_ms)):
        _answer_pulls_in_slices(broker, pulls, _answer_expired_pulls)


def _answer_expired_pulls(broker: Broker, pulls: Sequence[HeldPull]) -> Steps:
    """Answer pulls that have reached their deadline, with the messages found by a last search."""
    for pull in pulls:
        result = yield from _search_for_pull(broker, pull)
        if result is not None:
            pull.channel.send(_make_pull_response(broker, pull.request, pull.header, result))


HANDLERS: Handlers = {
    RequestCode.PULL_MESSAGE: pull_message,
    RequestCode.LITE_PULL_MESSAGE: pull_message,
}
