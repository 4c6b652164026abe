"""Settings of a broker; names and defaults are those of RocketMQ's BrokerConfig, with units."""

from __future__ import annotations

import os
from dataclasses import dataclass

from commitlake.broker_lite.stores.rocketmq.options import DEFAULT_STORE_HOST
from commitlake.schemas.layouts.rocketmq.hosts import Host

_IN_MEMORY_BYTES = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * 2 // 5


@dataclass(frozen=True, slots=True)
class BrokerOptions:
    """How a broker behaves.

    Attributes:
        cluster: name of its cluster.
        name: its own; masters and slaves that belong together share it.
        broker_id: 0 for a master.
        role: ASYNC_MASTER, SYNC_MASTER or SLAVE, for those who ask.
        address: where clients reach it.
        ha_address: where slaves get its log.
        slave_read: whether consumers that are far behind are sent to a slave, as their group's settings say.
        in_memory_bytes: what is written after a message before RocketMQ takes it for no longer in memory.
        auto_create_topics: whether a send to an unknown topic makes it, after the model of TBW102.
        auto_create_groups: whether consumers of an unknown group make it.
        max_topics: how many topics there may be; retries and dead letters of a group are topics, too. The limit keeps a
            registration with a name server within one frame.
        max_groups: how many consumer groups there may be.
        trace_topic: whether there is a topic for the clients' traces.
        sync_flush: whether an answer to a send waits for the disk.
        client_timeout_ms: after this long without a heartbeat a client is gone.
        max_transfer_messages: most messages in an answer to a pull.
        max_transfer_bytes: most bytes of messages in an answer to a pull, but for a single larger message.
        long_poll_check_ms: how often pulls that wait are looked at for being late.
        transaction_timeout_ms: age at which a half message is checked first.
        transaction_check_interval_ms: time between two checks.
        transaction_check_max: checks after which a half message is given up.
        timer_max_delay_ms: the furthest that a message may be delayed.
        region: what answers and messages say of where the broker is.
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
