"""Routes of topics: the data that a name server returns, and the queues that a client derives from them.

Source: TopicRouteData, ClusterInfo, MQClientInstance.topicRouteData2TopicPublishInfo (5.5.0).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from commitlake.schemas.layouts.integer_parsing import parse_int32
from commitlake.schemas.remoting.errors import BodyError
from commitlake.schemas.remoting.ext_fields import Long

PERM_READ = 4
PERM_WRITE = 2
PERM_INHERIT = 1
MASTER_ID = 0
MAX_QUEUES = 65_536
"""Limit on the queues of a topic on one broker that a client accepts: a small answer must not create huge lists."""
MAX_TOPIC_QUEUES = 262_144
"""Limit on the queues of a topic on all brokers together."""
MAX_BROKERS = 1_024
"""Limit on the brokers in an answer of a name server, because a client may connect to each of them."""
_MAX_BROKER_NAME = 1_024


class MessageQueue(NamedTuple):
    """Queue of a topic on a broker."""

    topic: str
    broker_name: str
    queue_id: int


class BrokerData(NamedTuple):
    """Master broker with its slaves.

    Attributes:
        broker_addrs: `ip:port` by broker id; 0 is the master.
    """

    broker_name: str
    broker_addrs: dict[Long, str]
    cluster: str | None = None
    enable_acting_master: bool | None = None
    zone_name: str | None = None

    @property
    def master_address(self) -> str | None:
        """Address of the master, or None."""
        return self.broker_addrs.get(MASTER_ID)

    @property
    def any_address(self) -> str | None:
        """Address to read from: that of the master or, without a master, of the slave with the lowest id."""
        return self.broker_addrs[min(self.broker_addrs)] if self.broker_addrs else None


class QueueData(NamedTuple):
    """Queues of a topic on one broker, with their permissions."""

    broker_name: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_sys_flag: int = 0


class TopicRoute(NamedTuple):
    """Body of GET_ROUTEINFO_BY_TOPIC (105).

    Attributes:
        order_topic_conf: fixed order of queues, if the topic has one: `broker-a:4;broker-b:4`.
    """

    queue_datas: tuple[QueueData, ...] = ()
    broker_datas: tuple[BrokerData, ...] = ()
    filter_server_table: dict[str, tuple[str, ...]] = {}  # noqa: RUF012 (a default that nobody changes)
    order_topic_conf: str | None = None

    def find_broker(self, name: str) -> BrokerData | None:
        """Return the broker with the given name, or None if the route does not have it."""
        return next((broker for broker in self.broker_datas if broker.broker_name == name), None)


def check_route(route: TopicRoute) -> TopicRoute:
    """Check that a client can use a route, and return it.

    Raises:
        BodyError: if it has no brokers or more than MAX_BROKERS, a duplicate or invalid broker name, or more queues
            than MAX_QUEUES on a broker or MAX_TOPIC_QUEUES in all.
    """
    check_broker_names("TopicRoute", [broker.broker_name for broker in route.broker_datas])
    check_broker_names("TopicRoute", [data.broker_name for data in route.queue_datas])
    for data in route.queue_datas:
        for count in (data.read_queue_nums, data.write_queue_nums):
            if not 0 <= count <= MAX_QUEUES:
                raise BodyError(
                    f"TopicRoute: expected 0 to {MAX_QUEUES} queues on broker {data.broker_name}, found {count}"
                )
    total = sum(max(data.read_queue_nums, data.write_queue_nums) for data in route.queue_datas)
    total = max(total, sum(count for _, count in _parse_queue_counts(route.order_topic_conf or "")))
    if total > MAX_TOPIC_QUEUES:
        raise BodyError(f"TopicRoute: expected at most {MAX_TOPIC_QUEUES} queues on all brokers, found {total}")
    if not route.broker_datas:  # a name server answers TOPIC_NOT_EXIST then
        raise BodyError("TopicRoute: expected at least one broker, found none")
    return route


def check_broker_names(answer_name: str, names: Collection[str]) -> None:
    """Check the names of the brokers in an answer of a name server.

    Args:
        answer_name: name of the answer, for errors.
        names: one for each broker.

    Raises:
        BodyError: if there are more than MAX_BROKERS, or a name is duplicate or invalid.
    """
    if len(names) > MAX_BROKERS:
        raise BodyError(f"{answer_name}: expected at most {MAX_BROKERS} brokers, found {len(names)}")
    seen: set[str] = set()
    for name in names:
        if not name or len(name) > _MAX_BROKER_NAME or not name.isprintable():
            expected = f"the name of a broker, 1 to {_MAX_BROKER_NAME} printable characters"
            raise BodyError(f"{answer_name}: expected {expected}, found {name[:80]!r}")
        if name in seen:
            raise BodyError(f"{answer_name}: expected each broker once, found {name[:80]!r} twice")
        seen.add(name)


def publish_queues(topic: str, route: TopicRoute) -> list[MessageQueue]:
    """Return the queues that a producer may send to: those of writable brokers with a master."""
    if route.order_topic_conf:
        return _ordered_queues(topic, route.order_topic_conf)
    queues = []
    with_master = {broker.broker_name for broker in route.broker_datas if broker.master_address is not None}
    for data in sorted(route.queue_datas):
        if data.perm & PERM_WRITE and data.broker_name in with_master:
            queues += [MessageQueue(topic, data.broker_name, number) for number in range(data.write_queue_nums)]
    return queues


def subscribe_queues(topic: str, route: TopicRoute) -> list[MessageQueue]:
    """Return the queues that a consumer may read: those of readable brokers, on masters or slaves."""
    return [
        MessageQueue(topic, data.broker_name, number)
        for data in route.queue_datas
        if data.perm & PERM_READ
        for number in range(data.read_queue_nums)
    ]


def _ordered_queues(topic: str, conf: str) -> list[MessageQueue]:
    return [
        MessageQueue(topic, broker_name, number)
        for broker_name, count in _parse_queue_counts(conf)
        for number in range(count)
    ]


def _parse_queue_counts(conf: str) -> list[tuple[str, int]]:
    """Return the queue count of each broker in the text of an ordered topic's configuration; ignore invalid parts."""
    parts = (part.partition(":") for part in conf.split(";"))
    counts = ((broker_name, parse_int32(count)) for broker_name, _, count in parts)
    return [(broker_name, max(count, 0)) for broker_name, count in counts if broker_name and count is not None]


class ClusterInfo(NamedTuple):
    """Body of GET_BROKER_CLUSTER_INFO (106)."""

    broker_addr_table: dict[str, BrokerData] = {}  # noqa: RUF012
    cluster_addr_table: dict[str, tuple[str, ...]] = {}  # noqa: RUF012


class TopicList(NamedTuple):
    """Body of answers that list topics.

    Answers to GET_ALL_TOPIC_LIST_FROM_NAMESERVER (206), GET_TOPICS_BY_CLUSTER (224),
    GET_SYSTEM_TOPIC_LIST_FROM_NS (304) and QUERY_TOPICS_BY_CONSUMER (343).
    """

    topic_list: tuple[str, ...] = ()
    broker_addr: str | None = None


class KvTable(NamedTuple):
    """Body of the answers to GET_BROKER_RUNTIME_INFO (28) and GET_KVLIST_BY_NAMESPACE (219): a table of texts."""

    table: dict[str, str] = {}  # noqa: RUF012
