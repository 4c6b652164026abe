"""Request handlers of the name server. Source: DefaultRequestProcessor, ClientRequestProcessor (5.5.0).

Unlike RocketMQ's, this name server can have accounts: everybody may query it, but only brokers with an account may
register, and only administrators may change anything else; without accounts, changes must come from this machine. The
broker of this process is protected: no other broker can replace it.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Generator

from commitlake.broker_lite.broker.accounts import ADMINISTRATION, REGISTRATION, Accounts, check_admin_request_is_local
from commitlake.broker_lite.nameserver.routes import (
    BrokerKey,
    RouteTable,
    broker_key,
    check_filter_servers,
    check_registration_names,
    check_topic,
    check_topic_count,
    topic_queues,
)
from commitlake.broker_lite.protocol import Channel
from commitlake.broker_lite.protocol.large_answer_bodies import serialize_list_body
from commitlake.schemas.layouts.rocketmq.commitlog import CRC_MASK
from commitlake.schemas.remoting.codes import RequestCode, ResponseCode
from commitlake.schemas.remoting.errors import CommandError, NotPermittedError
from commitlake.schemas.remoting.ext_fields import from_ext_fields, to_ext_fields
from commitlake.schemas.remoting.frames import Command, Version
from commitlake.schemas.remoting.json_fields import parse_body, serialize_body
from commitlake.schemas.remoting.name_server_headers import (
    AddWritePermissionResponse,
    BrokerRequest,
    ClusterRequest,
    DataVersionResponse,
    DeleteTopicInNameServerRequest,
    KvRequest,
    KvResponse,
    NamespaceRequest,
    PutKvRequest,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    RouteRequest,
    WipeWritePermissionResponse,
    WritePermissionRequest,
)
from commitlake.schemas.remoting.registration import RegistrationReader
from commitlake.schemas.remoting.routes import KvTable, QueueData, TopicList, TopicRoute
from commitlake.schemas.remoting.topic_and_group_configs import DataVersion, TopicConfigs

ORDER_TOPIC_NAMESPACE = "ORDER_TOPIC_CONFIG"
MAX_SETTINGS = 10_000
MAX_SETTING_LENGTH = 8192
"""Limit against abuse, which RocketMQ lacks. A namespace counts as a setting, too."""
MAX_SETTINGS_LENGTH = 1 << 20
"""Characters of all settings together; a registering broker receives some of them."""
MAX_DATA_VERSION_BYTES = 4096
_CRC_BYTES = 1 << 20
_FAQ = "See the broker's autoCreateTopicEnable"


Answering = Generator[None, None, Command]
"""Generator that computes a slow answer; it yields between steps of at most a few milliseconds."""

_logger = logging.getLogger(__name__)


class NameServer:
    """Name server without sockets: it keeps the routes of brokers, and answers requests with them.

    Attributes:
        routes: registered brokers and their topics.
    """

    def __init__(self, clock: Callable[[], int], accounts: Accounts | None = None) -> None:
        """Create a name server that knows no broker.

        Args:
            clock: returns ms since 1970.
            accounts: accounts that may register brokers and change routes; None for no accounts.
        """
        self.routes = RouteTable()
        self._clock = clock
        self._accounts = accounts
        self._kv: dict[str, dict[str, str]] = {}
        self._kv_length = 0
        self._handlers: dict[int, Callable[[Channel, Command], Command | Answering]] = {
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self._get_route,
            RequestCode.GET_BROKER_CLUSTER_INFO: self._get_clusters,
            RequestCode.REGISTER_BROKER: self._register_broker,
            RequestCode.UNREGISTER_BROKER: self._unregister_broker,
            RequestCode.QUERY_DATA_VERSION: self._query_data_version,
            RequestCode.BROKER_HEARTBEAT: self._note_broker_heartbeat,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self._get_all_topics,
            RequestCode.GET_TOPICS_BY_CLUSTER: self._get_topics_of_cluster,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self._get_system_topics,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self._delete_topic,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self._wipe_write_permission,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self._add_write_permission,
            RequestCode.PUT_KV_CONFIG: self._put_kv_config,
            RequestCode.GET_KV_CONFIG: self._get_kv_config,
            RequestCode.DELETE_KV_CONFIG: self._delete_kv_config,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self._get_kv_namespace,
        }

    def handle(self, channel: Channel, request: Command) -> Command | Answering:
        """Return the answer to a request, or a generator that computes it in steps."""
        handler = self._handlers.get(request.code)
        if handler is None:
            return request.reply(
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=f"request type {request.code} not supported"
            )
        try:
            if self._accounts is None:
                check_admin_request_is_local(request, channel)
            elif request.code in ADMINISTRATION | REGISTRATION:
                self._accounts.check_request(request, channel)
            answer = handler(channel, request)
        except Exception as error:  # noqa: BLE001 (it is answered and logged)
            return _error_answer(channel, request, error)
        return answer if isinstance(answer, Command) else self._convert_errors_to_answers(channel, request, answer)

    @staticmethod
    def _convert_errors_to_answers(channel: Channel, request: Command, answer_steps: Answering) -> Answering:
        try:
            return (yield from answer_steps)
        except Exception as error:  # noqa: BLE001 (it is answered and logged)
            return _error_answer(channel, request, error)

    def register_local_broker(self, request: RegisterBrokerRequest, topics: TopicConfigs) -> None:
        """Register the broker that runs in this process, and needs no connection."""
        self.routes.register_local_broker(request, topics, self._clock())

    def on_connection_lost(self, channel: Channel) -> None:
        """Remove the brokers that registered over a closed connection."""
        self.routes.remove_brokers_of_connection(channel)

    def run_periodic_work(self) -> None:
        """Remove the brokers whose heartbeats have timed out; call this every few seconds."""
        self.routes.remove_expired_brokers(self._clock())

    def _get_route(self, _channel: Channel, request: Command) -> Command:
        header = from_ext_fields(RouteRequest, request.ext_fields)
        route = self.routes.topic_route(header.topic)
        if route is None:
            remark = f"No topic route info in name server for the topic: {header.topic}. {_FAQ}"
            return request.reply(ResponseCode.TOPIC_NOT_EXIST, remark=remark)
        order = self._kv.get(ORDER_TOPIC_NAMESPACE, {}).get(header.topic)
        standard = bool(header.accept_standard_json_only) or request.version >= Version.V4_9_4
        body = serialize_body(_set_order_config(route, order), is_standard_json=standard)
        return request.reply(ResponseCode.SUCCESS, body=body)

    def _get_clusters(self, _channel: Channel, request: Command) -> Command:
        return request.reply(ResponseCode.SUCCESS, body=serialize_body(self.routes.cluster_info()))

    def _register_broker(self, channel: Channel, request: Command) -> Answering:
        header = from_ext_fields(RegisterBrokerRequest, request.ext_fields)
        check_registration_names(header)
        self._check_is_not_local_broker(broker_key(header))
        crc = 0
        # 0 stands for no checksum: the sum of no bytes is then equal to it.
        for start in range(0, len(request.body) if header.body_crc32 else 0, _CRC_BYTES):
            crc = zlib.crc32(request.body[start : start + _CRC_BYTES], crc)
            yield
        if crc & CRC_MASK != header.body_crc32:
            return request.reply(ResponseCode.SYSTEM_ERROR, remark="crc32 not match")
        reader = RegistrationReader(request.body, compressed=header.compressed)
        topics: dict[str, QueueData] = {}
        # Most topics have the same numbers of queues, so few objects serve all of them.
        shared: dict[QueueData, QueueData] = {}
        for topic in reader.read_topics():
            if topic is not None:
                name, config = topic
                check_topic(name, config)
                queues = topic_queues(header.broker_name, config)
                topics[name] = shared.setdefault(queues, queues)
                check_topic_count(len(topics))
            yield
        check_filter_servers(reader.filter_servers)
        master = self.routes.register(header, reader.data_version, topics, self._clock(), channel)
        ha_address = self.routes.ha_address(header.cluster_name, header.broker_name) if master else None
        order = KvTable(self._kv.get(ORDER_TOPIC_NAMESPACE, {}))
        fields = to_ext_fields(RegisterBrokerResponse(ha_address, master))
        return request.reply(ResponseCode.SUCCESS, fields, serialize_body(order))

    def _unregister_broker(self, channel: Channel, request: Command) -> Command:
        key = _parse_broker_key(request)
        self._check_is_not_local_broker(key)
        # Code and time of a request are not signed: a recorded registration could be sent again with this code.
        if self._accounts is not None and not (
            channel.is_local_or_encrypted or self.routes.is_registered_by_connection(key, channel)
        ):
            raise NotPermittedError(
                f"broker {key.name!r} may be unregistered only over the connection that registered it, over TLS or "
                f"from this machine, found a request from {channel.peer}"
            )
        self.routes.unregister(key)
        return request.reply(ResponseCode.SUCCESS)

    def _check_is_not_local_broker(self, key: BrokerKey) -> None:
        if self.routes.conflicts_with_local_broker(key):
            raise NotPermittedError(
                f"broker {key.name!r} at {key.address} cannot be registered here: its name, id or address is that of "
                "this process's own broker"
            )

    def _query_data_version(self, _channel: Channel, request: Command) -> Command:
        theirs = parse_body(DataVersion, request.body, limit=MAX_DATA_VERSION_BYTES, is_plain_json=True)
        ours = self.routes.query_data_version(_parse_broker_key(request), self._clock())
        fields = to_ext_fields(DataVersionResponse(ours != theirs))
        return request.reply(ResponseCode.SUCCESS, fields, serialize_body(ours) if ours is not None else b"")

    def _note_broker_heartbeat(self, _channel: Channel, request: Command) -> Command:
        self.routes.note_heartbeat(_parse_broker_key(request), self._clock())
        return request.reply(ResponseCode.SUCCESS)

    def _get_all_topics(self, _channel: Channel, request: Command) -> Answering:
        return (yield from self._answer_with_topic_names(request, None))

    def _get_topics_of_cluster(self, _channel: Channel, request: Command) -> Answering:
        return (
            yield from self._answer_with_topic_names(
                request, from_ext_fields(ClusterRequest, request.ext_fields).cluster
            )
        )

    def _answer_with_topic_names(self, request: Command, cluster: str | None) -> Answering:
        names = yield from self.routes.topic_names(cluster)
        body = yield from serialize_list_body("topicList", names)
        return request.reply(ResponseCode.SUCCESS, body=body)

    def _get_system_topics(self, _channel: Channel, request: Command) -> Command:
        return request.reply(ResponseCode.SUCCESS, body=serialize_body(TopicList(*self.routes.system_topics())))

    def _delete_topic(self, _channel: Channel, request: Command) -> Command:
        header = from_ext_fields(DeleteTopicInNameServerRequest, request.ext_fields)
        self.routes.delete_topic(header.topic, header.cluster_name)
        return request.reply(ResponseCode.SUCCESS)

    def _wipe_write_permission(self, _channel: Channel, request: Command) -> Command:
        count = self._set_write_permission(request, is_writable=False)
        return request.reply(ResponseCode.SUCCESS, to_ext_fields(WipeWritePermissionResponse(count)))

    def _add_write_permission(self, _channel: Channel, request: Command) -> Command:
        count = self._set_write_permission(request, is_writable=True)
        return request.reply(ResponseCode.SUCCESS, to_ext_fields(AddWritePermissionResponse(count)))

    def _set_write_permission(self, request: Command, *, is_writable: bool) -> int:
        name = from_ext_fields(WritePermissionRequest, request.ext_fields).broker_name
        return self.routes.set_write_permission(name, is_writable=is_writable)

    def _put_kv_config(self, _channel: Channel, request: Command) -> Command:
        header = from_ext_fields(PutKvRequest, request.ext_fields)
        if (length := sum(map(len, header))) > MAX_SETTING_LENGTH:
            remark = f"setting: expected at most {MAX_SETTING_LENGTH} characters, found {length}"
            return request.reply(ResponseCode.SYSTEM_ERROR, remark=remark)
        is_new = header.key not in self._kv.get(header.namespace, {})
        if is_new and sum(map(len, self._kv.values())) + len(self._kv) >= MAX_SETTINGS:
            return request.reply(
                ResponseCode.SYSTEM_ERROR, remark=f"expected at most {MAX_SETTINGS} settings; delete some"
            )
        known = self._kv.get(header.namespace, {}).get(header.key)
        added = len(header.namespace) + len(header.key) if known is None else -len(known)
        if self._kv_length + added + len(header.value) > MAX_SETTINGS_LENGTH:
            remark = f"expected at most {MAX_SETTINGS_LENGTH} characters of settings; delete some first"
            return request.reply(ResponseCode.SYSTEM_ERROR, remark=remark)
        self._kv_length += added + len(header.value)
        self._kv.setdefault(header.namespace, {})[header.key] = header.value
        return request.reply(ResponseCode.SUCCESS)

    def _get_kv_config(self, _channel: Channel, request: Command) -> Command:
        header = from_ext_fields(KvRequest, request.ext_fields)
        value = self._kv.get(header.namespace, {}).get(header.key)
        if value is None:
            remark = f"No config item, Namespace: {header.namespace} Key: {header.key}"
            return request.reply(ResponseCode.QUERY_NOT_FOUND, remark=remark)
        return request.reply(ResponseCode.SUCCESS, to_ext_fields(KvResponse(value)))

    def _delete_kv_config(self, _channel: Channel, request: Command) -> Command:
        header = from_ext_fields(KvRequest, request.ext_fields)
        value = self._kv.get(header.namespace, {}).pop(header.key, None)
        # A namespace stays when its last setting is deleted, and counts: RocketMQ answers with an empty list for it.
        if value is not None:
            self._kv_length -= len(header.namespace) + len(header.key) + len(value)
        return request.reply(ResponseCode.SUCCESS)

    def _get_kv_namespace(self, _channel: Channel, request: Command) -> Command:
        header = from_ext_fields(NamespaceRequest, request.ext_fields)
        table = self._kv.get(header.namespace)
        if table is None:
            remark = f"No config item, Namespace: {header.namespace}"
            return request.reply(ResponseCode.QUERY_NOT_FOUND, remark=remark)
        return request.reply(ResponseCode.SUCCESS, body=serialize_body(KvTable(table)))


def _error_answer(channel: Channel, request: Command, error: Exception) -> Command:
    """Return the answer to a request whose handler failed; log unexpected errors."""
    if not isinstance(error, CommandError):
        _logger.error("request %d of %s to the name server failed", request.code, channel.peer, exc_info=error)
        return request.reply(ResponseCode.SYSTEM_ERROR, remark=f"{type(error).__name__}: {error}")
    is_forbidden = isinstance(error, NotPermittedError)
    code = ResponseCode.NO_PERMISSION if is_forbidden else ResponseCode.SYSTEM_ERROR
    return request.reply(code, remark=str(error))


def _parse_broker_key(request: Command) -> BrokerKey:
    return broker_key(from_ext_fields(BrokerRequest, request.ext_fields))


def _set_order_config(route: TopicRoute, order_config: str | None) -> TopicRoute:
    return route if order_config is None else route._replace(order_topic_conf=order_config)
