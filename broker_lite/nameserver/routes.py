"""Route table of a name server: brokers and their topics, with limits for each broker and in total.

A broker registers when it starts, every half minute, and when a topic changes. It is removed when its heartbeats time
out, when its connection closes, and when it unregisters. Only the topics of masters count. A topic that its broker has
deleted stays in the table until it is deleted here, too. Source: RouteInfoManager (5.5.0).

Each broker has its own table of topics, so that adding or removing a broker does not touch the topics of others.

Unlike RocketMQ's, this table has limits, and may have a local broker, in the same process: no registration replaces it,
and its topics stay as long as it has them.
"""

from __future__ import annotations

import heapq
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from commitlake.schemas.remoting.errors import BodyError, CommandError
from commitlake.schemas.remoting.name_server_headers import BrokerRequest, RegisterBrokerRequest
from commitlake.schemas.remoting.routes import MASTER_ID, PERM_WRITE, BrokerData, ClusterInfo, QueueData, TopicRoute
from commitlake.schemas.remoting.topic_and_group_configs import DataVersion, TopicConfig, TopicConfigs

MAX_BROKERS = 1_000
"""Masters and slaves together."""
MAX_TOPICS = 200_000
"""Topics of one broker; more would not fit in a compressed body."""
MAX_ROUTES = 500_000
"""Topics of all brokers, counted once for each broker that has them; they take about 150 MB."""
MAX_QUEUES = 65_536
"""Queues of a topic; clients create an object for each of them."""
MAX_FILTER_SERVERS = 64
MAX_NAME_LENGTH = 255
"""Maximum length of names of topics, brokers and clusters; RocketMQ's topics have up to 127 characters plus prefix."""
MAX_ADDRESS_LENGTH = 261
"""A host name of 255 characters and a port."""
MAX_TIMEOUT_MS = 600_000
"""Longest heartbeat timeout that a broker may ask for."""
DEFAULT_TIMEOUT_MS = 120_000
_NAMES_OF_STEP = 5_000


def check_registration_names(header: RegisterBrokerRequest) -> None:
    """Check the names and addresses with which a broker registers.

    Raises:
        CommandError: if a name or address is too long, or the id is negative.
    """
    for what, text, limit in (
        ("brokerName", header.broker_name, MAX_NAME_LENGTH),
        ("clusterName", header.cluster_name, MAX_NAME_LENGTH),
        ("brokerAddr", header.broker_addr, MAX_ADDRESS_LENGTH),
        ("haServerAddr", header.ha_server_addr, MAX_ADDRESS_LENGTH),
    ):
        if len(text) > limit:
            raise CommandError(f"{what}: expected at most {limit} characters, found {len(text)}")
    if header.broker_id < 0:
        raise CommandError(f"brokerId: expected 0 or more, found {header.broker_id}")


def check_topic_count(count: int) -> None:
    """Check that a broker does not register too many topics.

    Raises:
        BodyError: if there are too many topics.
    """
    if count > MAX_TOPICS:
        raise BodyError(f"registration: expected at most {MAX_TOPICS} topics of a broker, found {count}")


def check_filter_servers(servers: tuple[str, ...]) -> None:
    """Check that a broker does not register too many filter servers.

    Raises:
        BodyError: if there are too many filter servers.
    """
    if len(servers) > MAX_FILTER_SERVERS:
        raise BodyError(
            f"registration: expected at most {MAX_FILTER_SERVERS} filter servers of a broker, found {len(servers)}"
        )


def check_topic(name: str, topic: TopicConfig) -> None:
    """Check the name and the numbers of queues of a registered topic.

    Raises:
        BodyError: if its name is empty or too long, or it has too many queues.
    """
    if not 0 < len(name) <= MAX_NAME_LENGTH:
        raise BodyError(f"topic {name[:80]!r}: expected a name of 1 to {MAX_NAME_LENGTH} characters, found {len(name)}")
    for count in (topic.read_queue_nums, topic.write_queue_nums):
        if not 0 <= count <= MAX_QUEUES:
            raise BodyError(f"topic {name[:80]!r}: expected 0 to {MAX_QUEUES} queues, found {count}")


