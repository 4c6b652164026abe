"""How much log brokers write in a day, and for how many days a disk holds it."""

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
    """Bytes of records that brokers store in a day.

    Attributes:
        days: Whole archived days that were counted; 0 where there is none: then the others are those of a day at the
            rate of the time that was asked for.
        mean: Bytes of a day, on average.
        most: Bytes of the largest day.
    """

    days: int
    mean: float
    most: float

    def days_on_disk(self, disk_bytes: float) -> float | None:
        """Return for how many days like the largest one a disk has room; None where nothing was stored."""
        return disk_bytes / self.most if self.most else None


def read_capacity(rates: Rates, question: RatesQuestion) -> Capacity:
    """Return the bytes of a day.

    Args:
        rates: Of a lake.
        question: About a time, in one group and without windows.

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
