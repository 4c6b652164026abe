"""The arguments of what producers and consumers ask, and of its answers.

One declaration a header, read and written by `from_ext_fields` and `to_ext_fields`. A field's name is RocketMQ's;
`Long` is a Java long, a plain `int` a Java int. Source: org.apache.rocketmq.remoting.protocol.header (5.5.0).
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

from commitlake.schemas.remoting.codes import RequestCode
from commitlake.schemas.remoting.ext_fields import Key, Long, from_ext_fields, to_ext_fields
from commitlake.schemas.remoting.frames import Command

__all__ = [
    "CheckTransactionStateRequest", "ConsumerGroupRequest", "EndTransactionRequest", "MaxOffsetRequest",
    "OffsetResponse", "PullMessageRequest", "PullMessageResponse", "PullSysFlag", "QueryConsumerOffsetRequest",
    "QueryMessageRequest", "QueryMessageResponse", "QueueRequest", "SearchOffsetRequest", "SendBackRequest",
    "SendMessageRequest", "SendMessageResponse", "TimestampResponse", "UnregisterClientRequest",
    "UpdateConsumerOffsetRequest", "ViewMessageRequest", "from_ext_fields", "is_one_letter", "parse_send_request",
    "to_ext_fields",
]  # fmt: skip


class SendMessageRequest(NamedTuple):
    """10 by these names; 310 and 320 name the fields a to n, in this order.

    Attributes:
        default_topic: the topic after whose model an unknown one is made, TBW102.
        queue_id: negative where the broker is to choose.
        sys_flag: of the message, see schemas.layouts.rocketmq.sysflag.
        properties: in the form of schemas.layouts.rocketmq.properties, as text.
        reconsume_times: where a client sends to a retry topic itself.
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
    broker_name: Annotated[str | None, Key("bname")] = None


_ONE_LETTER = frozenset(
    {RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2}
)


def is_one_letter(code: int) -> bool:
    """Whether a send of this code names its fields by one letter each."""
    return code in _ONE_LETTER


def parse_send_request(command: Command) -> SendMessageRequest:
    """The header of any kind of send.

    Raises:
        HeaderError: for a required field that is missing, or a value that is not of its type.
    """
    return from_ext_fields(SendMessageRequest, command.ext_fields, one_letter=command.code in _ONE_LETTER)


class SendMessageResponse(NamedTuple):
    """Where the message is.

    Attributes:
        msg_id: the offset message id; of a batch all of them, with commas between.
        queue_offset: of a batch, that of the first.
        transaction_id: the UNIQ_KEY; brokers before 5.x give none for a normal message.
    """

    msg_id: str
    queue_id: int
    queue_offset: Long
    transaction_id: str | None = None
    batch_uniq_id: str | None = None
    msg_region: Annotated[str, Key("MSG_REGION")] = "DefaultRegion"
    trace_on: Annotated[bool, Key("TRACE_ON")] = True
    recall_handle: str | None = None


class PullSysFlag:
    """Bits of a pull's `sys_flag`."""

    COMMIT_OFFSET = 1
    """`commit_offset` is to be stored."""
    SUSPEND = 2
    """Where there is nothing yet, the broker may wait."""
    SUBSCRIPTION = 4
    """The subscription is in the request."""
    CLASS_FILTER = 8
    LITE_PULL = 16


class PullMessageRequest(NamedTuple):
    """11, and 361.

    Attributes:
        queue_offset: the first one wanted.
        sys_flag: see PullSysFlag.
        commit_offset: consumed so far; -1 where the client knows none.
        sub_version: ms; which of a consumer's subscriptions this is.
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
    broker_name: Annotated[str | None, Key("bname")] = None


class PullMessageResponse(NamedTuple):
    """The body holds the records as they are stored; the remark, the store's word for what it found."""

    suggest_which_broker_id: Long
    next_begin_offset: Long
    min_offset: Long
    max_offset: Long
    offset_delta: Long | None = None
    topic_sys_flag: int | None = None
    group_sys_flag: int | None = None
    forbidden_type: int | None = None


class QueryMessageRequest(NamedTuple):
    """12. A unique key's query answers up to 32 messages, whatever `max_num` says."""

    topic: str
    key: str
    max_num: int
    begin_timestamp: Long
    end_timestamp: Long
    is_unique_key: Annotated[bool, Key("_UNIQUE_KEY_QUERY")] = False


class QueryMessageResponse(NamedTuple):
    """How far the index is; the body holds the records."""

    index_last_update_timestamp: Long
    index_last_update_phyoffset: Long


class ViewMessageRequest(NamedTuple):
    """33: the record at a physical offset."""

    offset: Long
    topic: str | None = None


class QueryConsumerOffsetRequest(NamedTuple):
    """14. `set_zero_if_not_found` None means True."""

    consumer_group: str
    topic: str
    queue_id: int
    set_zero_if_not_found: bool | None = None


class UpdateConsumerOffsetRequest(NamedTuple):
    """15."""

    consumer_group: str
    topic: str
    queue_id: int
    commit_offset: Long


class OffsetResponse(NamedTuple):
    """Of 14, 29, 30 and 31."""

    offset: Long


class MaxOffsetRequest(NamedTuple):
    """30."""

    topic: str
    queue_id: int
    committed: bool | None = None


class QueueRequest(NamedTuple):
    """31, 32."""

    topic: str
    queue_id: int


class SearchOffsetRequest(NamedTuple):
    """29. The boundary is LOWER or UPPER; None means LOWER."""

    topic: str
    queue_id: int
    timestamp: Long
    boundary_type: str | None = None


class TimestampResponse(NamedTuple):
    """Of 32; -1 where there is no message."""

    timestamp: Long


class UnregisterClientRequest(NamedTuple):
    """35."""

    client_id: Annotated[str, Key("clientID")]
    producer_group: str | None = None
    consumer_group: str | None = None


class ConsumerGroupRequest(NamedTuple):
    """38, 40 and 203."""

    consumer_group: str


class SendBackRequest(NamedTuple):
    """36.

    Attributes:
        offset: the physical offset of the record that could not be consumed.
        delay_level: 0 leaves it to the broker; negative means no more retries.
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
    """37.

    Attributes:
        tran_state_table_offset: queue offset of the half record.
        commit_log_offset: its physical offset.
        commit_or_rollback: a schemas.layouts.rocketmq.sysflag.TransactionType; NOT means that it is not decided.
        msg_id: the UNIQ_KEY.
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
    """39, from the broker; the body is the half record with its real topic and queue."""

    tran_state_table_offset: Long
    commit_log_offset: Long
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None
    topic: str | None = None
