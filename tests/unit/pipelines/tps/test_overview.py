"""Bytes of a day, and the checks of a requested time."""

from __future__ import annotations

import datetime
from dataclasses import replace

import pytest

from commitlake.connectors.lake.paths import LakeError
from commitlake.pipelines.tps.coverage import Coverage, TimeSpan, read_coverage
from commitlake.pipelines.tps.overview import Capacity, make_overview_question, read_capacity
from commitlake.pipelines.tps.rates import Rates
from commitlake.schemas.selection import Selection
from tests.support.lakes import DAY_MS, MIDNIGHT_MS, GrowingLake
from tests.support.logs import new_message

MIDNIGHT = datetime.datetime.fromtimestamp(MIDNIGHT_MS / 1000, datetime.UTC)
DAY, MINUTE = datetime.timedelta(days=1), datetime.timedelta(minutes=1)
PER_DAY = (1, 2, 6, 1)


@pytest.fixture(scope="module")
def rates(tmp_path_factory: pytest.TempPathFactory) -> Rates:
    """Messages of 1,000 bytes and more at the beginning of each hour; the middle days are whole."""
    growing = GrowingLake(tmp_path_factory.mktemp("capacity"))
    times = [
        MIDNIGHT_MS + day * DAY_MS + number * DAY_MS // count + DAY_MS // 2 * (day == 0)
        for day, count in enumerate(PER_DAY)
        for number in range(count)
    ]
    growing.write(
        new_message(number, topic="orders", queue_id=0, body=b"x" * 1000, born_timestamp=born)
        for number, born in enumerate(times)
    )
    growing.archive()
    return Rates(growing.lake, read_coverage(growing.lake))


def test_only_whole_days_are_counted(rates: Rates) -> None:
    asked = make_overview_question(rates.coverage)
    found = read_capacity(rates, asked)
    (total,) = rates.read_rates(replace(asked, by=()))
    size = total["bytes"] // sum(PER_DAY)
    assert (found.days, found.mean, found.most) == (2, 4 * size, 6 * size)
    assert found.days_on_disk(12 * size) == 2


def test_a_partly_requested_day_is_not_whole(rates: Rates) -> None:
    asked = make_overview_question(rates.coverage, Selection(start=MIDNIGHT + DAY + MINUTE))
    assert read_capacity(rates, asked).days == 1


def test_less_than_a_day_gives_its_rate(rates: Rates) -> None:
    asked = make_overview_question(rates.coverage, Selection(start=MIDNIGHT + 2 * DAY, end=MIDNIGHT + 2.5 * DAY))
    found = read_capacity(rates, asked)
    (total,) = rates.read_rates(replace(asked, by=()))
    assert found.days == 0
    assert found.mean == pytest.approx(2 * total["bytes"])
    nothing = read_capacity(rates, replace(asked, selection=Selection(topics=["another"])))
    assert nothing == Capacity(0, 0.0, 0.0)
    assert nothing.days_on_disk(1) is None


def test_a_time_is_not_widened_to_whole_windows_if_their_length_is_given(rates: Rates) -> None:
    start = MIDNIGHT + DAY + datetime.timedelta(seconds=61)
    wanted = Selection(topics=["orders"], start=start, end=start + 90 * MINUTE)
    asked = make_overview_question(rates.coverage, wanted)
    assert (asked.start, asked.end, asked.window) == (start, start + 90 * MINUTE, None)
    assert asked.selection.topics == ["orders"]
    asked = make_overview_question(rates.coverage, wanted, 60.5 * MINUTE)
    assert (asked.start, asked.end, asked.window) == (start, start + 90 * MINUTE, 60 * MINUTE)


def test_an_empty_time_is_refused() -> None:
    with pytest.raises(LakeError, match="no message is archived"):
        make_overview_question(Coverage({}))
    coverage = Coverage({"a": TimeSpan(MIDNIGHT, MIDNIGHT + DAY)})
    with pytest.raises(LakeError, match="expected a time between 2023-11-15T00:00Z and 2023-11-16T00:00Z"):
        make_overview_question(coverage, Selection(start=MIDNIGHT + 2 * DAY))