class BrokerKey(NamedTuple):
    """Identity of a broker process, a master or a slave."""

    cluster: str
    name: str
    broker_id: int
    address: str


def broker_key(request: RegisterBrokerRequest | BrokerRequest) -> BrokerKey:
    """Return the identity of the broker process that a request names."""
    return BrokerKey(request.cluster_name, request.broker_name, request.broker_id, request.broker_addr)


def topic_queues(broker_name: str, config: TopicConfig) -> QueueData:
    """Return a topic's queues on a broker, in the form that clients receive."""
    return QueueData(broker_name, config.read_queue_nums, config.write_queue_nums, config.perm, config.topic_sys_flag)


@dataclass(slots=True)
class _BrokerRegistration:
    """Registration of one broker process, a master or a slave, that sends heartbeats."""

    heard_ms: int
    timeout_ms: int
    data_version: DataVersion
    ha_address: str
    owner: object | None


@dataclass(slots=True)
class _RegisteredBroker:
    """Broker by name: its master and its slaves.

    Attributes:
        topics: topics of the master.
        is_writable: write permission that an administrator has set for all topics; None if none was set since they were
            registered.
    """

    cluster: str
    addresses: dict[int, str] = field(default_factory=dict)
    enable_acting_master: bool | None = None
    topics: dict[str, QueueData] = field(default_factory=dict)
    is_writable: bool | None = None

    def queues(self, topic: str) -> QueueData:
        """Return a topic's queues, in the form that clients receive."""
        data = self.topics[topic]
        if self.is_writable is None:
            return data
        return data._replace(perm=data.perm | PERM_WRITE if self.is_writable else data.perm & ~PERM_WRITE)


