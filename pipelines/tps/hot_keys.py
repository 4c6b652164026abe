"""Business keys with most messages, by a sketch of bounded memory (Apache DataSketches, frequent items)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from datasketches import frequent_items_error_type, frequent_strings_sketch

from commitlake.connectors.lake.paths import LakePaths
from commitlake.connectors.lake.reader import open_table, run_sql
from commitlake.pipelines.tps.question import MESSAGES, RatesQuestion

COLUMNS = ("key", "messages", "at_least", "at_most", "share_percent")
"""What is told of a key."""
LOG_MAX_KEYS = 16
"""Binary logarithm of how many keys the sketch has room for. Its error is 3.5 by this many of all that is counted."""
_BATCHES = 32  # counted together, so that a key that repeats is one update


@dataclass(frozen=True, slots=True)
class HotKeys:
    """The keys that are found.

    Attributes:
        rows: of `COLUMNS`, the most frequent first; `messages` is `at_most`.
        total: keys of messages that were counted, each as often as it came.
        error: by how much a figure may be too large at most.
    """

    rows: Sequence[dict[str, Any]]
    total: int
    error: int


def hot_keys(lake: LakePaths, question: RatesQuestion) -> HotKeys:
    """Find the keys with most messages.

    Args:
        lake: where `messages` lies.
        question: which messages are counted.
    """
    where = question.where(MESSAGES)
    sql = f"SELECT unnest(keys) AS key FROM messages WHERE {where}"
    return count_keys(batch.column(0) for batch in run_sql(open_table(lake, "messages"), "messages", sql))


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
