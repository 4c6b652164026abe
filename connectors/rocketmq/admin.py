"""Administration of brokers and name servers, like RocketMQ's command mqadmin.

    with Admin(ClientOptions("127.0.0.1:9876")) as admin:
        admin.create_topic("orders", queues=8)
        behind = sum(queue.lag for queue in admin.consume_stats("shipping").values())

The client is thread-safe; see `Admin`.
"""

from __future__ import annotations

from typing import NamedTuple

from commitlake.connectors.rocketmq.errors import NoRouteError, RefusedError
from commitlake.connectors.rocketmq.message_lookup import MessageLookup
from commitlake.connectors.rocketmq.network import Closable, Network, PeerAnswer
from commitlake.connectors.rocketmq.options import ClientOptions
from commitlake.connectors.rocketmq.producers.messages import check_group, check_topic
from commitlake.connectors.rocketmq.queue_offsets import QueueOffsets
from commitlake.connectors.rocketmq.routing import Routing
from commitlake.schemas.layouts.rocketmq.commitlog import Message
from commitlake.schemas.layouts.rocketmq.topics import AUTO_CREATE_TOPIC
from commitlake.schemas.remoting.admin_headers import (
    ConsumeStatsRequest,
    CreateTopicRequest,
    DeleteGroupRequest,
    ProducerGroupRequest,
    ResetOffsetRequest,
    TopicRequest,
)
from commitlake.schemas.remoting.codes import RequestCode, ResponseCode
from commitlake.schemas.remoting.headers import ConsumerGroupRequest, ViewMessageRequest
from commitlake.schemas.remoting.heartbeats import ConsumerConnection, ConsumerList, ProducerConnection
from commitlake.schemas.remoting.json_fields import serialize_body
from commitlake.schemas.remoting.name_server_headers import DeleteTopicInNameServerRequest
from commitlake.schemas.remoting.routes import ClusterInfo, KvTable, MessageQueue, TopicRoute
from commitlake.schemas.remoting.signing import Credentials
from commitlake.schemas.remoting.statistics_bodies import (
    ConsumerOffsetTable,
    ConsumeStats,
    DelayOffsetTable,
    GroupList,
    QueueOffsetPair,
    TopicStats,
)
from commitlake.schemas.remoting.topic_and_group_configs import (
    SubscriptionGroupConfig,
    SubscriptionGroups,
    TopicConfig,
    TopicConfigs,
)


