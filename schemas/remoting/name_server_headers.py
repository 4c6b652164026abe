"""Headers of requests to a name server, and of its answers; see headers.py."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from commitlake.schemas.remoting.ext_fields import Key, Long


class RouteRequest(NamedTuple):
    """Header of 105, which asks for the route of a topic."""

    topic: str
    accept_standard_json_only: bool | None = None


class RegisterBrokerRequest(NamedTuple):
    """Header of 103, which registers a broker.

    Attributes:
        broker_addr: `ip:port` for clients.
        broker_id: 0 is the master.
        compressed: whether the body is the compressed form.
        body_crc32: CRC-32 & 0x7FFFFFFF of the body as sent; 0 if it is not checked.
    """

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: Long
    compressed: bool = False
    body_crc32: int = 0
    heartbeat_timeout_millis: Long | None = None
    enable_acting_master: bool | None = None
    zone_name: Annotated[str | None, Key("__ZONE_NAME")] = None


class RegisterBrokerResponse(NamedTuple):
    """Header of the answer to 103: for a slave, the addresses of its master."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


class BrokerRequest(NamedTuple):
    """Header of 104 and 322."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Long


class DataVersionResponse(NamedTuple):
    """Header of the answer to 322; the body is the data version that the name server has."""

    changed: bool


class ClusterRequest(NamedTuple):
    """Header of 224, which asks for the topics of a cluster."""

    cluster: str


class DeleteTopicInNameServerRequest(NamedTuple):
    """Header of 216, which deletes a topic."""

    topic: str
    cluster_name: str | None = None


class PutKvRequest(NamedTuple):
    """Header of 100, which stores a setting."""

    namespace: str
    key: str
    value: str


class KvRequest(NamedTuple):
    """Header of 101 and 102."""

    namespace: str
    key: str


class KvResponse(NamedTuple):
    """Header of the answer to 101."""

    value: str | None = None


class NamespaceRequest(NamedTuple):
    """Header of 219, which asks for the settings of a namespace."""

    namespace: str


class WritePermissionRequest(NamedTuple):
    """Header of 205 and 327."""

    broker_name: str


class WipeWritePermissionResponse(NamedTuple):
    """Header of the answer to 205."""

    wipe_topic_count: int


class AddWritePermissionResponse(NamedTuple):
    """Header of the answer to 327."""

    add_topic_count: int
