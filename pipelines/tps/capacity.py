"""Size of log that brokers write per day, and the number of days that a disk can hold."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, replace

from commitlake.pipelines.tps.coverage import ALL
from commitlake.pipelines.tps.question import RatesQuestion
from commitlake.pipelines.tps.rates import Rates
from commitlake.schemas.times import EPOCH

_DAY = datetime.timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Capacity:
    """Size of records that brokers store per day.

    Attributes:
        days: Number of whole archived days that were counted. If it is 0, the sizes are extrapolated from the rate of
            the question's time range.
        mean: Average size per day, in bytes.
        most: Size of the largest day, in bytes.
    """

    days: int
    mean: float
    most: float

    def days_on_disk(self, disk_bytes: float) -> float | None:
        """Return how many days like the largest one fit on a disk; None if nothing was stored."""
        return disk_bytes / self.most if self.most else None


def read_capacity(rates: Rates, question: RatesQuestion) -> Capacity:
    """Return the size of log per day.

    Args:
        rates: Rates of a lake.
        question: A question on a time range, as one group and without windows.

    Raises:
        QueryError: A table cannot be read.
    """
    start, end = EPOCH - (EPOCH - question.start) // _DAY * _DAY, EPOCH + (question.end - EPOCH) // _DAY * _DAY
    if start < end:
        rows = rates.rows(replace(question, start=start, end=end, window=_DAY))
        whole = [row["bytes"] for row in rows if row["archived"] == ALL]
        if whole:
            return Capacity(len(whole), sum(whole) / len(whole), max(whole))
    in_all = rates.rows(question)
    of_a_day = in_all[0]["bytes_per_s"] * _DAY.total_seconds() if in_all else 0.0
    return Capacity(0, of_a_day, of_a_day)
