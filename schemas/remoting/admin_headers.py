"""Headers of administrative requests to a broker, and of its answers; see headers.py."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from commitlake.schemas.remoting.ext_fields import Key, Long


class CreateTopicRequest(NamedTuple):
    """Header of 17, which creates or updates a topic.

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
    """Header of 21; clients of 5.5 request one page of topics."""

    topic_seq: int | None = None
    max_topic_num: int | None = None


class TopicPageResponse(NamedTuple):
    """Header of the answer to 21, since 5.5."""

    total_topic_num: int


class GroupPageRequest(NamedTuple):
    """Header of 201; clients of 5.5 request one page of groups."""

    group_seq: int | None = None
    max_group_num: int | None = None


class GroupPageResponse(NamedTuple):
    """Header of the answer to 201, since 5.5."""

    total_group_num: int


class TopicRequest(NamedTuple):
    """Header of 202, 215, 300 and 351."""

    topic: str


class ProducerGroupRequest(NamedTuple):
    """Header of 204, which asks for the members of a producer group."""

    producer_group: str


class DeleteGroupRequest(NamedTuple):
    """Header of 207, which deletes a consumer group."""

    group_name: str
    clean_offset: bool = False


class ConsumeStatsRequest(NamedTuple):
    """Header of 208. `topic_list` is separated by semicolons."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


class ResetOffsetRequest(NamedTuple):
    """Header of 222, and of 220 from the broker to consumers. The timestamp -1 means the end of the queue."""

    topic: str
    group: str
    timestamp: Long
    is_force: bool
    offset: Long | None = None
    queue_id: int | None = None


class ConsumerStatusRequest(NamedTuple):
    """Header of 223, and of 221 from the broker to consumers."""

    topic: str
    group: str
    client_addr: str | None = None


class TopicGroupRequest(NamedTuple):
    """Header of 303 and 345."""

    topic: str
    group: str


class GroupRequest(NamedTuple):
    """Header of 343 and 352."""

    group: str


class RunningInfoRequest(NamedTuple):
    """Header of 307, which asks for a consumer's state."""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


class ConsumeDirectlyRequest(NamedTuple):
    """Header of 309. The id is an offset message id."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None


class CloneGroupOffsetRequest(NamedTuple):
    """Header of 314, which copies a group's offsets."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


class StatsDataRequest(NamedTuple):
    """Header of 315; for example TOPIC_PUT_NUMS of a topic, or GROUP_GET_NUMS of `topic@group`."""

    stats_name: str
    stats_key: str


class BrokerConsumeStatsRequest(NamedTuple):
    """Header of 317, which asks for the lag of all groups."""

    is_order: bool


class QueryConsumeQueueRequest(NamedTuple):
    """Header of 321, which asks for entries of a queue."""

    topic: str
    queue_id: int
    first_index: Annotated[Long, Key("index")]
    max_count: Annotated[int, Key("count")]
    consumer_group: str | None = None


class BrokerConfigResponse(NamedTuple):
    """Header of the answer to 26; the body has the format of Java's properties files."""

    version: str