class RouteTable:
    """Routes of all topics of all registered brokers."""

    def __init__(self) -> None:
        self._live: dict[BrokerKey, _BrokerRegistration] = {}
        self._brokers: dict[str, _RegisteredBroker] = {}
        self._local: BrokerKey | None = None
        self._local_topics: frozenset[str] = frozenset()

    def register_local_broker(self, request: RegisterBrokerRequest, topics: TopicConfigs, now_ms: int) -> None:
        """Register the broker that runs in this process, and needs no connection.

        Args:
            now_ms: current time.
        """
        self._local = broker_key(request)
        self._local_topics = frozenset(topics.topic_config_table)
        # This is called every half minute: topics that have not changed need no objects.
        is_known = self._data_version(self._local) == topics.data_version
        table = {} if is_known else topics.topic_config_table
        queues = {name: topic_queues(request.broker_name, config) for name, config in table.items()}
        self.register(request, topics.data_version, queues, now_ms)

    def is_local_broker(self, broker_name: str) -> bool:
        """Return whether this process runs a broker with this name."""
        return self._local is not None and self._local.name == broker_name

    def conflicts_with_local_broker(self, key: BrokerKey) -> bool:
        """Return whether a broker has the local broker's address, or its name with the same id or another cluster."""
        if self._local is None:
            return False
        is_namesake = key.name == self._local.name
        return key.address == self._local.address or (
            is_namesake and (key.broker_id == self._local.broker_id or key.cluster != self._local.cluster)
        )

    def is_registered_by_connection(self, key: BrokerKey, connection: object) -> bool:
        """Return whether a broker registered over this connection."""
        live = self._live.get(key)
        return live is not None and live.owner is connection

    def register(
        self,
        request: RegisterBrokerRequest,
        data_version: DataVersion,
        topics: Mapping[str, QueueData],
        now_ms: int,
        connection: object | None = None,
    ) -> str | None:
        """Register a broker, with its topics if it is a master.

        Args:
            data_version: version of its topics; if this version is registered already, the topics are not changed.
            topics: all of its topics.
            now_ms: current time.
            connection: connection over which it registered; see `remove_brokers_of_connection`.

        Returns:
            Address of the master if the broker is a slave and its master is registered, else None.

        Raises:
            CommandError: if the limit on brokers is exceeded.
            BodyError: if the limit on topics is exceeded.
        """
        key = broker_key(request)
        self._check_registration_limits(key, topics)
        # Before the new one is added: a broker that restarts at another address is still known at the old one.
        for stale in [known for known in self._live if self._is_replaced_by(known, key)]:
            self._remove_broker(stale)
        broker = self._brokers.setdefault(request.broker_name, _RegisteredBroker(request.cluster_name))
        # A slave of the local broker, or a namesake, must not change its cluster.
        if key == self._local or not self.is_local_broker(request.broker_name):
            broker.cluster = request.cluster_name
            broker.enable_acting_master = request.enable_acting_master
        broker.addresses[request.broker_id] = request.broker_addr
        if request.broker_id == MASTER_ID and self._data_version(key) != data_version:
            if not self._can_keep_old_topics(key, broker.topics, topics):
                broker.topics = {}
            broker.topics.update(topics)
            # A broker that registers changed topics sets their permissions anew.
            broker.is_writable = None
        timeout_ms = min(request.heartbeat_timeout_millis or DEFAULT_TIMEOUT_MS, MAX_TIMEOUT_MS)
        self._live[key] = _BrokerRegistration(now_ms, timeout_ms, data_version, request.ha_server_addr, connection)
        return broker.addresses.get(MASTER_ID) if request.broker_id != MASTER_ID else None

    def _check_registration_limits(self, key: BrokerKey, topics: Mapping[str, QueueData]) -> None:
        if key == self._local:
            return
        if key not in self._live and len(self._live) >= MAX_BROKERS:
            raise CommandError(
                f"broker {key.name!r} cannot be registered: {MAX_BROKERS} brokers are registered, which is the limit"
            )
        if key.broker_id == MASTER_ID:
            there = self._brokers[key.name].topics if key.name in self._brokers else {}
            # Topics of this broker count once, with those that are kept although it has deleted them.
            count = sum(len(broker.topics) for broker in self._brokers.values()) - len(there) + len(topics)
            if self._can_keep_old_topics(key, there, topics):
                count += sum(topic not in topics for topic in there)
            if count > MAX_ROUTES:
                raise BodyError(
                    f"broker {key.name!r} cannot be registered: all brokers would have {count} topics, expected at "
                    f"most {MAX_ROUTES}"
                )

    def _can_keep_old_topics(
        self, key: BrokerKey, old_topics: Mapping[str, QueueData], new_topics: Mapping[str, QueueData]
    ) -> bool:
        """Return whether the limit on topics allows keeping topics that a broker no longer registers."""
        return key == self._local or len(old_topics) + len(new_topics) <= MAX_TOPICS

    @staticmethod
    def _is_replaced_by(old_key: BrokerKey, new_key: BrokerKey) -> bool:
        """Return whether a new broker process replaces a known one: same broker name, and same id or address."""
        if old_key == new_key or old_key.name != new_key.name:
            return False
        return old_key.broker_id == new_key.broker_id or old_key.address == new_key.address

    def ha_address(self, cluster: str, broker_name: str) -> str | None:
        """Return the address from which a broker's slaves copy the log, or None."""
        for key, live in self._live.items():
            if (key.cluster, key.name, key.broker_id) == (cluster, broker_name, MASTER_ID):
                return live.ha_address
        return None

    def query_data_version(self, key: BrokerKey, now_ms: int) -> DataVersion | None:
        """Return the version of the topics that a broker has registered; the query also counts as its heartbeat."""
        live = self._live.get(key)
        if live is not None:
            live.heard_ms = now_ms
        return self._data_version(key)

    def _data_version(self, key: BrokerKey) -> DataVersion | None:
        live = self._live.get(key)
        return None if live is None else live.data_version

    def note_heartbeat(self, key: BrokerKey, now_ms: int) -> None:
        """Record the time of a broker's heartbeat."""
        self.query_data_version(key, now_ms)

    def unregister(self, key: BrokerKey) -> None:
        """Remove a broker that unregisters."""
        if key in self._live:
            self._remove_broker(key)

    def remove_brokers_of_connection(self, connection: object) -> None:
        """Remove the brokers that registered over a closed connection."""
        for key in [key for key, live in self._live.items() if live.owner is connection]:
            self._remove_broker(key)

    def remove_expired_brokers(self, now_ms: int) -> None:
        """Remove the brokers whose heartbeats have timed out."""
        for key in [key for key, live in self._live.items() if now_ms - live.heard_ms > live.timeout_ms]:
            self._remove_broker(key)

    def _remove_broker(self, key: BrokerKey) -> None:
        del self._live[key]
        broker = self._brokers.get(key.name)
        if broker is None:
            return
        # Another process may have registered with this id meanwhile.
        if broker.addresses.get(key.broker_id) == key.address:
            del broker.addresses[key.broker_id]
        if not broker.addresses:
            del self._brokers[key.name]

    def topic_route(self, topic: str) -> TopicRoute | None:
        """Return the route of a topic, or None if no broker has it."""
        names = sorted(name for name, broker in self._brokers.items() if topic in broker.topics)
        if not names:
            return None
        queues = tuple(self._brokers[name].queues(topic) for name in names)
        return TopicRoute(queues, tuple(self._broker_data(name) for name in names))

    def _broker_data(self, broker_name: str) -> BrokerData:
        broker = self._brokers[broker_name]
        addresses = dict(sorted(broker.addresses.items()))
        return BrokerData(broker_name, addresses, broker.cluster, bool(broker.enable_acting_master))

    def cluster_info(self) -> ClusterInfo:
        """Return all brokers by name, and the broker names of each cluster."""
        by_cluster: dict[str, list[str]] = {}
        for name, broker in sorted(self._brokers.items()):
            by_cluster.setdefault(broker.cluster, []).append(name)
        brokers = {name: self._broker_data(name) for name in sorted(self._brokers)}
        return ClusterInfo(brokers, {cluster: tuple(names) for cluster, names in by_cluster.items()})

    def topic_names(self, cluster: str | None = None) -> Generator[None, None, Iterator[str]]:
        """Return the names of all topics, or of those of one cluster, sorted; yield after each step of the work."""
        tables = [broker.topics for broker in self._brokers.values() if cluster in (None, broker.cluster)]
        names = set[str]()
        for table in tables:
            names.update(table)
            yield
        unsorted, parts = iter(names), []
        while part := sorted(islice(unsorted, _NAMES_OF_STEP)):
            parts.append(part)
            yield
        # Parts are sorted one at a time, so that no step takes long.
        return heapq.merge(*parts)

    def system_topics(self) -> tuple[tuple[str, ...], str | None]:
        """Return the names of all clusters and brokers, which serve as system topics, and the address of one broker."""
        names = {broker.cluster for broker in self._brokers.values()} | set(self._brokers)
        addresses = [address for broker in self._brokers.values() for address in broker.addresses.values()]
        return tuple(sorted(names)), (addresses[0] if addresses else None)

    def delete_topic(self, topic: str, cluster: str | None) -> None:
        """Delete a topic in all clusters or in one.

        The local broker's topics stay while it has them; another broker that still has the topic registers it again.
        """
        for name, broker in self._brokers.items():
            is_wanted = cluster in (None, broker.cluster)
            if is_wanted and not (self.is_local_broker(name) and topic in self._local_topics):
                broker.topics.pop(topic, None)

    def set_write_permission(self, broker_name: str, *, is_writable: bool) -> int:
        """Set or clear the write permission of all of a broker's topics, and return the number of topics."""
        broker = self._brokers.get(broker_name)
        if broker is None:
            return 0
        broker.is_writable = is_writable
        return len(broker.topics)
