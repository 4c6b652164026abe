"""Look-ups of single messages by key or id.

A broker finds messages for a query only by the hash of the key, and for a view returns any bytes at the offset. So a
returned message is checked against the request.
"""

from __future__ import annotations

from collections.abc import Callable

from commitlake.connectors.rocketmq.errors import NoRouteError, ProtocolError
from commitlake.connectors.rocketmq.network import Network
from commitlake.connectors.rocketmq.records import parse_records
from commitlake.connectors.rocketmq.routing import Routing
from commitlake.schemas.layouts.errors import LayoutError
from commitlake.schemas.layouts.rocketmq.commitlog import Message
from commitlake.schemas.layouts.rocketmq.message_id import parse_message_id
from commitlake.schemas.remoting.codes import RequestCode, ResponseCode
from commitlake.schemas.remoting.headers import QueryMessageRequest, ViewMessageRequest

MAX_TIME_MS = (1 << 63) - 1


class MessageLookup:
    """A thread-safe client that looks up messages by key or id."""

    def __init__(self, network: Network, routing: Routing) -> None:
        self._network = network
        self._routing = routing

    def by_key(
        self, topic: str, key: str, begin_ms: int = 0, end_ms: int | None = None, max_messages: int = 64
    ) -> list[Message]:
        """Return the messages of a topic with a business key, in the order in which they were stored."""
        header = QueryMessageRequest(topic, key, max_messages, begin_ms, MAX_TIME_MS if end_ms is None else end_ms)
        return self._query_brokers(header, lambda message: message.topic == topic and key in (message.keys or ()))

    def view_message(self, msg_id: str) -> Message:
        """Return the message with an offset message id.

        The id contains an address. Ids may come from anywhere, so only brokers known to the name servers are asked.

        Raises:
            NoRouteError: if the id is not valid, or the address is not a broker's.
            RefusedError: if the broker has no such message.
            ProtocolError: if the broker sends another message.
        """
        try:
            wanted = parse_message_id(msg_id)
        except LayoutError as error:
            raise NoRouteError(f"message id {msg_id[:80]!r}: {error}") from None
        # RocketMQ writes an IPv6 address without brackets.
        address = str(wanted.store_host).replace("[", "").replace("]", "")
        brokers = self._routing.clusters().broker_addr_table.values()
        if not any(address in broker.broker_addrs.values() for broker in brokers):
            raise NoRouteError(
                f"message id {msg_id}: expected one with the address of a broker of this cluster, found {address}, "
                "which is none"
            )
        header = ViewMessageRequest(wanted.physical_offset)
        answer = self._network.send_and_wait(address, RequestCode.VIEW_MESSAGE_BY_ID, header)
        found = parse_records(answer)
        if len(found) != 1 or found[0].physical_offset != wanted.physical_offset:
            raise ProtocolError(
                f"{address}: expected the record at physical offset {wanted.physical_offset}, found {len(found)} "
                "others: no message has this id"
            )
        return found[0]

    def _query_brokers(self, header: QueryMessageRequest, is_wanted: Callable[[Message], bool]) -> list[Message]:
        accepted = (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND)
        found: list[Message] = []
        for broker in self._routing.route(header.topic).broker_datas:
            address = broker.any_address
            if address is None:
                continue
            answer = self._network.send_and_wait(address, RequestCode.QUERY_MESSAGE, header, accepted_codes=accepted)
            if answer.code == ResponseCode.SUCCESS:
                found += [message for message in parse_records(answer) if is_wanted(message)]
        return sorted(found, key=lambda message: (message.store_timestamp, message.physical_offset))
