"""`consumptions`: deliveries of messages to applications, one row for each record of a JMQ store's consume log.

A message is delivered to an application once, and again after each failure. `edges` has the same steps, linked to the
messages. A consumption whose message is not in the lake is in both tables.

Key: (`broker`, `consume_offset`). Append-only. Times are UTC with millisecond precision.
"""

from __future__ import annotations

from pyspark.sql.types import IntegerType, LongType, StringType, StructType, TimestampType

from commitlake.schemas.tables.columns import column

CONSUMPTIONS = StructType(
    [
        column("broker", StringType(), "the store's name"),
        column("consume_offset", LongType(), "offset of the record in the store's consume log, bytes"),
        column("topic", StringType(), "topic of the message"),
        column("queue_id", IntegerType(), "queue of the message"),
        column("queue_offset", LongType(), "offset of the message in its queue"),
        column("physical_offset", LongType(), "offset of the message's record in the journal, bytes"),
        column("consumer_group", StringType(), "the application that consumed it"),
        column("attempt", IntegerType(), "failed deliveries to the application before this one"),
        column("outcome", StringType(), "success, failed (it is delivered again) or dead (it is a dead letter)"),
        column("client_host", StringType(), "address of the application's client, as ip:port"),
        column("event_timestamp", TimestampType(), "time at which the delivery ended, by the broker's clock"),
    ]
)
"""The columns of `consumptions`."""
