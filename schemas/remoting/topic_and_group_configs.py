"""Settings of topics and consumer groups, as brokers store them and register them at name servers.

Source: TopicConfig, SubscriptionGroupConfig, DataVersion, RegisterBrokerBody (5.5.0).
"""

from __future__ import annotations

from typing import NamedTuple

from commitlake.schemas.remoting.ext_fields import Long


class DataVersion(NamedTuple):
    """Version of a table of topics or groups, which increases with every change.

    Attributes:
        timestamp: time of the last change, ms since 1970.
    """

    timestamp: Long = 0
    counter: Long = 0
    state_version: Long = 0


class TopicConfig(NamedTuple):
    """Settings of a topic.

    Attributes:
        perm: 4 read, 2 write, 1 inherit.
    """

    topic_name: str
    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = 6
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: int = 0
    order: bool = False
    attributes: dict[str, str] | None = None


class TopicConfigs(NamedTuple):
    """Body of GET_ALL_TOPIC_CONFIG (21), and part of a registration."""

    topic_config_table: dict[str, TopicConfig] = {}  # noqa: RUF012
    data_version: DataVersion = DataVersion()


class RegisterBrokerBody(NamedTuple):
    """Body of REGISTER_BROKER (103), uncompressed."""

    topic_config_serialize_wrapper: TopicConfigs = TopicConfigs()
    filter_server_list: tuple[str, ...] = ()


class SubscriptionGroupConfig(NamedTuple):
    """Settings of a consumer group."""

    group_name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    broker_id: Long = 0
    which_broker_when_consume_slowly: Long = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: int = 0
    consume_timeout_minute: int = 15


class SubscriptionGroups(NamedTuple):
    """Body of GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201)."""

    subscription_group_table: dict[str, SubscriptionGroupConfig] = {}  # noqa: RUF012
    data_version: DataVersion = DataVersion()
