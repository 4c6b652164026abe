"""Rewrites of a message: each function returns the record that a broker stores next for a message.

The functions have no side effects. Body, compression bits, born timestamp and born host are always copied. Only the
topic determines the kind of a record, because properties stay on a message after they have had their effect.

    park        T/q                  -> SCHEDULE_TOPIC_XXXX / level-1    + REAL_TOPIC, REAL_QID
    unpark      SCHEDULE_TOPIC_XXXX  -> REAL_TOPIC / REAL_QID            no property removed, not even DELAY
    send_back   a failed record      -> %RETRY%group, to be parked       + RETRY_TOPIC, ORIGIN_MESSAGE_ID, DELAY, WAIT
    give_up     a failed record      -> %DLQ%group / 0                   same properties, DELAY=0
    prepare     T/q                  -> RMQ_SYS_TRANS_HALF_TOPIC / 0     + REAL_TOPIC, REAL_QID, __transactionId__
    commit      the half message     -> T/q, type COMMIT                 its offset, - REAL_TOPIC, REAL_QID
    finish      the half message     -> RMQ_SYS_TRANS_OP_HALF_TOPIC / 0  body: queue offset of the half and a comma
    to_checked_half  the half message  -> RMQ_SYS_TRANS_HALF_TOPIC / 0  + TRANSACTION_CHECK_TIMES
    abandon     the half message     -> TRANS_CHECK_MAX_TIME_TOPIC / 0   no change
    to_timer_message  T/q            -> rmq_sys_wheel_timer / 0          + TIMER_OUT_MS, REAL_TOPIC, REAL_QID
    to_rolled_timer_message     the parked record  -> rmq_sys_wheel_timer / 0  + TIMER_ROLL_TIMES and the two below
    to_delivered_timer_message  the parked record  -> REAL_TOPIC / REAL_QID    + TIMER_ENQUEUE_MS, TIMER_DEQUEUE_MS

Source, all of 5.5.0: HookUtils.transformDelayLevelMessage, ScheduleMessageService.messageTimeUp,
AbstractSendMessageProcessor.consumerSendMsgBack, TransactionalMessageBridge.parseHalfMessageInner,
EndTransactionProcessor.endMessageTransaction, TransactionalMessageServiceImpl.getOpMessage. Brokers before 5.5 leave
REAL_TOPIC and REAL_QID on a committed message; those before 5.1 write no comma.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from commitlake.schemas.layouts.integer_parsing import parse_int
from commitlake.schemas.layouts.rocketmq import properties as props
from commitlake.schemas.layouts.rocketmq.commitlog import Message, NewMessage
from commitlake.schemas.layouts.rocketmq.hosts import Host
from commitlake.schemas.layouts.rocketmq.sysflag import BORN_HOST_V6, STORE_HOST_V6, TRANSACTION_MASK, TransactionType
from commitlake.schemas.layouts.rocketmq.topics import (
    CHECK_TIMES,
    DLQ_PREFIX,
    GIVEN_UP_TOPIC,
    HALF_TOPIC,
    OP_TOPIC,
    RETRY_PREFIX,
    TIMER_TOPIC,
)

TRANSACTION_ID = "__transactionId__"
TIMER_ENQUEUED = "TIMER_ENQUEUE_MS"
TIMER_DEQUEUED = "TIMER_DEQUEUE_MS"
TIMER_ROLLED = "TIMER_ROLL_TIMES"
_MAX_ROLLED = 1 << 20
FINISHED_TAG = "d"
FIRST_RETRY_LEVEL = 3
"""Delay level of the first retry; each further retry uses the next level."""


def change_properties(
    properties: Sequence[tuple[str, str]], changes: Mapping[str, str], removed_keys: Sequence[str] = ()
) -> tuple[tuple[str, str], ...]:
    """Return properties with keys changed and removed; of a repeated key only the last value stays, as in Java."""
    merged = dict(properties) | dict(changes)
    return tuple((key, value) for key, value in merged.items() if key not in removed_keys)


def to_new_message(message: Message) -> NewMessage:
    """Return a stored message as a new message for the same topic and queue."""
    return NewMessage(
        topic=message.topic,
        body=message.body,
        born_timestamp=message.born_timestamp,
        born_host=message.born_host,
        queue_id=message.queue_id,
        flag=message.flag,
        # These bits describe the hosts of the old record; the new one gets its own.
        sys_flag=message.sys_flag & ~(BORN_HOST_V6 | STORE_HOST_V6),
        reconsume_times=message.reconsume_times,
        properties=tuple(message.properties.items()),
    )


def to_scheduled_message(message: NewMessage, delay_level: int, schedule_topic: str) -> NewMessage:
    """Return a delayed message in the form that is stored in the schedule topic until the delay is over."""
    changes = {props.DELAY: str(delay_level), **_real_topic_properties(message)}
    properties = change_properties(message.properties, changes)
    return replace(message, topic=schedule_topic, queue_id=delay_level - 1, properties=properties)


def to_delivered_message(parked_message: Message, topic: str, queue_id: int) -> NewMessage:
    """Return a delayed message in the form that is delivered to consumers after the delay."""
    return replace(to_new_message(parked_message), topic=topic, queue_id=queue_id)


def to_timer_message(message: NewMessage, due_ms: int) -> NewMessage:
    """Return a timer message in the form that is stored in the timer topic until its delivery time."""
    changes = {props.TIMER_OUT: str(due_ms), **_real_topic_properties(message)}
    return replace(message, topic=TIMER_TOPIC, queue_id=0, properties=change_properties(message.properties, changes))


def to_delivered_timer_message(
    parked_message: Message, topic: str, queue_id: int, enqueued_ms: int, now_ms: int
) -> NewMessage:
    """Return a timer message in the form that is delivered to consumers at its delivery time."""
    changes = {TIMER_ENQUEUED: str(enqueued_ms), TIMER_DEQUEUED: str(now_ms)}
    return replace(
        to_new_message(parked_message),
        topic=topic,
        queue_id=queue_id,
        properties=change_properties(parked_message.property_pairs, changes),
    )


def to_rolled_timer_message(parked_message: Message, enqueued_ms: int, now_ms: int) -> NewMessage:
    """Return a copy of a timer message to store again, because its time is beyond the range of the timer wheel."""
    rolled = parse_int(parked_message.properties.get(TIMER_ROLLED), 0, _MAX_ROLLED) or 0
    changes = {TIMER_ENQUEUED: str(enqueued_ms), TIMER_DEQUEUED: str(now_ms), TIMER_ROLLED: str(rolled + 1)}
    return replace(to_new_message(parked_message), properties=change_properties(parked_message.property_pairs, changes))


def to_retry_message(failed_message: Message, group: str, queue_id: int, delay_level: int) -> NewMessage:
    """Return the retry message for a failed message, with its delay level; it is not in the schedule topic yet."""
    return _copy_failed_message(failed_message, f"{RETRY_PREFIX}{group}", queue_id, delay_level)


def to_dead_letter(failed_message: Message, group: str) -> NewMessage:
    """Return the dead letter for a failed message, to be stored in the group's dead-letter topic."""
    return _copy_failed_message(failed_message, f"{DLQ_PREFIX}{group}", 0, 0)


