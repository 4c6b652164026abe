"""Parts of a store's own log of deliveries, as rows of the table `consumptions`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

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
    """A part of a store's consume log.

    Attributes:
        rows: the part's records, with `CONSUMPTION_ROWS`.
        end: offset in the consume log at which the next part begins.
        problems: sentences about damaged or missing ranges in it.
    """

    rows: pa.RecordBatch
    end: int
    problems: Sequence[str] = ()
