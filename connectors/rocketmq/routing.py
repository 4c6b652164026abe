"""Routes of topics and addresses of brokers from name servers, or from given brokers instead, cached for a while.

Name servers are asked in turn until one answers. A route older than `route_seconds` is requested again at its next use;
while no name server answers, the old route is used.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Sequence
from typing import NamedTuple

from commitlake.connectors.rocketmq.errors import NoRouteError, ProtocolError, RefusedError, UnreachableError
from commitlake.connectors.rocketmq.network import Network, PeerAnswer
from commitlake.schemas.layouts.integer_parsing import parse_int64
from commitlake.schemas.layouts.rocketmq.topics import AUTO_CREATE_TOPIC
from commitlake.schemas.remoting.codes import RequestCode, ResponseCode
from commitlake.schemas.remoting.errors import BodyError
from commitlake.schemas.remoting.name_server_headers import RouteRequest
from commitlake.schemas.remoting.routes import (
    BrokerData,
    ClusterInfo,
    MessageQueue,
    QueueData,
    TopicList,
    TopicRoute,
    check_broker_names,
    check_route,
    publish_queues,
    subscribe_queues,
)
from commitlake.schemas.remoting.topic_and_group_configs import TopicConfig, TopicConfigs


class BrokerDirectory:
    """A substitute for name servers that asks given brokers; thread-safe.

    Args:
        network: network of the client.
        addresses: `host:port` of each broker, a master or a slave.
    """

    def __init__(self, network: Network, addresses: Sequence[str]) -> None:
        self._network = network
        self._addresses = addresses

    def clusters(self) -> ClusterInfo:
        """Return the given brokers by name, each with its cluster and the addresses at which it has answered."""
        brokers: dict[str, BrokerData] = {}
        clusters: dict[str, list[str]] = {}
        for address in self._addresses:
            name, broker_id, cluster = self._read_broker_identity(address)
            known = brokers.get(name, BrokerData(name, {}, cluster))
            brokers[name] = known._replace(broker_addrs={**known.broker_addrs, broker_id: address})
            if name not in clusters.setdefault(cluster, []):
                clusters[cluster].append(name)
        return ClusterInfo(brokers, {cluster: tuple(names) for cluster, names in clusters.items()})

    def topics(self) -> list[str]:
        """Return the names of all topics of all brokers."""
        return sorted({topic for address in self._addresses for topic in self._topics_at(address)})

    def route(self, topic: str) -> TopicRoute | None:
        """Return the route of a topic; None if no broker has it."""
        found = self.clusters()
        queues: dict[str, QueueData] = {}
        for name, broker in found.broker_addr_table.items():
            address = broker.any_address
            config = None if address is None else self._topics_at(address).get(topic)
            if config is not None:
                sizes = config.read_queue_nums, config.write_queue_nums, config.perm, config.topic_sys_flag
                queues[name] = QueueData(name, *sizes)
        if not queues:
            return None
        return TopicRoute(tuple(queues.values()), tuple(found.broker_addr_table[name] for name in queues))

    def _topics_at(self, address: str) -> dict[str, TopicConfig]:
        return (
            self._network.send_and_wait(address, RequestCode.GET_ALL_TOPIC_CONFIG)
            .body_as(TopicConfigs)
            .topic_config_table
        )

    def _read_broker_identity(self, address: str) -> tuple[str, int, str]:
        """Return a broker's name, id and cluster."""
        text = self._network.send_and_wait(address, RequestCode.GET_BROKER_CONFIG).body.decode("utf-8", "replace")
        settings = dict(line.partition("=")[::2] for line in text.splitlines())
        name, number = settings.get("brokerName", ""), parse_int64(settings.get("brokerId", ""))
        if not name or number is None:
            raise ProtocolError(
                f"{address}: expected a broker with a brokerName and a brokerId in its settings, found {name[:100]!r} "
                f"and {settings.get('brokerId', 'none')[:100]!r}"
            )
        return name, number, settings.get("brokerClusterName", "")


