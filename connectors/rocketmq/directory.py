"""Routes of topics and addresses of brokers, requested from given brokers instead of a name server."""

from __future__ import annotations

from collections.abc import Sequence

from commitlake.connectors.rocketmq.errors import ProtocolError
from commitlake.connectors.rocketmq.network import Network
from commitlake.schemas.layouts.numbers import parse_int64
from commitlake.schemas.remoting.codes import RequestCode
from commitlake.schemas.remoting.configs import TopicConfig, TopicConfigs
from commitlake.schemas.remoting.routes import BrokerData, ClusterInfo, QueueData, TopicRoute


class BrokerDirectory:
    """A thread-safe directory; every method raises UnreachableError, RefusedError and ProtocolError.

    Args:
        network: network of the client.
        addresses: `host:port` of each broker, a master or a slave.
    """

    def __init__(self, network: Network, addresses: Sequence[str]) -> None:
        self._network = network
        self._addresses = addresses

    def clusters(self) -> ClusterInfo:
        """Return the brokers by their own names, with the addresses at which they were asked."""
        brokers: dict[str, BrokerData] = {}
        clusters: dict[str, list[str]] = {}
        for address in self._addresses:
            name, broker_id, cluster = self._read_identity(address)
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
        return self._network.call(address, RequestCode.GET_ALL_TOPIC_CONFIG).value(TopicConfigs).topic_config_table

    def _read_identity(self, address: str) -> tuple[str, int, str]:
        """Return a broker's name, id and cluster."""
        text = self._network.call(address, RequestCode.GET_BROKER_CONFIG).body.decode("utf-8", "replace")
        settings = dict(line.partition("=")[::2] for line in text.splitlines())
        name, number = settings.get("brokerName", ""), parse_int64(settings.get("brokerId", ""))
        if not name or number is None:
            raise ProtocolError(
                f"{address}: expected a broker that gives its brokerName and brokerId, found {name[:100]!r} and "
                f"{settings.get('brokerId', 'none')[:100]!r}"
            )
        return name, number, settings.get("brokerClusterName", "")
