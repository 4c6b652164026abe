"""`consumptions`: deliveries of messages to applications, one row for each record of a JMQ store's consume log.

A message is delivered to an application once, and again after each failure. `edges` has the same steps, linked to the
messages. A consumption whose message is not in the lake is in both tables.

Key: (`broker`, `consume_offset`). Append-only. Times are UTC with millisecond precision.
"""

from __future__ import annotations

from commitlake.schemas.tables.columns import INT32, INT64, TEXT, TIME, Column, Columns

CONSUMPTIONS = Columns(
    [
        Column("broker", TEXT, "the store's name"),
        Column("consume_offset", INT64, "offset of the record in the store's consume log, bytes"),
        Column("topic", TEXT, "topic of the message"),
        Column("queue_id", INT32, "queue of the message"),
        Column("queue_offset", INT64, "offset of the message in its queue"),
        Column("physical_offset", INT64, "offset of the message's record in the journal, bytes"),
        Column("consumer_group", TEXT, "the application that consumed it"),
        Column("attempt", INT32, "failed deliveries to the application before this one"),
        Column("outcome", TEXT, "success, failed (it is delivered again) or dead (it is a dead letter)"),
        Column("client_host", TEXT, "address of the application's client, as ip:port"),
        Column("event_timestamp", TIME, "time at which the delivery ended, by the broker's clock"),
    ]
)
"""The columns of `consumptions`."""
