"""Messages of an application to be sent, and the results of sends.

Messages that the Java client refuses are refused here, too, before anything is sent. Source: Validators, MessageConst,
TopicValidator (5.5.0).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from commitlake.connectors.rocketmq.errors import InvalidMessageError
from commitlake.schemas.layouts.errors import UnserializableError
from commitlake.schemas.layouts.rocketmq import properties as props
from commitlake.schemas.layouts.rocketmq.properties import serialize_properties
from commitlake.schemas.layouts.rocketmq.topics import (
    GIVEN_UP_TOPIC,
    HALF_TOPIC,
    MAX_TOPIC_LENGTH,
    OFFSET_MOVED_TOPIC,
    OP_TOPIC,
    ROCKSDB_HALF_TOPIC,
    ROCKSDB_OP_TOPIC,
    SCHEDULE_TOPIC,
    SELF_TEST_TOPIC,
)
from commitlake.schemas.remoting.codes import ResponseCode
from commitlake.schemas.remoting.routes import MessageQueue

DEFAULT_MAX_BODY_BYTES = 4 * 1024 * 1024
MAX_GROUP_LENGTH = 255
MAX_DELAY_LEVEL = 18
TIMER_DELIVER_MS = "TIMER_DELIVER_MS"
TIMER_DELAY_MS = "TIMER_DELAY_MS"
TIMER_DELAY_SEC = "TIMER_DELAY_SEC"
_NAME = re.compile(r"[%|a-zA-Z0-9_-]+")
NOT_FOR_SENDING = frozenset(
    {
        SCHEDULE_TOPIC, HALF_TOPIC, OP_TOPIC, GIVEN_UP_TOPIC, SELF_TEST_TOPIC, OFFSET_MOVED_TOPIC,
        ROCKSDB_HALF_TOPIC, ROCKSDB_OP_TOPIC,
    }
)  # fmt: skip
RESERVED_PROPERTIES = frozenset(
    {
        props.KEYS, props.TAGS, props.WAIT, props.DELAY, props.RETRY_TOPIC, props.REAL_TOPIC, props.REAL_QID,
        props.TRAN_MSG, props.PGROUP, "MIN_OFFSET", "MAX_OFFSET", "BUYER_ID", props.ORIGIN_MESSAGE_ID,
        "TRANSFER_FLAG", "CORRECTION_FLAG", "MQ2_FLAG", "RECONSUME_TIME", "MSG_REGION", "TRACE_ON", props.UNIQ_KEY,
        "MAX_RECONSUME_TIMES", "CONSUME_START_TIME", "POP_CK", "POP_CK_OFFSET", "1ST_POP_TIME",
        "TRAN_PREPARED_QUEUE_OFFSET", "DUP_INFO", "EXTEND_UNIQ_INFO", "INSTANCE_ID", "CORRELATION_ID",
        "REPLY_TO_CLIENT", "TTL", "ARRIVE_TIME", "PUSH_REPLY_TIME", "CLUSTER", "MSG_TYPE", "INNER_MULTI_QUEUE_OFFSET",
        TIMER_DELIVER_MS, TIMER_DELAY_MS, TIMER_DELAY_SEC, "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS",
        "TIMER_ROLL_TIMES", "TIMER_OUT_MS", "TIMER_DEL_UNIQKEY", "TIMER_DELAY_LEVEL", "CRC32", "DLQ_ORIGIN_TOPIC",
        "DLQ_ORIGIN_MESSAGE_ID",
    }
)  # fmt: skip

"""Names of properties with a meaning for RocketMQ."""
SET_BY_BROKERS = frozenset({"CLUSTER", "MSG_REGION", "TRACE_ON", "MIN_OFFSET", "MAX_OFFSET", "CRC32"})
"""The RocketMQ properties that a broker, or a reading client, sets on each message."""


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """A message to be sent, as an application gives it.

    Attributes:
        topic: topic to send to.
        body: at least one byte.
        tags: the message's tag, at most one.
        keys: business keys, without blanks.
        properties: the application's own properties; RocketMQ's names are refused.
        flag: a number for the application's own use.
        delay_level: 1 to 18, a level in the broker's list of delays; 0 to deliver without a delay.
        deliver_at_ms: 5.x: delivery time, ms since 1970.
        wait_store: whether the broker should answer after its flush to disk and copy to a slave, if so configured.
        unique_key: id of the message; by default, one is made.
        system_properties: properties with RocketMQ's names, to send a stored message again.
    """

    topic: str
    body: bytes = field(repr=False)
    tags: str | None = None
    keys: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    flag: int = 0
    delay_level: int = 0
    deliver_at_ms: int | None = None
    wait_store: bool = True
    unique_key: str | None = None
    system_properties: Mapping[str, str] = field(default_factory=dict)


class SendStatus(IntEnum):
    """The status of a stored message: stored completely, or not yet on disk or on the slave."""

    SEND_OK = ResponseCode.SUCCESS
    FLUSH_DISK_TIMEOUT = ResponseCode.FLUSH_DISK_TIMEOUT
    SLAVE_NOT_AVAILABLE = ResponseCode.SLAVE_NOT_AVAILABLE
    FLUSH_SLAVE_TIMEOUT = ResponseCode.FLUSH_SLAVE_TIMEOUT


class SendResult(NamedTuple):
    """Result of sending a message: its status, its ids and its position in a queue.

    Attributes:
        unique_key: id from the client.
        offset_msg_id: offset message id from the broker.
        queue_offset: offset in the queue; for a half message, in the queue of half messages.
    """

    status: SendStatus
    unique_key: str
    offset_msg_id: str
    queue: MessageQueue
    queue_offset: int


def check_group(group: str) -> str:
    """Check the name of a producer or consumer group, and return it.

    Raises:
        InvalidMessageError: if the name is not valid.
    """
    return _check_name("group", group, MAX_GROUP_LENGTH)


def check_topic(topic: str) -> str:
    """Check the name of a topic, and return it.

    Raises:
        InvalidMessageError: if the name is not valid.
    """
    return _check_name("topic", topic, MAX_TOPIC_LENGTH)


def _check_name(name_kind: str, name: str, max_length: int) -> str:
    if not name.strip():
        raise InvalidMessageError(f"{name_kind}: expected a name, found nothing")
    if len(name) > max_length:
        raise InvalidMessageError(f"{name_kind}: expected at most {max_length} characters, found {len(name)}")
    if not _NAME.fullmatch(name):
        raise InvalidMessageError(f"{name_kind}: expected only letters, digits, %, |, - and _, found {name!r}")
    return name


def check_message(message: OutgoingMessage, max_body_bytes: int = DEFAULT_MAX_BODY_BYTES) -> None:
    """Check that a message can be sent.

    Raises:
        InvalidMessageError: if it cannot be sent: the fault, and what is allowed.
    """
    check_topic(message.topic)
    if message.topic in NOT_FOR_SENDING:
        raise InvalidMessageError(
            f"topic: expected a topic of an application, found {message.topic}, to which only brokers send"
        )
    if not message.body:
        raise InvalidMessageError("body: expected at least one byte, found none")
    if len(message.body) > max_body_bytes:
        raise InvalidMessageError(f"body: expected at most {max_body_bytes} bytes, found {len(message.body)}")
    if not 0 <= message.delay_level <= MAX_DELAY_LEVEL:
        raise InvalidMessageError(f"delay_level: expected 0 to {MAX_DELAY_LEVEL}, found {message.delay_level}")
    if message.delay_level and message.deliver_at_ms is not None:
        raise InvalidMessageError("delay: expected a delay level or a delivery time, found both")
    for key in message.keys:
        if not key or props.KEY_SEPARATOR in key:
            raise InvalidMessageError(f"keys: expected keys without blanks, found {key!r}")
    for name, value in message.properties.items():
        if name in RESERVED_PROPERTIES:
            raise InvalidMessageError(f"properties: {name} is a name that RocketMQ uses itself: choose another name")
        if not name.strip() or not value.strip():
            raise InvalidMessageError(
                f"properties: expected a name and a value that are not empty, found {name!r}={value!r}"
            )


def stored_properties(
    message: OutgoingMessage, unique_key: str, extra_properties: Mapping[str, str] | None = None
) -> bytes:
    """Return a message's properties, with those that the client adds, as text in stored form.

    Args:
        message: a checked message.
        unique_key: id of the message.
        extra_properties: properties that the kind of sending adds.

    Raises:
        InvalidMessageError: if they contain a separator, or have more than 32,767 bytes.
    """
    found = dict(message.system_properties) | dict(message.properties)
    if message.keys:
        found[props.KEYS] = props.KEY_SEPARATOR.join(message.keys)
    if message.tags:
        found[props.TAGS] = message.tags
    if message.delay_level:
        found[props.DELAY] = str(message.delay_level)
    if message.deliver_at_ms is not None:
        found[TIMER_DELIVER_MS] = str(message.deliver_at_ms)
    found |= {props.UNIQ_KEY: unique_key, props.WAIT: "true" if message.wait_store else "false"}
    try:
        return serialize_properties((found | dict(extra_properties or {})).items())
    except UnserializableError as error:
        raise InvalidMessageError(str(error)) from None
