"""Headers of administrative requests to a broker, and of its answers; see headers.py."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from commitlake.schemas.remoting.ext_fields import ExtFieldName, Long


class CreateTopicRequest(NamedTuple):
    """Header of UPDATE_AND_CREATE_TOPIC (17), which creates or updates a topic.

    Attributes:
        default_topic: topic whose settings are the template.
        perm: 4 read, 2 write, 1 inherit.
        attributes: 5.x: `+name=value,-name`.
    """

    topic: str
    default_topic: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: int | None = None
    order: bool = False
    attributes: str | None = None
    force: bool | None = None


class TopicPageRequest(NamedTuple):
    """Header of GET_ALL_TOPIC_CONFIG (21); clients of 5.5 request one page of topics."""

    topic_seq: int | None = None
    max_topic_num: int | None = None


class TopicPageResponse(NamedTuple):
    """Header of the answer to GET_ALL_TOPIC_CONFIG (21), since 5.5."""

    total_topic_num: int


class GroupPageRequest(NamedTuple):
    """Header of GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201); clients of 5.5 request one page of groups."""

    group_seq: int | None = None
    max_group_num: int | None = None


class GroupPageResponse(NamedTuple):
    """Header of the answer to GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201), since 5.5."""

    total_group_num: int


class TopicRequest(NamedTuple):
    """Header of requests about one topic.

    GET_TOPIC_STATS_INFO (202), DELETE_TOPIC_IN_BROKER (215), QUERY_TOPIC_CONSUME_BY_WHO (300), GET_TOPIC_CONFIG (351).
    """

    topic: str


class ProducerGroupRequest(NamedTuple):
    """Header of GET_PRODUCER_CONNECTION_LIST (204), which asks for the members of a producer group."""

    producer_group: str


class DeleteGroupRequest(NamedTuple):
    """Header of DELETE_SUBSCRIPTIONGROUP (207), which deletes a consumer group."""

    group_name: str
    clean_offset: bool = False


class ConsumeStatsRequest(NamedTuple):
    """Header of GET_CONSUME_STATS (208). `topic_list` is separated by semicolons."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


class ResetOffsetRequest(NamedTuple):
    """Header of INVOKE_BROKER_TO_RESET_OFFSET (222), and of RESET_CONSUMER_CLIENT_OFFSET (220).

    The broker sends the second to consumers. The timestamp -1 means the end of the queue.
    """

    topic: str
    group: str
    timestamp: Long
    is_force: bool
    offset: Long | None = None
    queue_id: int | None = None


class ConsumerStatusRequest(NamedTuple):
    """Header of INVOKE_BROKER_TO_GET_CONSUMER_STATUS (223), and of GET_CONSUMER_STATUS_FROM_CLIENT (221).

    The broker sends the second to consumers.
    """

    topic: str
    group: str
    client_addr: str | None = None


class TopicGroupRequest(NamedTuple):
    """Header of QUERY_CONSUME_TIME_SPAN (303) and QUERY_SUBSCRIPTION_BY_CONSUMER (345)."""

    topic: str
    group: str


class GroupRequest(NamedTuple):
    """Header of QUERY_TOPICS_BY_CONSUMER (343) and GET_SUBSCRIPTIONGROUP_CONFIG (352)."""

    group: str


class RunningInfoRequest(NamedTuple):
    """Header of GET_CONSUMER_RUNNING_INFO (307), which asks for a consumer's state."""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


class ConsumeDirectlyRequest(NamedTuple):
    """Header of CONSUME_MESSAGE_DIRECTLY (309). The id is an offset message id."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None


class CloneGroupOffsetRequest(NamedTuple):
    """Header of CLONE_GROUP_OFFSET (314), which copies a group's offsets."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


class StatsDataRequest(NamedTuple):
    """Header of VIEW_BROKER_STATS_DATA (315).

    For example, TOPIC_PUT_NUMS of a topic, or GROUP_GET_NUMS of `topic@group`.
    """

    stats_name: str
    stats_key: str


class BrokerConsumeStatsRequest(NamedTuple):
    """Header of GET_BROKER_CONSUME_STATS (317), which asks for the lag of all groups."""

    is_order: bool


class QueryConsumeQueueRequest(NamedTuple):
    """Header of QUERY_CONSUME_QUEUE (321), which asks for entries of a queue."""

    topic: str
    queue_id: int
    first_index: Annotated[Long, ExtFieldName("index")]
    max_count: Annotated[int, ExtFieldName("count")]
    consumer_group: str | None = None


class BrokerConfigResponse(NamedTuple):
    """Header of the answer to GET_BROKER_CONFIG (26); the body has the format of Java's properties files."""

    version: str
