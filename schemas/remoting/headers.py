"""Headers of requests by producers and consumers, and of the answers.

Each header is declared once, for `from_ext_fields` and `to_ext_fields`. Field names are RocketMQ's; `Long` is a Java
long, a plain `int` a Java int. Source: org.apache.rocketmq.remoting.protocol.header (5.5.0).
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

from commitlake.schemas.remoting.codes import RequestCode
from commitlake.schemas.remoting.ext_fields import ExtFieldName, Long, from_ext_fields, to_ext_fields
from commitlake.schemas.remoting.frames import Command

__all__ = [
    "CheckTransactionStateRequest", "ConsumerGroupRequest", "EndTransactionRequest", "MaxOffsetRequest",
    "OffsetResponse", "PullMessageRequest", "PullMessageResponse", "PullSysFlag", "QueryConsumerOffsetRequest",
    "QueryMessageRequest", "QueryMessageResponse", "QueueRequest", "SearchOffsetRequest", "SendBackRequest",
    "SendMessageRequest", "SendMessageResponse", "TimestampResponse", "UnregisterClientRequest",
    "UpdateConsumerOffsetRequest", "ViewMessageRequest", "from_ext_fields", "has_one_letter_names",
    "parse_send_request", "to_ext_fields",
]  # fmt: skip


class SendMessageRequest(NamedTuple):
    """Header of SEND_MESSAGE (10); SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE name its fields a to n, in this order.

    Attributes:
        default_topic: topic whose settings are the template of an unknown topic, TBW102.
        queue_id: negative if the broker chooses.
        sys_flag: flags of the message, see schemas.layouts.rocketmq.sysflag.
        properties: properties in the form of schemas.layouts.rocketmq.properties, as text.
        reconsume_times: number of retries, if a client itself sends to a retry topic.
    """

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: int
    queue_id: int
    sys_flag: int
    born_timestamp: Long
    flag: int
    properties: str | None = None
    reconsume_times: int | None = None
    unit_mode: bool = False
    max_reconsume_times: int | None = None
    batch: bool = False
    broker_name: Annotated[str | None, ExtFieldName("bname")] = None


_ONE_LETTER = frozenset(
    {RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2}
)


def has_one_letter_names(code: int) -> bool:
    """Return whether requests with this code name their header fields by single letters, as SEND_MESSAGE_V2 does."""
    return code in _ONE_LETTER


def parse_send_request(command: Command) -> SendMessageRequest:
    """Parse the header of a send request of any kind: SEND_MESSAGE, SEND_MESSAGE_V2 or SEND_BATCH_MESSAGE.

    Raises:
        CommandError: if a required field is missing, or a value does not have its type.
    """
    return from_ext_fields(SendMessageRequest, command.ext_fields, has_one_letter_names=command.code in _ONE_LETTER)


class SendMessageResponse(NamedTuple):
    """Header of the answer to a send, with the position of the message.

    Attributes:
        msg_id: offset message id; for a batch all ids, separated by commas.
        queue_offset: queue offset; for a batch that of the first message.
        transaction_id: UNIQ_KEY; brokers before 5.x leave it out for a normal message.
    """

    msg_id: str
    queue_id: int
    queue_offset: Long
    transaction_id: str | None = None
    batch_uniq_id: str | None = None
    msg_region: Annotated[str, ExtFieldName("MSG_REGION")] = "DefaultRegion"
    trace_on: Annotated[bool, ExtFieldName("TRACE_ON")] = True
    recall_handle: str | None = None


class PullSysFlag:
    """Bits of a pull's `sys_flag`."""

    COMMIT_OFFSET = 1
    """Set if the broker must store `commit_offset`."""
    SUSPEND = 2
    """Set if the broker may wait for messages."""
    SUBSCRIPTION = 4
    """Set if the request contains the subscription."""
    CLASS_FILTER = 8
    LITE_PULL = 16


class PullMessageRequest(NamedTuple):
    """Header of PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361), which pull messages.

    Attributes:
        queue_offset: offset of the first message.
        sys_flag: see PullSysFlag.
        commit_offset: offset consumed so far; -1 if the client has none.
        sub_version: version of the consumer's subscription, ms.
        expression_type: TAG or SQL92; None means TAG.
    """

    consumer_group: str
    topic: str
    queue_id: int
    queue_offset: Long
    max_msg_nums: int
    sys_flag: int
    commit_offset: Long
    suspend_timeout_millis: Long
    sub_version: Long = 0
    subscription: str | None = None
    expression_type: str | None = None
    max_msg_bytes: int | None = None
    request_source: int | None = None
    proxy_froward_client_id: str | None = None
    broker_name: Annotated[str | None, ExtFieldName("bname")] = None


