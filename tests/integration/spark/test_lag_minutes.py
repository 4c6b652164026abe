"""`lag_minutes` is the same if executors compute it, also after a kill, and in a session with another time zone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import commitlake
from commitlake.connectors.lake.committer import commit_with_transaction
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.spark.runner import SparkRunner
from commitlake.pipelines.lag_minutes import backfill
from commitlake.pipelines.lag_minutes.backfill import backfill_lag_minutes
from commitlake.schemas.tables.lag_minutes import LAG_MINUTES
from commitlake.schemas.tables.spark_schemas import spark_schema
from tests.support.analysed_lakes import rows_of
from tests.support.lagging_lakes import growing_lake
from tests.support.minutes_of_lag import all_rows, computed_from_scratch


class Killed(BaseException):
    """Ends a run like a kill."""


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A lake of two stores with snapshots over an hour and more; nothing is computed."""
    *_, lake = growing_lake(tmp_path, 7, 600_000)
    return lake


def test_executors_compute_the_same_rows_also_after_a_kill(
    lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = SparkRunner(spark)
    made = iter(range(2))

    def killed(*arguments: Any, **more: Any) -> bool:
        if next(made, None) is None:
            raise Killed
        return commit_with_transaction(*arguments, **more)

    with monkeypatch.context() as patch:
        patch.setattr(backfill, "_HOURS_OF_COMMIT", 1)
        patch.setattr(backfill, "commit_with_transaction", killed)
        with pytest.raises(Killed):
            backfill_lag_minutes(lake, runner)
    assert backfill_lag_minutes(lake, runner).minutes > 0
    rows = all_rows(lake)
    assert rows == computed_from_scratch(lake) != []


def test_a_session_has_the_rows_of_the_table(lake: Lake, foreign_session: SparkSession) -> None:
    backfill_lag_minutes(lake)
    frame = commitlake.open(lake.root, foreign_session).table("lag_minutes")
    assert frame.schema == spark_schema(LAG_MINUTES)
    assert rows_of(frame) == rows_of(commitlake.open(lake.root).table("lag_minutes")) != []
    is_hour = F.unix_micros("minute") % 3_600_000_000 == 0
    assert frame.where(is_hour == F.col("within_hour")).count() == 0
