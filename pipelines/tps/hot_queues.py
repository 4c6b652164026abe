"""Finds the queues with most messages: their share, and the skew among their topic's queues."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.sql import Engine
from commitlake.pipelines.tps.coverage import Coverage
from commitlake.pipelines.tps.question import RatesQuestion
from commitlake.pipelines.tps.rates import Rates

COLUMNS = (
    "broker", "topic", "queue", "messages", "messages_per_s", "bytes_per_s", "peak_per_s", "peak_at", "share_percent",
    "topic_share_percent", "skew",
)  # fmt: skip
"""Columns of the result for each queue."""


def hot_queues(
    lake: Lake, coverage: Coverage, question: RatesQuestion, engine: Engine = Engine.DELTALAKE
) -> list[dict[str, Any]]:
    """Return all queues, those with most messages first.

    Args:
        question: question by broker, topic and queue, without windows.

    Returns:
        Rows of `COLUMNS`. `skew` is 1 if all of the topic's queues with messages on the broker have the same number.
    """
    rows = Rates(lake, coverage, engine).rows(question)
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