class PullMessageResponse(NamedTuple):
    """Header of the answer to a pull.

    The body contains the stored records, and the remark describes the store's status.
    """

    suggest_which_broker_id: Long
    next_begin_offset: Long
    min_offset: Long
    max_offset: Long
    offset_delta: Long | None = None
    topic_sys_flag: int | None = None
    group_sys_flag: int | None = None
    forbidden_type: int | None = None


class QueryMessageRequest(NamedTuple):
    """Header of QUERY_MESSAGE (12). A query for a unique key returns up to 32 messages, regardless of `max_num`."""

    topic: str
    key: str
    max_num: int
    begin_timestamp: Long
    end_timestamp: Long
    is_unique_key: Annotated[bool, ExtFieldName("_UNIQUE_KEY_QUERY")] = False


class QueryMessageResponse(NamedTuple):
    """Header of the answer to QUERY_MESSAGE (12), with the progress of the index; the body contains the records."""

    index_last_update_timestamp: Long
    index_last_update_phyoffset: Long


class ViewMessageRequest(NamedTuple):
    """Header of VIEW_MESSAGE_BY_ID (33), which asks for the record at a physical offset."""

    offset: Long
    topic: str | None = None


class QueryConsumerOffsetRequest(NamedTuple):
    """Header of QUERY_CONSUMER_OFFSET (14). For `set_zero_if_not_found`, None means True."""

    consumer_group: str
    topic: str
    queue_id: int
    set_zero_if_not_found: bool | None = None


OFFSET_WAS_RESET = "Offset has been previously reset"
"""Remark in the answer of a broker that ignores a committed offset because it has reset the group's offset before."""


class UpdateConsumerOffsetRequest(NamedTuple):
    """Header of UPDATE_CONSUMER_OFFSET (15), which commits a group's offset."""

    consumer_group: str
    topic: str
    queue_id: int
    commit_offset: Long


class OffsetResponse(NamedTuple):
    """Header of answers that contain only an offset.

    Answers to QUERY_CONSUMER_OFFSET (14), SEARCH_OFFSET_BY_TIMESTAMP (29), GET_MAX_OFFSET (30), GET_MIN_OFFSET (31).
    """

    offset: Long


class MaxOffsetRequest(NamedTuple):
    """Header of GET_MAX_OFFSET (30), which asks for the end of a queue."""

    topic: str
    queue_id: int
    committed: bool | None = None


class QueueRequest(NamedTuple):
    """Header of GET_MIN_OFFSET (31) and GET_EARLIEST_MSG_STORETIME (32)."""

    topic: str
    queue_id: int


class SearchOffsetRequest(NamedTuple):
    """Header of SEARCH_OFFSET_BY_TIMESTAMP (29). The boundary is LOWER or UPPER; None means LOWER."""

    topic: str
    queue_id: int
    timestamp: Long
    boundary_type: str | None = None


class TimestampResponse(NamedTuple):
    """Header of the answer to GET_EARLIEST_MSG_STORETIME (32); -1 if there is no message."""

    timestamp: Long


class UnregisterClientRequest(NamedTuple):
    """Header of UNREGISTER_CLIENT (35), which removes a client from its groups."""

    client_id: Annotated[str, ExtFieldName("clientID")]
    producer_group: str | None = None
    consumer_group: str | None = None


class ConsumerGroupRequest(NamedTuple):
    """Header of requests about a consumer group.

    GET_CONSUMER_LIST_BY_GROUP (38), NOTIFY_CONSUMER_IDS_CHANGED (40) and GET_CONSUMER_CONNECTION_LIST (203).
    """

    consumer_group: str


class SendBackRequest(NamedTuple):
    """Header of CONSUMER_SEND_MSG_BACK (36), which returns a message that could not be consumed.

    Attributes:
        offset: physical offset of the record.
        delay_level: 0 lets the broker decide; negative means no more retries.
        origin_msg_id: the client's id of the message.
    """

    offset: Long
    group: str
    delay_level: int
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: int | None = None


class EndTransactionRequest(NamedTuple):
    """Header of END_TRANSACTION (37), which commits or rolls back a half message.

    Attributes:
        tran_state_table_offset: queue offset of the half record.
        commit_log_offset: physical offset of the half record.
        commit_or_rollback: a schemas.layouts.rocketmq.sysflag.TransactionType; NOT means undecided.
        msg_id: UNIQ_KEY.
    """

    producer_group: str
    tran_state_table_offset: Long
    commit_log_offset: Long
    commit_or_rollback: int
    from_transaction_check: bool = False
    msg_id: str = ""
    transaction_id: str | None = None
    topic: str | None = None


class CheckTransactionStateRequest(NamedTuple):
    """Header of CHECK_TRANSACTION_STATE (39), which the broker sends.

    The body is the half record with its real topic and queue.
    """

    tran_state_table_offset: Long
    commit_log_offset: Long
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None
    topic: str | None = None
