"""Deliveries that a broker records outside its log: in a consume log, and in a store of messages to retry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

RETRY_ROWS = pa.schema([
    ("broker", pa.string()),
    ("topic", pa.string()),
    ("queue_id", pa.int32()),
    ("queue_offset", pa.int64()),
    ("physical_offset", pa.int64()),               # of the message's record
    ("consumer_group", pa.string()),
    ("attempt", pa.int32()),                       # failed deliveries so far
    ("is_dead", pa.bool_()),                       # True for a dead letter, which is not delivered again
    ("due_timestamp", pa.timestamp("us", "UTC")),  # of the next delivery; null for a dead letter
    ("event_timestamp", pa.timestamp("us", "UTC")),  # of the last failure
])  # fmt: skip
"""Columns of the messages in a retry store: one row for each message and application that has failed to consume it."""


@dataclass(frozen=True, slots=True)
class StoredRetries:
    """Content of a store's retry store: messages that wait for a retry, and dead letters.

    Attributes:
        rows: messages that wait for their next delivery, and dead letters, with the columns `RETRY_ROWS`.
        is_read: False if the retry store could not be read, so that its content is not known.
        problems: sentences about what could not be read.
    """

    rows: pa.Table = field(default_factory=RETRY_ROWS.empty_table)
    is_read: bool = True
    problems: Sequence[str] = ()


CONSUMPTION_ROWS = pa.schema([
    ("broker", pa.string()),
    ("consume_offset", pa.int64()),
    ("topic", pa.string()),
    ("queue_id", pa.int32()),
    ("queue_offset", pa.int64()),
    ("physical_offset", pa.int64()),
    ("consumer_group", pa.string()),
    ("attempt", pa.int32()),
    ("outcome", pa.string()),
    ("client_host", pa.string()),
    ("event_timestamp", pa.timestamp("us", "UTC")),
])  # fmt: skip
"""The columns of `consumptions`; without Spark's types, which readers of files do not import."""


@dataclass(frozen=True, slots=True)
class ConsumeLogPart:
    """Consecutive records of a store's consume log, with the problems found among them.

    Attributes:
        rows: the part's records, with the columns `CONSUMPTION_ROWS`.
        end: offset in the consume log at which the next part begins.
        problems: sentences about damaged or missing ranges in it.
    """

    rows: pa.RecordBatch
    end: int
    problems: Sequence[str] = ()
