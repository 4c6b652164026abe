"""Finds the business keys and the queues with most messages.

Keys are counted by a sketch of bounded memory (Apache DataSketches, frequent items). Queues have their share, and the
skew among their topic's queues.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from datasketches import frequent_items_error_type, frequent_strings_sketch

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.lake.sql import Engine
from commitlake.pipelines.tps.coverage import Coverage
from commitlake.pipelines.tps.rates import Rates
from commitlake.pipelines.tps.rates_query import MESSAGES, RatesQuestion

KEY_COLUMNS = ("key", "messages", "at_least", "at_most", "share_percent")
"""Columns of the result for each key."""
LOG_MAX_KEYS = 16
"""Binary logarithm of the largest number of keys in the sketch. Its error is the total count times 3.5 / 2^16."""
_BATCHES = 32  # counted together, so that a repeated key is one update
QUEUE_COLUMNS = (
    "broker", "topic", "queue", "messages", "messages_per_s", "bytes_per_s", "peak_per_s", "peak_at", "share_percent",
    "topic_share_percent", "skew",
)  # fmt: skip
"""Columns of the result for each queue."""


@dataclass(frozen=True, slots=True)
class HotKeys:
    """Business keys with most messages, approximately counted.

    Attributes:
        rows: rows of `KEY_COLUMNS`, the most frequent key first; `messages` is `at_most`.
        total: number of keys that were counted, with repetitions.
        error: largest possible overestimate of a count.
    """

    rows: Sequence[dict[str, Any]]
    total: int
    error: int


def find_hot_keys(lake: Lake, question: RatesQuestion) -> HotKeys:
    """Find the business keys with most messages in a time range.

    Args:
        lake: location of `messages`.
        question: messages to count.
    """
    where = question.where_sql(MESSAGES)
    sql = f"SELECT unnest(keys) AS key FROM messages WHERE {where}"
    return count_keys(batch.column(0) for batch in run_sql(lake.table("messages"), "messages", sql))


def count_keys(keys: Iterable[pa.Array]) -> HotKeys:
    """Count approximately how often each key occurs, and return the most frequent keys.

    Args:
        keys: arrays of strings; nulls are left out.
    """
    sketch = frequent_strings_sketch(LOG_MAX_KEYS)
    waiting: list[pa.Array] = []
    for array in keys:
        waiting.append(array)
        if len(waiting) == _BATCHES:
            _update_sketch(sketch, waiting)
            waiting = []
    _update_sketch(sketch, waiting)
    total = sketch.total_weight
    # NO_FALSE_NEGATIVES: each key that can have more than the error.
    items = sketch.get_frequent_items(frequent_items_error_type.NO_FALSE_NEGATIVES)
    rows = [
        {"key": key, "messages": most, "at_least": least, "at_most": most, "share_percent": 100 * most / total}
        for key, _, least, most in items
    ]
    error = max((row["at_most"] - row["at_least"] for row in rows), default=0)
    return HotKeys(sorted(rows, key=lambda row: (-row["messages"], row["key"])), total, error)


def _update_sketch(sketch: frequent_strings_sketch, key_arrays: Sequence[pa.Array]) -> None:
    for array in key_arrays and [pa.chunked_array(key_arrays)]:
        counted = pc.value_counts(array.drop_null())
        for key, count in zip(counted.field(0).to_pylist(), counted.field(1).to_pylist(), strict=True):
            sketch.update(key, count)


def rank_queues(
    lake: Lake, coverage: Coverage, question: RatesQuestion, engine: Engine = Engine.DELTALAKE
) -> list[dict[str, Any]]:
    """Return all queues, those with most messages first.

    Args:
        question: question by broker, topic and queue, without windows.

    Returns:
        Rows of `QUEUE_COLUMNS`. `skew` is 1 if all of the topic's queues with messages on the broker have the same
        number.
    """
    rows = Rates(lake, coverage, engine).read_rates(question)
    total = sum(row["messages"] for row in rows)
    of_topic: dict[tuple[str, str], list[int]] = defaultdict(list)
    for row in rows:
        of_topic[row["broker"], row["topic"]].append(row["messages"])
    for row in rows:
        counts = of_topic[row["broker"], row["topic"]]
        row["share_percent"] = 100 * row["messages"] / total
        row["topic_share_percent"] = 100 * row["messages"] / sum(counts)
        row["skew"] = row["messages"] * len(counts) / sum(counts)
    return rows
