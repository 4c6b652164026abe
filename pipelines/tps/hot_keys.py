"""Finds the business keys with most messages, by a sketch of bounded memory (Apache DataSketches, frequent items)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from datasketches import frequent_items_error_type, frequent_strings_sketch

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.reader import run_sql
from commitlake.pipelines.tps.question import MESSAGES, RatesQuestion

COLUMNS = ("key", "messages", "at_least", "at_most", "share_percent")
"""Columns of the result for each key."""
LOG_MAX_KEYS = 16
"""Binary logarithm of the largest number of keys in the sketch. Its error is the total count times 3.5 / 2^16."""
_BATCHES = 32  # counted together, so that a repeated key is one update


@dataclass(frozen=True, slots=True)
class HotKeys:
    """Keys with most messages.

    Attributes:
        rows: rows of `COLUMNS`, the most frequent key first; `messages` is `at_most`.
        total: number of keys that were counted, with repetitions.
        error: largest possible overestimate of a count.
    """

    rows: Sequence[dict[str, Any]]
    total: int
    error: int


def hot_keys(lake: Lake, question: RatesQuestion) -> HotKeys:
    """Find the keys with most messages.

    Args:
        lake: location of `messages`.
        question: messages to count.
    """
    where = question.where(MESSAGES)
    sql = f"SELECT unnest(keys) AS key FROM messages WHERE {where}"
    return count_keys(batch.column(0) for batch in run_sql(lake.table("messages"), "messages", sql))


def count_keys(keys: Iterable[pa.Array]) -> HotKeys:
    """Count keys.

    Args:
        keys: arrays of strings; nulls are left out.
    """
    sketch = frequent_strings_sketch(LOG_MAX_KEYS)
    waiting: list[pa.Array] = []
    for array in keys:
        waiting.append(array)
        if len(waiting) == _BATCHES:
            _update(sketch, waiting)
            waiting = []
    _update(sketch, waiting)
    total = sketch.total_weight
    # NO_FALSE_NEGATIVES: each key that can have more than the error.
    items = sketch.get_frequent_items(frequent_items_error_type.NO_FALSE_NEGATIVES)
    rows = [
        {"key": key, "messages": most, "at_least": least, "at_most": most, "share_percent": 100 * most / total}
        for key, _, least, most in items
    ]
    error = max((row["at_most"] - row["at_least"] for row in rows), default=0)
    return HotKeys(sorted(rows, key=lambda row: (-row["messages"], row["key"])), total, error)


def _update(sketch: frequent_strings_sketch, arrays: Sequence[pa.Array]) -> None:
    for array in arrays and [pa.chunked_array(arrays)]:
        counted = pc.value_counts(array.drop_null())
        for key, count in zip(counted.field(0).to_pylist(), counted.field(1).to_pylist(), strict=True):
            sketch.update(key, count)
