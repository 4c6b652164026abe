"""Lag of a store's groups at many times is that of `lag_of_lake` at each of them."""

from __future__ import annotations

import pytest

from commitlake.connectors.lake.lake import Lake
from commitlake.pipelines.lag.group_summaries import GROUP_KINDS
from commitlake.pipelines.lag.lag_at_many_times import StoreLag
from commitlake.pipelines.lag.store_lag import lag_of_lake
from commitlake.schemas.selection import Selection
from commitlake.schemas.times import from_ms
from tests.support.lagging_lakes import BROKERS, EVERY_MS, STEPS, lagging_lake
from tests.support.lakes import MIDNIGHT_MS

TIMES = [from_ms(MIDNIGHT_MS + number * EVERY_MS // 2) for number in range(0, 2 * STEPS + 3, 3)]


@pytest.mark.some_cases(1)
@pytest.mark.parametrize("seed", [1, 4, pytest.param(8, marks=pytest.mark.long("two lakes are compared each time"))])
def test_rows_are_those_of_each_time(seed: int) -> None:
    lake = Lake(lagging_lake(seed)).pin_versions()
    compared = 0
    for broker in BROKERS:
        lag = StoreLag(lake, broker, TIMES[0], TIMES[-1])
        for time in TIMES:
            expected = lag_of_lake(lake, time, Selection(brokers=[broker])).rows
            rows = lag.lag_rows_at(time)
            assert rows == [row for row in expected if row.kind in GROUP_KINDS], time
            compared += len(rows)
    assert compared
