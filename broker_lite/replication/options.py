"""Settings of replication; names and defaults are those of RocketMQ's MessageStoreConfig, with units."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from ipaddress import IPv4Network, IPv6Network

from commitlake.broker_lite.replication.asking import AskingOptions
from commitlake.broker_lite.replication.protocol import DEFAULT_BATCH_BYTES


class Role(StrEnum):
    """What a broker is: `brokerRole`."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


@dataclass(frozen=True, slots=True)
class ReplicationOptions:
    """How a broker's log is copied.

    Attributes:
        role: what the broker is; an answer of a SYNC_MASTER to a send waits for a slave.
        listen: where a master gives its log to slaves; None for nowhere.
        allowed: networks that slaves may come from; empty for everywhere: whoever can connect can then read all of the
            log, and lets a SYNC_MASTER believe that a slave has it.
        master: where a slave gets the log (`haMasterAddress`); None for the place that a name server tells.
        heartbeat_seconds: the longest time without a word from either side (`haSendHeartbeatInterval`).
        housekeeping_seconds: after this long without a word the other side is gone (`haHousekeepingInterval`).
        batch_bytes: what a master sends at once (`haTransferBatchSize`).
        slave_timeout_ms: how long an answer waits for a slave (`slaveTimeout`).
        max_gap_bytes: a slave that is further behind is not waited for (`haMaxGapNotInSync`, `haSlaveFallbehindMax`).
        retry_seconds: after this long a slave connects again.
        synchronize_seconds: how often a slave asks for topics, groups and offsets.
        connections: slaves that a master has at once.
        connections_of_one: those of them from one address.
        asking: how this broker asks name servers and its master; the log itself is copied in plain text.
    """

    role: Role = Role.ASYNC_MASTER
    listen: tuple[str, int] | None = None
    allowed: tuple[IPv4Network | IPv6Network, ...] = ()
    master: tuple[str, int] | None = None
    heartbeat_seconds: float = 5.0
    housekeeping_seconds: float = 20.0
    batch_bytes: int = DEFAULT_BATCH_BYTES
    slave_timeout_ms: int = 3_000
    max_gap_bytes: int = 256 << 20
    retry_seconds: float = 5.0
    synchronize_seconds: float = 10.0
    connections: int = 16
    connections_of_one: int = 4
    asking: AskingOptions = field(default_factory=AskingOptions)
