"""The time that a question on journeys reads."""

from __future__ import annotations

import datetime

from commitlake.pipelines.journeys.journeys_query import JourneysQuestion
from commitlake.schemas.times import EPOCH, LAST_TIME, epoch_us

DAY = datetime.timedelta(days=1)
NOON = datetime.datetime(2026, 11, 20, 12, tzinfo=datetime.UTC)


def test_records_are_read_around_the_window() -> None:
    asked = JourneysQuestion(NOON, NOON + DAY, DAY)
    assert (asked.read_begin, asked.read_end) == (NOON - DAY, NOON + 2 * DAY)
    assert (asked.begin_us, asked.end_us) == (epoch_us(NOON - DAY), epoch_us(NOON + 2 * DAY))
    assert (asked.since_us, asked.until_us, asked.margin_us) == (epoch_us(NOON), epoch_us(NOON + DAY), 86_400_000_000)


def test_a_margin_ends_where_times_do() -> None:
    asked = JourneysQuestion(EPOCH, LAST_TIME, 10 * DAY)
    assert (asked.read_begin, asked.read_end) == (EPOCH, LAST_TIME)
