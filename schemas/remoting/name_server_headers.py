"""Headers of requests to a name server, and of its answers; see headers.py."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from commitlake.schemas.remoting.ext_fields import ExtFieldName, Long


class RouteRequest(NamedTuple):
    """Header of GET_ROUTEINFO_BY_TOPIC (105), which asks for the route of a topic."""

    topic: str
    accept_standard_json_only: bool | None = None


class RegisterBrokerRequest(NamedTuple):
    """Header of REGISTER_BROKER (103), which registers a broker.

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
    zone_name: Annotated[str | None, ExtFieldName("__ZONE_NAME")] = None


class RegisterBrokerResponse(NamedTuple):
    """Header of the answer to REGISTER_BROKER (103): for a slave, the addresses of its master."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


class BrokerRequest(NamedTuple):
    """Header of UNREGISTER_BROKER (104) and QUERY_DATA_VERSION (322)."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Long


class DataVersionResponse(NamedTuple):
    """Header of the answer to QUERY_DATA_VERSION (322); the body is the data version that the name server has."""

    changed: bool


class ClusterRequest(NamedTuple):
    """Header of GET_TOPICS_BY_CLUSTER (224), which asks for the topics of a cluster."""

    cluster: str


class DeleteTopicInNameServerRequest(NamedTuple):
    """Header of DELETE_TOPIC_IN_NAMESRV (216), which deletes a topic."""

    topic: str
    cluster_name: str | None = None


class PutKvRequest(NamedTuple):
    """Header of PUT_KV_CONFIG (100), which stores a setting."""

    namespace: str
    key: str
    value: str


class KvRequest(NamedTuple):
    """Header of GET_KV_CONFIG (101) and DELETE_KV_CONFIG (102)."""

    namespace: str
    key: str


class KvResponse(NamedTuple):
    """Header of the answer to GET_KV_CONFIG (101)."""

    value: str | None = None


class NamespaceRequest(NamedTuple):
    """Header of GET_KVLIST_BY_NAMESPACE (219), which asks for the settings of a namespace."""

    namespace: str


class WritePermissionRequest(NamedTuple):
    """Header of WIPE_WRITE_PERM_OF_BROKER (205) and ADD_WRITE_PERM_OF_BROKER (327)."""

    broker_name: str


class WipeWritePermissionResponse(NamedTuple):
    """Header of the answer to WIPE_WRITE_PERM_OF_BROKER (205)."""

    wipe_topic_count: int


class AddWritePermissionResponse(NamedTuple):
    """Header of the answer to ADD_WRITE_PERM_OF_BROKER (327)."""

    add_topic_count: int
