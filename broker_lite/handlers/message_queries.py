"""Message queries: by key, by physical offset, and a queue's entries.

Source: QueryMessageProcessor, AdminBrokerProcessor.queryConsumeQueue (5.5.0).
"""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import TypeVar

from commitlake.broker_lite.broker.broker import Answering, Broker, Handlers
from commitlake.broker_lite.errors import IndexDisabledError
from commitlake.broker_lite.protocol import Channel
from commitlake.broker_lite.stores.rocketmq.pulling import matches_tag_code
from commitlake.schemas.remoting.admin_headers import QueryConsumeQueueRequest
from commitlake.schemas.remoting.codes import RequestCode, ResponseCode
from commitlake.schemas.remoting.errors import CommandError
from commitlake.schemas.remoting.ext_fields import from_ext_fields, to_ext_fields
from commitlake.schemas.remoting.frames import Command
from commitlake.schemas.remoting.headers import QueryMessageRequest, QueryMessageResponse, ViewMessageRequest
from commitlake.schemas.remoting.json_fields import serialize_body
from commitlake.schemas.remoting.statistics_bodies import ConsumeQueueData, ConsumeQueueEntry

T = TypeVar("T")
MAX_FOUND = 64
UNIQUE_KEY_FOUND = 32
MAX_ENTRIES = 1024
ANSWER_BYTES = 8 << 20
QUERY_SECONDS = 10
"""A query that takes longer fails."""


def query_message(broker: Broker, _channel: Channel, request: Command) -> Answering:
    """Answer with the newest messages with a key, in the order of the log."""
    header = from_ext_fields(QueryMessageRequest, request.ext_fields)
    limit = UNIQUE_KEY_FOUND if header.is_unique_key else max(0, min(header.max_num, MAX_FOUND))
    query = broker.store.get_by_key_in_steps(
        header.topic, header.key, header.begin_timestamp, header.end_timestamp, limit, ANSWER_BYTES
    )
    try:
        found = yield from _run_with_time_limit(query)
    except IndexDisabledError as error:
        return request.reply(ResponseCode.SYSTEM_ERROR, remark=str(error))
    records: list[bytes] = []
    for message in found:
        records.append(broker.store.record_for_client(message))
        yield
    if not records:
        return request.reply(ResponseCode.QUERY_NOT_FOUND, remark="can not find message, maybe time range not correct")
    last = found[-1]
    response = QueryMessageResponse(last.store_timestamp, last.physical_offset)
    return request.reply(ResponseCode.SUCCESS, to_ext_fields(response), b"".join(records))


def _run_with_time_limit(query: Generator[None, None, T]) -> Generator[None, None, T]:
    """Run a query step by step; raise an error if it takes longer than QUERY_SECONDS."""
    started = time.perf_counter()
    while True:
        try:
            next(query)
        except StopIteration as done:
            result: T = done.value
            return result
        if time.perf_counter() - started > QUERY_SECONDS:
            raise CommandError(
                f"the query took longer than {QUERY_SECONDS} s, and was ended: choose a shorter time range"
            )
        yield


def view_message(broker: Broker, _channel: Channel, request: Command) -> Command:
    """Answer with the record at a physical offset."""
    header = from_ext_fields(ViewMessageRequest, request.ext_fields)
    message = broker.store.get_at(header.offset)
    if message is None:
        return request.reply(ResponseCode.SYSTEM_ERROR, remark=f"can not find message by the offset, {header.offset}")
    return request.reply(ResponseCode.SUCCESS, body=broker.store.record_for_client(message))


def query_consume_queue(broker: Broker, _channel: Channel, request: Command) -> Command:
    """Answer with entries of a queue, each with a flag that tells whether the group's filter accepts it."""
    header = from_ext_fields(QueryConsumeQueueRequest, request.ext_fields)
    store, topic, queue_id = broker.store, header.topic, header.queue_id
    low, high = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
    if broker.topics.find(topic) is None:
        return request.reply(ResponseCode.SYSTEM_ERROR, remark=f"{queue_id}@{topic} is not exist!")
    consumers = broker.clients.consumers.get(header.consumer_group or "")
    subscription = consumers.subscriptions.get(topic) if consumers else None
    codes = None
    if subscription is not None and subscription.code_set:
        codes = store.tag_codes_in_queue_entries(subscription.tags_set, subscription.code_set)
    entries = []
    first = max(low, header.first_index)
    for number in range(first, min(high, first + max(0, min(header.max_count, MAX_ENTRIES)))):
        entry = store.entry_at(topic, queue_id, number)
        if entry is not None:
            entries.append(ConsumeQueueEntry(*entry, eval=codes is None or matches_tag_code(entry.tags_code, codes)))
    body = ConsumeQueueData(tuple(entries), low, high, subscription)
    return request.reply(ResponseCode.SUCCESS, body=serialize_body(body))


HANDLERS: Handlers = {
    RequestCode.QUERY_MESSAGE: query_message,
    RequestCode.VIEW_MESSAGE_BY_ID: view_message,
    RequestCode.QUERY_CONSUME_QUEUE: query_consume_queue,
}
