"""Rows of `consumptions` as entries, from which steps are made as from traces.

A row names its message by place and by queue offset, which JMQ's unique key consists of. In `edges` the evidence of
such a step is the record of the consume log. Its offset is stored as `-1 - consume_offset`, so that it cannot be taken
for the place of a message.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.formats.consumptions import CONSUMPTION_ROWS
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.table_rows import TableRows
from commitlake.connectors.plain_arrays import numbers_of
from commitlake.pipelines.edges.steps import repeated
from commitlake.pipelines.edges.traces import ENTRIES, Action


def consumptions_table(lake: Lake) -> TableRows:
    """Return a reader for files of `consumptions`."""
    return TableRows(lake.uri("consumptions"), lake.s3, CONSUMPTION_ROWS)


def entries_of_consumptions(rows: pa.Table) -> pa.Table:
    """Return rows of `consumptions` as entries.

    >>> row = {"broker": "a", "consume_offset": 7, "topic": "t", "queue_id": 1, "queue_offset": 5, "physical_offset": 9}
    >>> rows = pa.Table.from_pylist([row], CONSUMPTION_ROWS)
    >>> entries_of_consumptions(rows).select(["physical_offset", "unique_key", "sent_offset"]).to_pylist()
    [{'physical_offset': -8, 'unique_key': 't/1/5@a', 'sent_offset': 9}]
    """
    rows = rows.combine_chunks()
    count = rows.num_rows
    known = {
        "broker": rows.column("broker"),
        "physical_offset": pc.subtract(-1, rows.column("consume_offset")),
        "entry": pa.array(np.zeros(count, np.int32)),
        "store_timestamp": rows.column("event_timestamp"),
        "client_host": rows.column("client_host"),
        "action": repeated(str(Action.LOGGED), count),
        "unique_key": unique_keys_of(rows),
        "group": rows.column("consumer_group"),
        "topic": rows.column("topic"),
        "sent_offset": rows.column("physical_offset"),
        "attempt": rows.column("attempt"),
        "outcome": rows.column("outcome"),
        "event_timestamp": rows.column("event_timestamp"),
    }
    return pa.table(
        [known[f.name].cast(f.type) if f.name in known else pa.nulls(count, f.type) for f in ENTRIES], schema=ENTRIES
    )


def unique_keys_of(rows: pa.Table) -> pa.Array:
    """Return the unique keys of JMQ's messages, from their brokers, topics, queues and queue offsets."""
    numbers = pa.array(numbers_of(rows.column("queue_offset")).view(np.uint64)).cast(pa.string())
    queue = pc.binary_join_element_wise(rows.column("topic"), rows.column("queue_id").cast(pa.string()), numbers, "/")
    return pc.binary_join_element_wise(queue, rows.column("broker"), "@")
