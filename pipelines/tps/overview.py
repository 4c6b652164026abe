"""A question on a whole time range by topic, and the size of log per day.

The size of log per day shows for how many days a disk is large enough.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass, replace

from commitlake.connectors.lake.paths import LakeError
from commitlake.pipelines.tps.coverage import ALL, Coverage
from commitlake.pipelines.tps.question import MINUTE, SECOND, RatesQuestion, round_time
from commitlake.pipelines.tps.rates import Rates
from commitlake.schemas.selection import ALL_MESSAGES, Selection
from commitlake.schemas.times import EPOCH

_DAY = datetime.timedelta(days=1)


def make_overview_question(
    coverage: Coverage,
    wanted: Selection = ALL_MESSAGES,
    window: datetime.timedelta | None = None,
) -> RatesQuestion:
    """Return a question for the rates of each topic over a time range.

    Args:
        wanted: Messages to count; without times, from the first archived minute to the last.
        window: Length of a window in whole minutes; by default the report chooses one.

    Raises:
        LakeError: Nothing is archived, or the time range is empty.
    """
    whole, start, end = coverage.whole_span, wanted.start, wanted.end
    if whole is None:
        raise LakeError("no message is archived, so there are no rates")
    first = EPOCH + ((start or whole.start) - EPOCH) // MINUTE * MINUTE
    last = EPOCH - (EPOCH - (end or whole.end)) // MINUTE * MINUTE
    if first >= last:
        raise LakeError(
            f"nothing is archived from {first:%Y-%m-%dT%H:%M}Z to {last:%Y-%m-%dT%H:%M}Z: expected a time between "
            f"{whole.start:%Y-%m-%dT%H:%M}Z and {whole.end:%Y-%m-%dT%H:%M}Z"
        )
    length = None if window is None else max(MINUTE, window // MINUTE * MINUTE)
    return RatesQuestion(
        ("topic",),
        round_time(start or first, SECOND),
        round_time(end or last, SECOND, up=True),
        length,
        selection=replace(wanted, start=None, end=None),
    )


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
    """Return how many bytes brokers store per day.

    Args:
        rates: Rates of a lake.
        question: A question on a time range; its groups and windows do not matter.
    """
    question = replace(question, by=(), window=None)
    start, end = EPOCH - (EPOCH - question.start) // _DAY * _DAY, EPOCH + (question.end - EPOCH) // _DAY * _DAY
    if start < end:
        rows = rates.read_rates(replace(question, start=start, end=end, window=_DAY))
        whole = [row["bytes"] for row in rows if row["archived"] == ALL]
        if whole:
            return Capacity(len(whole), sum(whole) / len(whole), max(whole))
    in_all = rates.read_rates(question)
    of_a_day = in_all[0]["bytes_per_s"] * _DAY.total_seconds() if in_all else 0.0
    return Capacity(0, of_a_day, of_a_day)