def _copy_failed_message(failed_message: Message, topic: str, queue_id: int, delay_level: int) -> NewMessage:
    known = failed_message.properties
    changes = {
        props.RETRY_TOPIC: known.get(props.RETRY_TOPIC) or failed_message.topic,
        props.WAIT: "false",
        props.DELAY: str(delay_level),
        props.ORIGIN_MESSAGE_ID: known.get(props.ORIGIN_MESSAGE_ID, "").strip() or failed_message.msg_id,
    }
    copy = to_new_message(failed_message)
    return replace(
        copy,
        topic=topic,
        queue_id=queue_id,
        reconsume_times=failed_message.reconsume_times + 1,
        properties=change_properties(copy.properties, changes),
    )


def to_half_message(message: NewMessage) -> NewMessage:
    """Return the half message to store for a transactional message; consumers do not see it."""
    unique_key = dict(message.properties).get(props.UNIQ_KEY)
    changes = ({TRANSACTION_ID: unique_key} if unique_key else {}) | _real_topic_properties(message)
    return replace(
        message,
        topic=HALF_TOPIC,
        queue_id=0,
        # A half message is not of the type PREPARED, which would get no entry in the queue of half messages
        # (parseHalfMessageInner).
        sys_flag=message.sys_flag & ~TRANSACTION_MASK,
        properties=change_properties(message.properties, changes),
    )


def to_committed_message(half_message: Message, topic: str, queue_id: int) -> NewMessage:
    """Return the message that consumers see once a half message is committed."""
    copy = to_new_message(half_message)
    return replace(
        copy,
        topic=topic,
        queue_id=queue_id,
        sys_flag=copy.sys_flag & ~TRANSACTION_MASK | TransactionType.COMMIT,
        prepared_transaction_offset=half_message.physical_offset,
        properties=change_properties(copy.properties, {}, removed_keys=(props.REAL_TOPIC, props.REAL_QID)),
    )


def to_checked_half(half_message: Message, check_count: int) -> NewMessage:
    """Return the copy that replaces a half message when its producer is asked, with the new number of checks."""
    return replace(
        to_new_message(half_message),
        properties=change_properties(half_message.property_pairs, {CHECK_TIMES: str(check_count)}),
    )


def to_abandoned_half(half_message: Message) -> NewMessage:
    """Return the record for a half message that is discarded because its producer never decided about it."""
    return replace(to_new_message(half_message), topic=GIVEN_UP_TOPIC, queue_id=0)


def to_op_record(half_message: Message, now_ms: int, broker_address: Host) -> NewMessage:
    """Return the record that marks a half message as committed or rolled back."""
    return NewMessage(
        topic=OP_TOPIC,
        body=f"{half_message.queue_offset},".encode(),
        born_timestamp=now_ms,
        born_host=broker_address,
        queue_id=half_message.queue_id,
        properties=((props.WAIT, "true"), (props.TAGS, FINISHED_TAG)),
    )


def _real_topic_properties(message: NewMessage) -> dict[str, str]:
    return {props.REAL_TOPIC: message.topic, props.REAL_QID: str(message.queue_id)}
