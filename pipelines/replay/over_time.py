"""Counts chosen messages by store time and topic."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass

from deltalake import DeltaTable

from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.plain_arrays import dict_rows
from commitlake.pipelines.replay.planning import QueueChoice
from commitlake.schemas.times import EPOCH

MAX_WINDOWS = 60
_STEPS = tuple(
    datetime.timedelta(seconds=seconds)
    for seconds in (1, 5, 10, 30, 60, 300, 600, 1800, 3600, 10_800, 21_600, 86_400, 604_800, 2_592_000, 31_536_000)
)
_MICROSECOND = datetime.timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class OverTime:
    """Numbers of messages by time window and topic.

    Attributes:
        step: length of a window.
        starts: starts of all windows from the first to the last message, in order.
        messages: by topic, the number of messages stored in each window.
    """

    step: datetime.timedelta
    starts: Sequence[datetime.datetime]
    messages: dict[str, list[int]]


def count_over_time(table: DeltaTable, condition: str, choice: Sequence[QueueChoice]) -> OverTime:
    """Count the chosen messages that were stored in each time window, in at most `MAX_WINDOWS` windows.

    Messages without a store time are not counted.

    Args:
        condition: condition of the chosen messages.
        choice: the chosen messages by queue.

    Raises:
        QueryError: in the cases of `count_choice`.
    """
    times = [moment for queue in choice for moment in (queue.first_at, queue.last_at) if moment is not None]
    if not times:
        return OverTime(_STEPS[0], (), {})
    first, last = min(times), max(times)
    step = next((step for step in _STEPS if (last - first) < step * (MAX_WINDOWS - 1)), _STEPS[-1])
    begin, end = (first - EPOCH) // step, (last - EPOCH) // step
    sql = (
        f"SELECT topic, arrow_cast(store_timestamp, 'Int64') / {step // _MICROSECOND} AS place, count(*) AS messages "
        f"FROM messages WHERE {condition} AND store_timestamp IS NOT NULL GROUP BY 1, 2 ORDER BY 1, 2"
    )
    found: dict[str, list[int]] = {}
    for row in dict_rows(run_sql(table, "messages", sql).read_all()):
        counts = found.setdefault(row["topic"], [0] * (end - begin + 1))
        counts[row["place"] - begin] += row["messages"]
    return OverTime(step, [EPOCH + place * step for place in range(begin, end + 1)], found)
