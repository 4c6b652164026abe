"""Transactions: producers' decisions about half messages, and questions of the broker about them.

Source: EndTransactionProcessor, AbstractTransactionalMessageCheckListener (5.5.0).
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator
from dataclasses import replace

from commitlake.broker_lite.broker.broker import Broker, Handlers
from commitlake.broker_lite.delivery import TransactionError
from commitlake.broker_lite.delivery.message_rewrites import TRANSACTION_ID, to_new_message
from commitlake.broker_lite.protocol import Channel
from commitlake.schemas.layouts.errors import UnserializableError
from commitlake.schemas.layouts.integer_parsing import INT32_MAX, parse_int
from commitlake.schemas.layouts.rocketmq import properties as props
from commitlake.schemas.layouts.rocketmq.commitlog import Message, serialize_message
from commitlake.schemas.layouts.rocketmq.sysflag import TransactionType
from commitlake.schemas.remoting.codes import RequestCode, ResponseCode
from commitlake.schemas.remoting.ext_fields import from_ext_fields, to_ext_fields
from commitlake.schemas.remoting.frames import Command
from commitlake.schemas.remoting.headers import CheckTransactionStateRequest, EndTransactionRequest

_turn = itertools.count()
_logger = logging.getLogger(__name__)


def end_transaction(broker: Broker, _channel: Channel, request: Command) -> Command | None:
    """Commit or roll back a half message; if the producer has not decided yet, it is asked again later."""
    header = from_ext_fields(EndTransactionRequest, request.ext_fields)
    half = broker.delivery.find_half_message(header.commit_log_offset)
    if half is None or half.queue_offset != header.tran_state_table_offset:
        remark = "The transaction state table offset wrong" if half else "Find prepared transaction message failed"
        return request.reply(ResponseCode.SYSTEM_ERROR, remark=remark)
    try:
        if header.commit_or_rollback == TransactionType.COMMIT:
            broker.delivery.commit(header.producer_group, header.commit_log_offset)
        elif header.commit_or_rollback == TransactionType.ROLLBACK:
            broker.delivery.rollback(header.producer_group, header.commit_log_offset)
    except TransactionError as error:
        return request.reply(ResponseCode.SYSTEM_ERROR, remark=str(error))
    return request.reply(ResponseCode.SUCCESS)


def ask_producers(broker: Broker, now_ms: int) -> Iterator[None]:
    """Ask producers whether to commit overdue half messages; yield after each half message examined."""
    options = broker.options
    for half in broker.delivery.take_due_half_messages(
        now_ms, options.transaction_timeout_ms, options.transaction_check_max
    ):
        if half is not None:
            _ask_producer(broker, half)
        yield


def _ask_producer(broker: Broker, half_message: Message) -> None:
    members = list(broker.clients.producers.get(half_message.properties.get(props.PGROUP, ""), {}).values())
    if not members:
        return
    try:
        question = _make_check_request(half_message)
    except UnserializableError as error:
        # Only a damaged or foreign record fails here; it must not block the other half messages.
        _logger.error("cannot ask a producer about the half message at %d: %s", half_message.physical_offset, error)
        return
    members[next(_turn) % len(members)].channel.send_one_way(question)


def _make_check_request(half_message: Message) -> Command:
    known = half_message.properties
    header = CheckTransactionStateRequest(
        half_message.queue_offset,
        half_message.physical_offset,
        known.get(props.UNIQ_KEY),
        known.get(TRANSACTION_ID) or known.get(props.UNIQ_KEY),
        half_message.msg_id,
        known.get(props.REAL_TOPIC),
    )
    return Command(RequestCode.CHECK_TRANSACTION_STATE, to_ext_fields(header), _serialize_half_message(half_message))


def _serialize_half_message(half_message: Message) -> bytes:
    """Serialize a half message with its original topic and queue, for the request that asks its producer to decide."""
    known = half_message.properties
    message = replace(
        to_new_message(half_message),
        topic=known.get(props.REAL_TOPIC, half_message.topic),
        queue_id=parse_int(known.get(props.REAL_QID), 0, INT32_MAX) or 0,
    )
    return serialize_message(
        message,
        queue_offset=half_message.queue_offset,
        physical_offset=half_message.physical_offset,
        store_timestamp=half_message.store_timestamp,
        store_host=half_message.store_host,
    )


HANDLERS: Handlers = {RequestCode.END_TRANSACTION: end_transaction}
