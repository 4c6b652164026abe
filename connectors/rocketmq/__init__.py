"""A small client of RocketMQ: producer, puller and administration, over the same protocol code as broker_lite.

    errors.py                       errors
    options.py                      addresses, time limits, and environment variables with credentials
    pending_requests.py             requests and answers, without a socket
    connection.py, network.py       sockets, and all connections of a client
    routing.py                      routes of topics
    producers/                      sending
    puller.py                       reading of queues
    admin.py, message_lookup.py     administration, and look-ups of single messages
    log_extent.py                   end of a broker's log up to which its queues are complete
    queue_reading.py                ranges of queues, answer by answer
    time_search.py                  the first offset of a time in a queue
    source/, sink/, data_source.py  `format("rocketmq")`; spark_options.py has the common options

It works with brokers 4.9 and 5.x, and with broker_lite.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from commitlake.connectors.rocketmq.admin import Admin
from commitlake.connectors.rocketmq.errors import (
    ClientOptionError,
    InvalidMessageError,
    NoRouteError,
    ProtocolError,
    RefusedError,
    RocketMQError,
    UnreachableError,
)
from commitlake.connectors.rocketmq.options import ClientOptions
from commitlake.connectors.rocketmq.producers.messages import OutgoingMessage, SendResult, SendStatus
from commitlake.connectors.rocketmq.producers.producer import Producer, ProducerOptions
from commitlake.connectors.rocketmq.puller import Puller, PullResult, PullStatus

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "Admin",
    "ClientOptionError",
    "ClientOptions",
    "InvalidMessageError",
    "NoRouteError",
    "OutgoingMessage",
    "Producer",
    "ProducerOptions",
    "ProtocolError",
    "PullResult",
    "PullStatus",
    "Puller",
    "RefusedError",
    "RocketMQError",
    "SendResult",
    "SendStatus",
    "UnreachableError",
    "register_rocketmq",
]


def register_rocketmq(spark: SparkSession) -> None:
    """Register the data source `rocketmq` with a session, for `format("rocketmq")`."""
    from commitlake.connectors.rocketmq.data_source import RocketmqDataSource  # noqa: PLC0415 (pyspark, where wanted)

    spark.dataSource.register(RocketmqDataSource)
