"""Settings of replication; names and defaults follow RocketMQ's MessageStoreConfig, with units."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from ipaddress import IPv4Network, IPv6Network

from commitlake.broker_lite.replication.peer_client import PeerClientOptions
from commitlake.broker_lite.replication.protocol import DEFAULT_BATCH_BYTES


class Role(StrEnum):
    """Role of a broker, as in RocketMQ's setting `brokerRole`."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


@dataclass(frozen=True, slots=True)
class ReplicationOptions:
    """Settings for the replication of a broker's log.

    Attributes:
        role: role of the broker; a SYNC_MASTER answers a send after a slave has the message.
        listen: address on which a master accepts slaves; None for no slaves.
        allowed: networks that slaves may connect from; empty for all networks: then anybody who can connect can read
            the whole log, and make a SYNC_MASTER believe that a slave has it.
        master: address of the master's log (`haMasterAddress`); None if a name server provides it.
        heartbeat_seconds: longest silence of either side (`haSendHeartbeatInterval`).
        housekeeping_seconds: silence after which the connection is closed (`haHousekeepingInterval`).
        batch_bytes: size of a transfer (`haTransferBatchSize`).
        slave_timeout_ms: how long an answer waits for a slave (`slaveTimeout`).
        max_gap_bytes: lag beyond which a slave is not waited for (`haMaxGapNotInSync`, `haSlaveFallbehindMax`).
        retry_seconds: pause before a slave reconnects.
        synchronize_seconds: interval at which a slave copies topics, groups and offsets.
        connections: maximum number of slaves.
        connections_of_one: maximum number of slaves from one address.
        asking: security of requests to name servers and the master; the log itself is copied in plain text.
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
    asking: PeerClientOptions = field(default_factory=PeerClientOptions)
