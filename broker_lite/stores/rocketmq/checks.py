"""Limits of messages: a broker answers MESSAGE_ILLEGAL if they are exceeded.

They are checked before anything is written. Source: MessageExtEncoder, HookUtils, TopicValidator.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from commitlake.broker_lite.stores.engine.errors import MessageRefusedError
from commitlake.broker_lite.stores.engine.topic_names import check_topic
from commitlake.broker_lite.stores.rocketmq.dispatch import parse_delay_level
from commitlake.schemas.layouts.rocketmq import properties as props
from commitlake.schemas.layouts.rocketmq.commitlog import NewMessage
from commitlake.schemas.layouts.rocketmq.sysflag import TransactionType, transaction_type

_INT32 = range(-(1 << 31), 1 << 31)
_INT64 = range(-(1 << 63), 1 << 63)
_INT32_FIELDS = ("flag", "sys_flag", "reconsume_times")
_INT64_FIELDS = ("born_timestamp", "prepared_transaction_offset")
_BATCH_FRAME_BYTES = 22
"""Bytes of a producer's batch for each message besides body and properties: five int32 and an int16."""


def check_message(message: NewMessage, max_body_bytes: int, schedule_topic: str) -> None:
    """Check that a broker accepts a message, and that its fields fit in a record.

    Args:
        message: message to check.
        max_body_bytes: limit of its body.
        schedule_topic: topic of delayed messages.

    Raises:
        MessageRefusedError: if it breaks a rule. Properties are checked when they are serialized.
    """
    check_topic(message.topic)
    if len(message.body) > max_body_bytes:
        raise MessageRefusedError(f"body: expected at most {max_body_bytes} bytes, found {len(message.body)}")
    if not 0 <= message.queue_id < 1 << 31:
        raise MessageRefusedError(f"queue_id: expected 0 to {(1 << 31) - 1}, found {message.queue_id}")
    if not 0 <= message.born_host.port < 1 << 31 or len(message.born_host.address) not in (4, 16):
        raise MessageRefusedError(
            f"born_host: expected an IPv4 or IPv6 address and a port, found {tuple(message.born_host)}"
        )
    for names, numbers in ((_INT32_FIELDS, _INT32), (_INT64_FIELDS, _INT64)):
        for name in names:
            if (value := getattr(message, name)) not in numbers:
                raise MessageRefusedError(f"{name}: expected {numbers.start} to {numbers.stop - 1}, found {value}")
    if message.topic == schedule_topic:
        _check_delay(message)


def _check_delay(message: NewMessage) -> None:
    # RocketMQ's recovery ends the log at such a record, because Integer.parseInt throws.
    value = dict(message.properties).get(props.DELAY)
    if value is not None and parse_delay_level(value) is None:
        raise MessageRefusedError(f"{props.DELAY}: expected an integer in {message.topic}, found {value[:40]!r}")


def check_batch(messages: Sequence[NewMessage], max_body_bytes: int) -> None:
    """Check that a broker accepts a batch: messages of one queue, neither delayed nor transactional.

    Raises:
        MessageRefusedError: if the batch breaks a rule.
    """
    if not messages:
        raise MessageRefusedError("batch: expected at least one message, found none")
    first = messages[0]
    size = 0
    for message in messages:
        if (message.topic, message.queue_id) != (first.topic, first.queue_id):
            found = f"{first.topic}/{first.queue_id} and {message.topic}/{message.queue_id}"
            raise MessageRefusedError(f"batch: expected messages of one queue, found {found}")
        if transaction_type(message.sys_flag) is not TransactionType.NOT:
            raise MessageRefusedError(f"batch: expected no transaction, found sys_flag {message.sys_flag:#x}")
        # Text that cannot be encoded is refused later, when the record is built.
        properties = "".join(chain.from_iterable(message.properties)).encode(errors="replace")
        size += len(message.body) + _BATCH_FRAME_BYTES + len(properties) + 2 * len(message.properties)
    if size > max_body_bytes:
        raise MessageRefusedError(f"batch: expected at most {max_body_bytes} bytes in total, found {size}")
