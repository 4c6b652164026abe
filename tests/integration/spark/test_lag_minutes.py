"""`lag_minutes` is the same if executors compute it, also after a kill, and in a session with another time zone."""

from __future__ import annotations

import datetime
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import commitlake
from commitlake.connectors.lake.committer import commit_with_transaction
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.spark.runner import SparkRunner
from commitlake.pipelines.lag_minutes import backfill
from commitlake.pipelines.lag_minutes.backfill import backfill_lag_minutes
from commitlake.pipelines.snapshot.progress import OffsetKind, OffsetOwner, SnapshotSource, StoreSnapshot
from commitlake.pipelines.snapshot.table_append import append_snapshot
from commitlake.schemas.tables.lag_minutes import LAG_MINUTES
from commitlake.schemas.tables.spark_schemas import spark_schema
from commitlake.schemas.times import from_ms
from tests.support.analysed_lakes import rows_of
from tests.support.lagging_lakes import TOPICS, growing_lake
from tests.support.lakes import MIDNIGHT_MS
from tests.support.minutes_of_lag import all_rows, computed_from_scratch


class Killed(BaseException):
    """Ends a run like a kill."""


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A lake of two stores with snapshots over an hour and more; nothing is computed."""
    *_, lake = growing_lake(tmp_path, 7, 600_000)
    return lake


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Such a lake, with the table; nobody changes it."""
    *_, lake = growing_lake(tmp_path_factory.mktemp("filled"), 7, 600_000)
    backfill_lag_minutes(lake)
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


def test_a_session_has_the_rows_of_the_table(filled: Lake, foreign_session: SparkSession) -> None:
    frame = commitlake.open(filled.root, foreign_session).table("lag_minutes")
    assert frame.schema == spark_schema(LAG_MINUTES)
    assert rows_of(frame) == rows_of(commitlake.open(filled.root).table("lag_minutes")) != []
    is_hour = F.unix_micros("minute") % 3_600_000_000 == 0
    assert frame.where(is_hour == F.col("within_hour")).count() == 0


def read_tables(frame: DataFrame) -> set[str]:
    """Return the names of the tables that a DataFrame reads."""
    names = {part for file in frame.inputFiles() for part in file.split("/")}
    return names & {"lag_minutes", "messages", "consumer_offsets"}


@pytest.mark.long("what the table lacks is computed, and compared, each time")
def test_a_history_reads_the_table_where_it_has_the_minutes(filled: Lake, foreign_session: SparkSession) -> None:
    here, session = commitlake.open(filled.root), commitlake.open(filled.root, foreign_session)
    until = from_ms(MIDNIGHT_MS + 4 * 600_000)
    question: dict[str, Any] = {"window": "4 minutes", "since": from_ms(MIDNIGHT_MS), "until": until}
    for more in ({"broker": ["broker-a"]}, {"by": "group", "group": ["billing"], "topic": list(TOPICS[:2])}):
        frame = session.lag_history(**question, **more)
        assert read_tables(frame) == {"lag_minutes"}
        assert rows_of(frame) == rows_of(here.lag_history(**question, **more)) != []
    hours = session.lag_history(window="1 hour", since=from_ms(MIDNIGHT_MS - 1), until=from_ms(MIDNIGHT_MS + 3_600_000))
    expected = here.lag_history(window="1 hour", since=from_ms(MIDNIGHT_MS - 1), until=from_ms(MIDNIGHT_MS + 3_600_000))
    assert rows_of(hours) == rows_of(expected) != []


@pytest.mark.parametrize(
    "window",
    [
        "4 minutes",
        # Some of these windows do not end at whole minutes.
        pytest.param("90s", marks=pytest.mark.long("minutes that the table lacks are computed each time")),
    ],
)
def test_a_history_computes_what_the_table_lacks_and_keeps_its_versions(
    filled: Lake, tmp_path: Path, foreign_session: SparkSession, window: str
) -> None:
    lake = Lake(str(shutil.copytree(filled.root, tmp_path / "lake")))
    here, session = commitlake.open(lake.root), commitlake.open(lake.root, foreign_session)
    later = max(here.lag().column("as_of").to_pylist()) + datetime.timedelta(minutes=4)
    question: dict[str, Any] = {"window": window, "since": later - datetime.timedelta(minutes=9), "until": later}
    before, expected = session.lag_history(**question), rows_of(here.lag_history(**question))
    owner = OffsetOwner(OffsetKind.GROUP, "billing", "orders", 0)
    append_snapshot(
        lake, StoreSnapshot("broker-a", SnapshotSource.BROKER, {OffsetKind.GROUP: later}, {owner: 0}, log_end=1)
    )
    backfill_lag_minutes(lake)
    assert rows_of(here.lag_history(**question)) != expected
    assert read_tables(before) == {"lag_minutes", "messages", "consumer_offsets"}
    assert rows_of(before) == expected
