"""Who is there: heartbeats, members of groups, their connections, the queues they hold.

Source: HeartbeatData, ConsumerData, SubscriptionData, LockBatchRequestBody, ConsumerConnection (5.5.0).
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

from commitlake.schemas.layouts.rocketmq.hashing import java_hash
from commitlake.schemas.remoting.ext_fields import Key, Long
from commitlake.schemas.remoting.routes import MessageQueue

ALL_TAGS = "*"
TAG_SEPARATOR = "||"
TAG_EXPRESSION = "TAG"
SQL92_EXPRESSION = "SQL92"


class SubscriptionData(NamedTuple):
    """What a consumer wants of a topic.

    Attributes:
        sub_string: the expression.
        tags_set: its tags; empty for all, and for SQL92.
        code_set: the tags' hashes, as ConsumeQueues have them.
        sub_version: ms since 1970, when it was made.
    """

    topic: str
    sub_string: str = ALL_TAGS
    tags_set: tuple[str, ...] = ()
    code_set: tuple[int, ...] = ()
    sub_version: Long = 0
    expression_type: str = TAG_EXPRESSION
    class_filter_mode: bool = False


def subscription_of_tags(topic: str, expression: str, sub_version: int) -> SubscriptionData:
    """The subscription for `*`, or for tags with `||` between them, as FilterAPI makes it."""
    tags = [tag.strip() for tag in expression.split(TAG_SEPARATOR)]
    tags = list(dict.fromkeys(tag for tag in tags if tag))
    if not tags or tags == [ALL_TAGS]:
        return SubscriptionData(topic, sub_version=sub_version)
    codes = tuple(dict.fromkeys(java_hash(tag) for tag in tags))
    return SubscriptionData(topic, expression, tuple(tags), codes, sub_version)


class ProducerData(NamedTuple):
    """A producer group that the client is in."""

    group_name: str


class ConsumerData(NamedTuple):
    """A consumer group that the client is in.

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
    """Body of 34."""

    client_id: Annotated[str, Key("clientID")]
    producer_data_set: tuple[ProducerData, ...] = ()
    consumer_data_set: tuple[ConsumerData, ...] = ()


class CheckClientConfig(NamedTuple):
    """Body of 46."""

    client_id: str
    group: str
    subscription_data: SubscriptionData


class ConsumerList(NamedTuple):
    """Body of 38's answer: ids of the clients."""

    consumer_id_list: tuple[str, ...] = ()


class LockBatch(NamedTuple):
    """Body of 41 and 42."""

    consumer_group: str
    client_id: str
    mq_set: tuple[MessageQueue, ...] = ()
    only_this_broker: bool = False


class LockBatchResult(NamedTuple):
    """Body of 41's answer: the queues that this client holds now."""

    lock_ok_mq_set: Annotated[tuple[MessageQueue, ...], Key("lockOKMQSet")] = ()


class Connection(NamedTuple):
    """A client as a broker sees it."""

    client_id: str
    client_addr: str
    language: str
    version: int


class ConsumerConnection(NamedTuple):
    """Body of 203's answer."""

    connection_set: tuple[Connection, ...] = ()
    subscription_table: dict[str, SubscriptionData] = {}  # noqa: RUF012
    consume_type: str | None = None
    message_model: str | None = None
    consume_from_where: str | None = None


class ProducerConnection(NamedTuple):
    """Body of 204's answer."""

    connection_set: tuple[Connection, ...] = ()