DEFAULT_TOPIC_QUEUES = 4
"""Largest number of queues of a topic that its first message creates."""

_log = logging.getLogger(__name__)


class _CachedRoute(NamedTuple):
    route: TopicRoute
    to_publish: list[MessageQueue]
    asked_at: float
    is_model: bool  # the topic does not exist yet; its first message will create these queues


class Routing:
    """Cached routes of topics and addresses of brokers; thread-safe."""

    def __init__(self, network: Network) -> None:
        """Create the cache without any request."""
        self._network = network
        self._servers = network.options.name_server_addresses
        given = network.options.broker_addresses
        self._directory = BrokerDirectory(network, given) if given else None
        self._known: dict[str, _CachedRoute] = {}
        self._brokers: dict[str, BrokerData] = {}
        self._lock = threading.Lock()

    def ask_name_server(
        self,
        code: int,
        header: NamedTuple | None = None,
        body: bytes = b"",
        accepted_codes: Collection[int] = (ResponseCode.SUCCESS,),
    ) -> PeerAnswer:
        """Return the answer of the first name server that answers.

        Raises:
            UnreachableError: if none does.
            RefusedError: if it refuses the request.
        """
        problems = []
        # A copy, because another thread may change the order meanwhile.
        for address in list(self._servers):
            try:
                answer = self._network.send_and_wait(address, code, header, body, accepted_codes=accepted_codes)
            except UnreachableError as error:
                problems.append(str(error))
                continue
            if problems:  # start with the answering name server next time
                self._servers = [address, *(other for other in self._servers if other != address)]
            return answer
        raise UnreachableError(f"no name server answered: {'; '.join(problems)}")

    def route(self, topic: str) -> TopicRoute:
        """Return the topic's route, not older than `route_seconds` if possible.

        Raises:
            NoRouteError: if no broker has the topic.
            UnreachableError: if no name server answers.
        """
        return self._find_route(topic, may_create_topic=False).route

    def queues_to_publish(self, topic: str) -> list[MessageQueue]:
        """Return the queues that a message of the topic may be sent to; never empty.

        If no broker has the topic yet, these are the queues that its first message would create.

        Raises:
            NoRouteError: if there is no such queue.
            UnreachableError: if no name server answers.
        """
        queues = self._find_route(topic, may_create_topic=True).to_publish
        if not queues:
            raise NoRouteError(
                f"topic {topic!r}: expected a queue that can be written to, found none in its route: check the topic's "
                "permission"
            )
        return queues

    def queues_to_read(self, topic: str) -> list[MessageQueue]:
        """Return the queues from which the topic's messages are read.

        Raises:
            NoRouteError: if no broker has the topic.
            UnreachableError: if no name server answers.
        """
        return subscribe_queues(topic, self.route(topic))

    def broker_data(self, broker_name: str) -> BrokerData:
        """Return a broker's addresses by broker id.

        Raises:
            NoRouteError: if no name server knows it.
        """
        if broker_name not in self._brokers:
            self.clusters()
        if broker_name not in self._brokers:
            raise NoRouteError(
                f"broker {broker_name!r} is not known to the name servers: check its name, and whether it is running"
            )
        return self._brokers[broker_name]

    def master_address(self, broker_name: str) -> str:
        """Return the address of a broker's master.

        Raises:
            NoRouteError: if there is none.
        """
        address = self.broker_data(broker_name).master_address
        if address is None:
            raise NoRouteError(
                f"broker {broker_name!r} has no master, only slaves: start its master, then run the command again"
            )
        return address

    def clusters(self) -> ClusterInfo:
        """Return all brokers known to the name servers.

        Raises:
            UnreachableError: if no name server answers.
        """
        if self._directory is not None:
            found = self._directory.clusters()
        else:
            answer = self.ask_name_server(RequestCode.GET_BROKER_CLUSTER_INFO)
            found = answer.body_as(ClusterInfo)
            try:
                check_broker_names("ClusterInfo", found.broker_addr_table)
            except BodyError as error:
                raise ProtocolError(f"{answer.address}: {error}") from None
        self._brokers |= found.broker_addr_table
        return found

    def topics(self) -> list[str]:
        """Return the names of all topics, including system topics.

        Raises:
            UnreachableError: if no name server answers.
        """
        if self._directory is not None:
            return self._directory.topics()
        return sorted(
            self.ask_name_server(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER).body_as(TopicList).topic_list
        )

    def refresh_brokers(self) -> None:
        """Ask for the brokers' addresses again; if no name server answers, keep the known ones."""
        try:
            self.clusters()
        except (UnreachableError, RefusedError) as error:
            _log.warning("cannot query the addresses of the brokers: %s", error)

    def forget_route(self, topic: str) -> None:
        """Discard the cached route of a topic, because it proved to be wrong."""
        self._known.pop(topic, None)

    def _find_route(self, topic: str, *, may_create_topic: bool) -> _CachedRoute:
        known = self._known.get(topic)
        limit = self._network.options.route_seconds
        # A route of a topic that does not exist yet is no answer for readers.
        if known is not None and time.monotonic() - known.asked_at < limit and (may_create_topic or not known.is_model):
            return known
        # With an old route at hand, do not wait for another thread's request.
        if not self._lock.acquire(blocking=known is None or known.is_model):
            assert known is not None
            return known
        try:
            return self._refresh_route(topic, known, may_create_topic=may_create_topic)
        finally:
            self._lock.release()

    def _refresh_route(self, topic: str, cached_route: _CachedRoute | None, *, may_create_topic: bool) -> _CachedRoute:
        is_model = False
        try:
            route = self._fetch_route(topic, topic)
        except NoRouteError:
            if not may_create_topic:
                raise
            is_model, route = True, _route_from_template(self._fetch_route(AUTO_CREATE_TOPIC, topic))
        except UnreachableError:
            if cached_route is None:
                raise
            _log.warning("no name server answers; the route of %s stays as it was", topic)
            is_model, route = cached_route.is_model, cached_route.route
        # The time begins anew also for an old route, so that not every message waits for servers that do not answer.
        found = _CachedRoute(route, publish_queues(topic, route), time.monotonic(), is_model)
        self._known[topic] = found
        return found

    def _fetch_route(self, topic: str, requested_topic: str) -> TopicRoute:
        if self._directory is not None:
            told = self._directory.route(topic)
            if told is None:
                raise NoRouteError(f"topic {requested_topic!r}: none of the given brokers has this topic")
            self._brokers |= {broker.broker_name: broker for broker in told.broker_datas}
            try:
                return check_route(told)
            except BodyError as error:
                raise ProtocolError(str(error)) from None
        try:
            answer = self.ask_name_server(RequestCode.GET_ROUTEINFO_BY_TOPIC, RouteRequest(topic, True))
        except RefusedError as error:
            if error.code != ResponseCode.TOPIC_NOT_EXIST:
                raise
            raise NoRouteError(
                f"topic {requested_topic!r}: expected a topic known to the name servers, found none, and a message "
                "cannot "
                "create it; create the topic"
                if topic != requested_topic
                else f"topic {topic!r}: expected a topic known to the name servers, found none"
            ) from None
        try:
            route = check_route(answer.body_as(TopicRoute))
        except BodyError as error:
            raise ProtocolError(f"{answer.address}: {error}") from None
        for broker in route.broker_datas:
            self._brokers[broker.broker_name] = broker
        return route


def _route_from_template(route: TopicRoute) -> TopicRoute:
    """Return the route that a new topic will get with its first message, based on the topic TBW102."""
    queues = tuple(
        data._replace(
            read_queue_nums=min(DEFAULT_TOPIC_QUEUES, data.read_queue_nums),
            write_queue_nums=min(DEFAULT_TOPIC_QUEUES, data.read_queue_nums),
        )
        for data in route.queue_datas
    )
    return route._replace(queue_datas=queues)
