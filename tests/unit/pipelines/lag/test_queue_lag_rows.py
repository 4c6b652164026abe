"""Rows of lag with the columns `QUEUE_LAG`."""

from __future__ import annotations

from commitlake.connectors.lake.lake import Lake
from commitlake.pipelines.lag.queue_lag_rows import figure_columns, queue_lag_row
from commitlake.pipelines.lag.store_lag import lag_of_lake
from commitlake.pipelines.lag.verdicts import FigureBounds
from commitlake.schemas.tables.lag import QUEUE_LAG
from tests.support.lagging_lakes import lagging_lake


def test_rows_have_the_declared_columns() -> None:
    rows = [queue_lag_row(row) for row in lag_of_lake(Lake(lagging_lake(0)), None).rows]
    assert rows
    assert {tuple(row) for row in rows} == {tuple(QUEUE_LAG.names)}


def test_figures_that_are_not_known_stay_unknown() -> None:
    found = figure_columns(FigureBounds(1.0, None), FigureBounds(2, 3.0), FigureBounds(0.5, None))
    assert list(found.values()) == [1, None, 2, 3, 0.5, None]
    assert [type(value) for value in found.values()] == [int, type(None), int, int, float, type(None)]
