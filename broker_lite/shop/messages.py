"""Messages of the shop in the form in which a Java client sends them.

UNIQ_KEY as RocketMQ's client builds it, JSON in UTF-8, bodies of 4,096 bytes and more compressed by zlib at level 5.
Messages depend only on the arguments.
Source: MessageClientIDSetter, DefaultMQProducerImpl.tryToCompressMessage (5.5.0).
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from commitlake.broker_lite.shop.orders import Order
from commitlake.schemas.layouts.rocketmq import properties as props
from commitlake.schemas.layouts.rocketmq.commitlog import NewMessage
from commitlake.schemas.layouts.rocketmq.hosts import Host
from commitlake.schemas.layouts.rocketmq.sysflag import BodyCodec, compression_bits

COMPRESS_FROM_BYTES = 4096
COMPRESSION_LEVEL = 5
QUEUES = {"orders": 4, "payments": 4, "shipments": 2}


@dataclass(slots=True)
class Producer:
    """Client process that sends messages.

    Attributes:
        group: producer group.
        host: address.
        process_id: process id, which is a part of its UNIQ_KEYs, as is the address.
    """

    group: str
    host: Host
    process_id: int
    _sent: int = field(default=0, init=False)

    def next_unique_key(self, now_ms: int) -> str:
        """Return the next UNIQ_KEY: address, process, class loader, ms of the month, counter; 32 hexadecimal digits."""
        now = datetime.fromtimestamp(now_ms / 1000, UTC)
        month_start = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        ms_of_month = now_ms - int(month_start.timestamp()) * 1000
        class_loader = zlib.crc32(self.group.encode())
        counter = self._sent & 0xFFFF
        self._sent += 1
        prefix = f"{self.host.address.hex()}{self.process_id:04x}{class_loader:08x}"
        return f"{prefix}{ms_of_month:08x}{counter:04x}".upper()

    def make_message(
        self,
        topic_and_tag: tuple[str, str],
        order: Order,
        now_ms: int,
        content: Mapping[str, Any],
        extra_properties: Mapping[str, str] | None = None,
    ) -> NewMessage:
        """Return a message about an order.

        Args:
            topic_and_tag: topic and tag; the order determines the queue, so that its messages stay in order.
            order: supplies the key and the user properties.
            now_ms: time of the client's clock.
            content: content of the body, besides the order's number.
            extra_properties: further properties, such as DELAY.
        """
        topic, tag = topic_and_tag
        body = json.dumps({"order": order.number, **content}, ensure_ascii=False).encode()
        sys_flag = 0
        if len(body) >= COMPRESS_FROM_BYTES:
            body = zlib.compress(body, COMPRESSION_LEVEL)
            sys_flag = compression_bits(BodyCodec.ZLIB)
        properties = {
            props.UNIQ_KEY: self.next_unique_key(now_ms),
            props.KEYS: order.key,
            props.WAIT: "true",
            props.TAGS: tag,
            **order.user_properties,
            **(extra_properties or {}),
        }
        return NewMessage(
            topic=topic,
            body=body,
            born_timestamp=now_ms,
            born_host=self.host,
            queue_id=order.number % QUEUES[topic],
            sys_flag=sys_flag,
            properties=tuple(properties.items()),
        )