class Admin(Closable):
    """A thread-safe client for the administration of topics, groups and brokers.

    Every method raises NoRouteError, UnreachableError, RefusedError and ProtocolError.

    Attributes:
        offsets: client for the offsets of queues, and of groups in them.
        routing: routes.
    """

    def __init__(self, options: ClientOptions, credentials: Credentials | None = None) -> None:
        """Create the client without connecting.

        Args:
            options: addresses, time limits and other settings.
            credentials: keys that sign requests; by default those in the environment.
        """
        self._network = Network(options, credentials)
        self.routing = Routing(self._network)
        self.offsets = QueueOffsets(self._network, self.routing)
        self._lookup = MessageLookup(self._network, self.routing)

    def close(self) -> None:
        """Close all connections."""
        self._network.close()

    # --- clusters, topics and groups ---

    def clusters(self) -> ClusterInfo:
        """Return all brokers, and the cluster of each."""
        return self.routing.clusters()

    def topics(self) -> list[str]:
        """Return the names of all topics, including system topics."""
        return self.routing.topics()

    def route(self, topic: str) -> TopicRoute:
        """Return the route of a topic: its brokers and queues."""
        return self.routing.route(topic)

    def topic_configs(self, broker_name: str) -> dict[str, TopicConfig]:
        """Return all topics of a broker, by name."""
        return self._ask_master(broker_name, RequestCode.GET_ALL_TOPIC_CONFIG).body_as(TopicConfigs).topic_config_table

    def create_topic(
        self,
        topic: str,
        queue_count: int = 8,
        *,
        perm: int = 6,
        cluster: str | None = None,
        is_ordered: bool = False,
        attributes: str | None = None,
    ) -> None:
        """Create a topic, or change an existing one.

        Args:
            topic: name of the topic.
            queue_count: number of queues at each broker.
            perm: permissions: the sum of 4 (read) and 2 (write).
            cluster: the cluster whose brokers get the topic; by default all.
            is_ordered: whether consumers should treat the topic as ordered.
            attributes: attributes of 5.x, as `+name=value,-name`.

        Raises:
            InvalidMessageError: if the name is not valid.
        """
        header = CreateTopicRequest(
            check_topic(topic), AUTO_CREATE_TOPIC, queue_count, queue_count, perm, topic_sys_flag=0, order=is_ordered,
            attributes=attributes,
        )  # fmt: skip
        for address in self._master_addresses(cluster):
            self._network.send_and_wait(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)
        self.routing.forget_route(topic)

    def delete_topic(self, topic: str, *, cluster: str | None = None) -> None:
        """Delete a topic on all brokers and name servers."""
        for address in self._master_addresses(cluster):
            self._network.send_and_wait(address, RequestCode.DELETE_TOPIC_IN_BROKER, TopicRequest(topic))
        header = DeleteTopicInNameServerRequest(topic, cluster)
        for address in self._network.options.name_server_addresses:
            self._network.send_and_wait(address, RequestCode.DELETE_TOPIC_IN_NAMESRV, header)
        self.routing.forget_route(topic)

    def groups(self, broker_name: str) -> dict[str, SubscriptionGroupConfig]:
        """Return all consumer groups of a broker, by name."""
        answer = self._ask_master(broker_name, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        return answer.body_as(SubscriptionGroups).subscription_group_table

    def create_group(self, config: SubscriptionGroupConfig, *, cluster: str | None = None) -> None:
        """Create a consumer group, or change an existing one.

        Raises:
            InvalidMessageError: if the name is not valid.
        """
        check_group(config.group_name)
        for address in self._master_addresses(cluster):
            self._network.send_and_wait(
                address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, serialize_body(config)
            )

    def delete_group(self, group: str, *, deletes_offsets: bool = False, cluster: str | None = None) -> None:
        """Delete a consumer group on all brokers."""
        for address in self._master_addresses(cluster):
            header = DeleteGroupRequest(group, deletes_offsets)
            self._network.send_and_wait(address, RequestCode.DELETE_SUBSCRIPTIONGROUP, header)

    # --- clients and progress ---

    def runtime_info(self, broker_name: str) -> dict[str, str]:
        """Return a broker's runtime statistics, under RocketMQ's names."""
        return self._ask_master(broker_name, RequestCode.GET_BROKER_RUNTIME_INFO).body_as(KvTable).table

    def broker_topic_stats(self, topic: str, broker_name: str) -> TopicStats | None:
        """Return the offsets of all queues of a topic at one broker; None if the broker does not have the topic.

        This does not use a route from a name server, which may not know a new topic yet.
        """
        accepted = (ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST)
        answer = self._network.send_and_wait(
            self.routing.master_address(broker_name),
            RequestCode.GET_TOPIC_STATS_INFO,
            TopicRequest(topic),
            accepted_codes=accepted,
        )
        return answer.body_as(TopicStats) if answer.code == ResponseCode.SUCCESS else None

    def consume_stats(self, group: str, topic: str | None = None) -> dict[MessageQueue, QueueOffsetPair]:
        """Return a group's offsets in each queue of its topics, on all brokers."""
        table = {}
        for broker_name in self.clusters().broker_addr_table:
            answer = self._ask_master(broker_name, RequestCode.GET_CONSUME_STATS, ConsumeStatsRequest(group, topic))
            table.update(answer.body_as(ConsumeStats).offset_table)
        return table

    def all_group_offsets(self, broker_name: str) -> ConsumerOffsetTable:
        """Return the offsets of all groups in all queues of a broker, by `topic@group`."""
        return self._ask_master(broker_name, RequestCode.GET_ALL_CONSUMER_OFFSET).body_as(ConsumerOffsetTable)

    def delay_offsets(self, broker_name: str) -> DelayOffsetTable:
        """Return, for each delay level of a broker, the offset up to which messages have been delivered."""
        return self._ask_master(broker_name, RequestCode.GET_ALL_DELAY_OFFSET).body_as(DelayOffsetTable)

    def groups_of_topic(self, topic: str) -> list[str]:
        """Return the groups that consume a topic."""
        found: set[str] = set()
        for broker in self.routing.route(topic).broker_datas:
            answer = self._ask_master(broker.broker_name, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, TopicRequest(topic))
            found.update(answer.body_as(GroupList).group_list)
        return sorted(found)

    def consumer_ids(self, group: str, broker_name: str) -> list[str]:
        """Return the ids of a group's clients at a broker; empty if there are none."""
        try:
            answer = self._ask_master(broker_name, RequestCode.GET_CONSUMER_LIST_BY_GROUP, ConsumerGroupRequest(group))
        except RefusedError as error:
            if error.code == ResponseCode.SYSTEM_ERROR:  # the answer of a broker without clients of the group
                return []
            raise
        return list(answer.body_as(ConsumerList).consumer_id_list)

    def consumer_connections(self, group: str, broker_name: str) -> ConsumerConnection:
        """Return a group's clients at a broker, and their subscriptions."""
        answer = self._ask_master(broker_name, RequestCode.GET_CONSUMER_CONNECTION_LIST, ConsumerGroupRequest(group))
        return answer.body_as(ConsumerConnection)

    def broker_config(self, broker_name: str) -> dict[str, str]:
        """Return a broker's settings, under RocketMQ's names."""
        text = self._ask_master(broker_name, RequestCode.GET_BROKER_CONFIG).body.decode("utf-8", "replace")
        pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
        return {name.strip(): value.strip() for name, _, value in pairs}

    def producer_connections(self, group: str, broker_name: str) -> ProducerConnection:
        """Return a producer group's clients at a broker."""
        answer = self._ask_master(broker_name, RequestCode.GET_PRODUCER_CONNECTION_LIST, ProducerGroupRequest(group))
        return answer.body_as(ProducerConnection)

    def reset_queue_offset(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Make a broker set a group's offset in one queue, for current and future clients.

        This requires the broker's setting useServerSideResetOffset; without it, the broker resets the whole topic.
        """
        header = ResetOffsetRequest(queue.topic, group, 0, True, offset, queue.queue_id)
        self._ask_master(queue.broker_name, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)

    # --- messages ---

    def query_by_key(
        self, topic: str, key: str, *, begin_ms: int = 0, end_ms: int | None = None, max_messages: int = 64
    ) -> list[Message]:
        """Return the messages of a topic with a business key, in the order in which they were stored.

        Args:
            topic: topic of the messages.
            key: one of their keys.
            begin_ms: earliest store time, ms since 1970.
            end_ms: latest store time, inclusive; by default no limit.
            max_messages: maximum number of messages from each broker.
        """
        return self._lookup.by_key(topic, key, begin_ms, end_ms, max_messages)

    def view_message(self, msg_id: str) -> Message:
        """Return the message with an offset message id; raise NoRouteError if the id's broker is not known."""
        return self._lookup.view_message(msg_id)

    def record_at(self, broker_name: str, physical_offset: int) -> bytes | None:
        """Return the stored record at a physical offset; None if the broker reports that there is none."""
        try:
            return self._ask_master(
                broker_name, RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequest(physical_offset)
            ).body
        except RefusedError as error:
            if error.code == ResponseCode.SYSTEM_ERROR:  # the answer of a broker without such a record
                return None
            raise

    def _ask_master(self, broker_name: str, code: RequestCode, header: NamedTuple | None = None) -> PeerAnswer:
        return self._network.send_and_wait(self.routing.master_address(broker_name), code, header)

    def _master_addresses(self, cluster: str | None) -> list[str]:
        info = self.clusters()
        if cluster is not None and cluster not in info.cluster_addr_table:
            known = ", ".join(sorted(info.cluster_addr_table)) or "none"
            raise NoRouteError(f"there is no cluster {cluster!r}: expected one of {known}")
        names = info.broker_addr_table if cluster is None else info.cluster_addr_table[cluster]
        found = [info.broker_addr_table[name].master_address for name in names if name in info.broker_addr_table]
        masters = [address for address in found if address is not None]
        if not masters:
            raise NoRouteError("the name servers know no broker with a master: expected at least one")
        return masters
