"""The arguments of what is asked of a name server, and of its answers; see headers.py."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from commitlake.schemas.remoting.ext_fields import Key, Long


class RouteRequest(NamedTuple):
    """105."""

    topic: str
    accept_standard_json_only: bool | None = None


class RegisterBrokerRequest(NamedTuple):
    """103.

    Attributes:
        broker_addr: `ip:port` for clients.
        broker_id: 0 is the master.
        compressed: whether the body is the compressed form.
        body_crc32: CRC-32 & 0x7FFFFFFF of the body as sent; 0 says nothing.
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
    """Of 103: for a slave, where its master is."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


class BrokerRequest(NamedTuple):
    """104 and 322."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Long


class DataVersionResponse(NamedTuple):
    """Of 322; the body is the data version that the name server has."""

    changed: bool


class ClusterRequest(NamedTuple):
    """224."""

    cluster: str


class DeleteTopicInNameServerRequest(NamedTuple):
    """216."""

    topic: str
    cluster_name: str | None = None


class PutKvRequest(NamedTuple):
    """100."""

    namespace: str
    key: str
    value: str


class KvRequest(NamedTuple):
    """101 and 102."""

    namespace: str
    key: str


class KvResponse(NamedTuple):
    """Of 101."""

    value: str | None = None


class NamespaceRequest(NamedTuple):
    """219."""

    namespace: str


class WritePermissionRequest(NamedTuple):
    """205 and 327."""

    broker_name: str


class WipeWritePermissionResponse(NamedTuple):
    """Of 205."""

    wipe_topic_count: int


class AddWritePermissionResponse(NamedTuple):
    """Of 327."""

    add_topic_count: int
