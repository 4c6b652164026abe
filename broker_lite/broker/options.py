"""Settings of a broker; names and defaults follow RocketMQ's BrokerConfig, with units."""

from __future__ import annotations

import os
from dataclasses import dataclass

from commitlake.broker_lite.stores.rocketmq.options import DEFAULT_STORE_HOST
from commitlake.schemas.layouts.rocketmq.hosts import Host
from commitlake.schemas.layouts.rocketmq.properties import CLUSTER, REGION, TRACE_ON

_IN_MEMORY_BYTES = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * 2 // 5


@dataclass(frozen=True, slots=True)
class BrokerOptions:
    """Settings of a broker.

    Attributes:
        cluster: name of the cluster.
        name: name of the broker; a master and its slaves share it.
        broker_id: 0 for a master.
        role: ASYNC_MASTER, SYNC_MASTER or SLAVE, as reported to clients.
        address: address at which clients reach the broker.
        ha_address: address from which slaves copy the log.
        slave_read: whether consumers with a large lag are redirected to a slave, if their group's settings allow it.
        in_memory_bytes: size of the log's end that RocketMQ assumes to be in memory; consumers of older messages lag.
        auto_create_topics: whether a send to an unknown topic creates it, with TBW102 as template.
        auto_create_groups: whether consumers of an unknown group create it.
        max_topics: maximum number of topics; retry and dead-letter topics count, too. The limit keeps a registration
            with a name server within one frame.
        max_groups: maximum number of consumer groups.
        trace_topic: whether the topic for traces of clients exists.
        sync_flush: whether an answer to a send waits for the disk.
        client_timeout_ms: time without a heartbeat after which a client is removed.
        max_transfer_messages: maximum number of messages in an answer to a pull.
        max_transfer_bytes: maximum size of an answer to a pull; a single larger message is still sent.
        long_poll_check_ms: interval between checks for held pulls past their deadline.
        transaction_timeout_ms: age at which a half message is first checked with its producer.
        transaction_check_interval_ms: time between two checks.
        transaction_check_max: number of checks after which a half message is discarded.
        timer_max_delay_ms: longest delay of a message.
        region: region of the broker, named in answers and messages.
    """

    cluster: str = "DefaultCluster"
    name: str = "broker-a"
    broker_id: int = 0
    role: str = "ASYNC_MASTER"
    address: Host = DEFAULT_STORE_HOST
    ha_address: str = ""
    slave_read: bool = False
    in_memory_bytes: int = _IN_MEMORY_BYTES
    auto_create_topics: bool = True
    auto_create_groups: bool = True
    max_topics: int = 20_000
    max_groups: int = 10_000
    trace_topic: bool = True
    sync_flush: bool = False
    client_timeout_ms: int = 120_000
    max_transfer_messages: int = 32
    max_transfer_bytes: int = 256 << 10
    long_poll_check_ms: int = 1_000
    transaction_timeout_ms: int = 6_000
    transaction_check_interval_ms: int = 30_000
    transaction_check_max: int = 15
    timer_max_delay_ms: int = 3 * 86_400_000
    region: str = "DefaultRegion"

    def added_properties(self) -> dict[str, str]:
        """Return the properties that a 5.x broker adds to each message it stores."""
        return {CLUSTER: self.cluster, REGION: self.region, TRACE_ON: "true"}
