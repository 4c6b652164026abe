"""Bodies about clients and groups: heartbeats, subscriptions, members, connections, queue locks.

Source: HeartbeatData, ConsumerData, SubscriptionData, LockBatchRequestBody, ConsumerConnection (5.5.0).
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

from commitlake.schemas.layouts.rocketmq.key_hashes import java_hash
from commitlake.schemas.remoting.ext_fields import ExtFieldName, Long
from commitlake.schemas.remoting.routes import MessageQueue

ALL_TAGS = "*"
TAG_EXPRESSION = "TAG"
SQL92_EXPRESSION = "SQL92"
_TAG_SEPARATOR = "||"
_TRIMMED = "".join(map(chr, range(0x21)))
"""Characters that Java's `trim` removes, with which FilterAPI reads an expression."""


def parse_tag_expression(expression: str) -> tuple[str, ...] | None:
    """Return the distinct tags of a tag expression, parsed like RocketMQ's FilterAPI; None if it selects all tags.

    Only `*` alone means all: in a list, or with blanks, it is the tag `*`.

    >>> parse_tag_expression("paid || refunded")
    ('paid', 'refunded')
    """
    if expression in {"", ALL_TAGS}:
        return None
    tags = (tag.strip(_TRIMMED) for tag in expression.split(_TAG_SEPARATOR))
    return tuple(dict.fromkeys(tag for tag in tags if tag))


class SubscriptionData(NamedTuple):
    """Subscription of a consumer to a topic.

    Attributes:
        sub_string: filter expression.
        tags_set: tags of the expression; empty for all tags, and for SQL92.
        code_set: hashes of the tags, as in ConsumeQueues.
        sub_version: time of creation, ms since 1970.
    """

    topic: str
    sub_string: str = ALL_TAGS
    tags_set: tuple[str, ...] = ()
    code_set: tuple[int, ...] = ()
    sub_version: Long = 0
    expression_type: str = TAG_EXPRESSION
    class_filter_mode: bool = False


def subscription_of_tags(topic: str, expression: str, sub_version: int) -> SubscriptionData:
    """Return the subscription for a tag expression, which selects all messages if it names no tag."""
    tags = parse_tag_expression(expression)
    if not tags:
        return SubscriptionData(topic, sub_version=sub_version)
    codes = tuple(dict.fromkeys(java_hash(tag) for tag in tags))
    return SubscriptionData(topic, expression, tags, codes, sub_version)


class ProducerData(NamedTuple):
    """Membership of a client in a producer group."""

    group_name: str


class ConsumerData(NamedTuple):
    """Membership of a client in a consumer group.

    Attributes:
        consume_type: CONSUME_ACTIVELY (pull), CONSUME_PASSIVELY (push).
        message_model: CLUSTERING, BROADCASTING.
        consume_from_where: CONSUME_FROM_LAST_OFFSET, CONSUME_FROM_FIRST_OFFSET, CONSUME_FROM_TIMESTAMP.
    """

    group_name: str
    consume_type: str = "CONSUME_PASSIVELY"
    message_model: str = "CLUSTERING"
    consume_from_where: str = "CONSUME_FROM_LAST_OFFSET"
    subscription_data_set: tuple[SubscriptionData, ...] = ()
    unit_mode: bool = False


class Heartbeat(NamedTuple):
    """Body of HEART_BEAT (34)."""

    client_id: Annotated[str, ExtFieldName("clientID")]
    producer_data_set: tuple[ProducerData, ...] = ()
    consumer_data_set: tuple[ConsumerData, ...] = ()


class CheckClientConfig(NamedTuple):
    """Body of CHECK_CLIENT_CONFIG (46)."""

    client_id: str
    group: str
    subscription_data: SubscriptionData


class ConsumerList(NamedTuple):
    """Body of the answer to GET_CONSUMER_LIST_BY_GROUP (38): ids of the clients."""

    consumer_id_list: tuple[str, ...] = ()


class LockBatch(NamedTuple):
    """Body of LOCK_BATCH_MQ (41) and UNLOCK_BATCH_MQ (42)."""

    consumer_group: str
    client_id: str
    mq_set: tuple[MessageQueue, ...] = ()
    only_this_broker: bool = False


class LockBatchResult(NamedTuple):
    """Body of the answer to LOCK_BATCH_MQ (41): the queues that this client holds now."""

    lock_ok_mq_set: Annotated[tuple[MessageQueue, ...], ExtFieldName("lockOKMQSet")] = ()


class ClientConnection(NamedTuple):
    """Connection of a client, as a broker reports it."""

    client_id: str
    client_addr: str
    language: str
    version: int


class ConsumerConnection(NamedTuple):
    """Body of the answer to GET_CONSUMER_CONNECTION_LIST (203)."""

    connection_set: tuple[ClientConnection, ...] = ()
    subscription_table: dict[str, SubscriptionData] = {}  # noqa: RUF012
    consume_type: str | None = None
    message_model: str | None = None
    consume_from_where: str | None = None


class ProducerConnection(NamedTuple):
    """Body of the answer to GET_PRODUCER_CONNECTION_LIST (204)."""

    connection_set: tuple[ClientConnection, ...] = ()
