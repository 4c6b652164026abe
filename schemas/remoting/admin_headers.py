"""The arguments of what administrators ask of a broker, and of its answers; see headers.py."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from commitlake.schemas.remoting.ext_fields import Key, Long


class CreateTopicRequest(NamedTuple):
    """17.

    Attributes:
        default_topic: the topic after whose model it is made.
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
    """21; 5.5 asks for some topics at a time."""

    topic_seq: int | None = None
    max_topic_num: int | None = None


class TopicPageResponse(NamedTuple):
    """Of 21, since 5.5."""

    total_topic_num: int


class GroupPageRequest(NamedTuple):
    """201; 5.5 asks for some groups at a time."""

    group_seq: int | None = None
    max_group_num: int | None = None


class GroupPageResponse(NamedTuple):
    """Of 201, since 5.5."""

    total_group_num: int


class TopicRequest(NamedTuple):
    """202, 215, 300 and 351."""

    topic: str


class ProducerGroupRequest(NamedTuple):
    """204."""

    producer_group: str


class DeleteGroupRequest(NamedTuple):
    """207."""

    group_name: str
    clean_offset: bool = False


class ConsumeStatsRequest(NamedTuple):
    """208. `topic_list` has semicolons between its topics."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


class ResetOffsetRequest(NamedTuple):
    """222, and 220 from the broker to its consumers. A timestamp of -1 means the end of the queue."""

    topic: str
    group: str
    timestamp: Long
    is_force: bool
    offset: Long | None = None
    queue_id: int | None = None


class ConsumerStatusRequest(NamedTuple):
    """223, and 221 from the broker to its consumers."""

    topic: str
    group: str
    client_addr: str | None = None


class TopicGroupRequest(NamedTuple):
    """303 and 345."""

    topic: str
    group: str


class GroupRequest(NamedTuple):
    """343 and 352."""

    group: str


class RunningInfoRequest(NamedTuple):
    """307."""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


class ConsumeDirectlyRequest(NamedTuple):
    """309. The id is an offset message id."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None


class CloneGroupOffsetRequest(NamedTuple):
    """314."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


class StatsDataRequest(NamedTuple):
    """315, such as TOPIC_PUT_NUMS of a topic, GROUP_GET_NUMS of `topic@group`."""

    stats_name: str
    stats_key: str


class BrokerConsumeStatsRequest(NamedTuple):
    """317."""

    is_order: bool


class QueryConsumeQueueRequest(NamedTuple):
    """321."""

    topic: str
    queue_id: int
    first_index: Annotated[Long, Key("index")]
    max_count: Annotated[int, Key("count")]
    consumer_group: str | None = None


class BrokerConfigResponse(NamedTuple):
    """Of 26; the body is in the form of Java's properties files."""

    version: str
