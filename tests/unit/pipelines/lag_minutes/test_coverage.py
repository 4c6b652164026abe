"""A history of lag reads `lag_minutes` only where the table has what `lag` has now."""

from __future__ import annotations

import datetime
import itertools
from pathlib import Path
from typing import Any

import pytest

import commitlake
from commitlake.pipelines.analysis import arrow_lag
from commitlake.pipelines.lag.store_lag import lag_of_lake
from commitlake.pipelines.lag_minutes.backfill import backfill_lag_minutes
from commitlake.pipelines.lag_minutes.coverage import CoveredMinutes, find_covered_minutes
from commitlake.pipelines.lag_minutes.minute_computation import minute_time
from commitlake.pipelines.maintenance.expiry import record_expiry
from commitlake.pipelines.snapshot.progress import OffsetKind, OffsetOwner, SnapshotSource, StoreSnapshot
from commitlake.pipelines.snapshot.table_append import append_snapshot
from tests.support.analysed_lakes import rows_of
from tests.support.lagging_lakes import growing_lake
from tests.support.lakes import MIDNIGHT_MS, GrowingLake
from tests.support.logs import new_message

FIRST = MIDNIGHT_MS // 60_000


@pytest.fixture
def growing(tmp_path: Path) -> GrowingLake:
    """A lake with the lag of the minutes from 0:01 to 0:09."""
    growing = GrowingLake(tmp_path)
    growing.write(new_message(topic="orders", queue_id=0, born_timestamp=MIDNIGHT_MS + n * 60_000) for n in range(8))
    growing.archive()
    owner = OffsetOwner(OffsetKind.GROUP, "billing", "orders", 0)
    for minute in (1, 4, 9):
        taken = {OffsetKind.GROUP: minute_time(FIRST + minute)}
        progress = StoreSnapshot("broker-a", SnapshotSource.FILE, taken, {owner: minute // 2}, log_end=len(growing.log))
        append_snapshot(growing.lake, progress)
    return growing


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[datetime.datetime]:
    """The times at which a history measures the lag itself."""
    found: list[datetime.datetime] = []

    def counted(*arguments: Any) -> Any:
        found.append(arguments[1])
        return lag_of_lake(*arguments)

    monkeypatch.setattr(arrow_lag, "lag_of_lake", counted)
    return found


def test_minutes_that_came_late_are_not_covered(growing: GrowingLake) -> None:
    assert find_covered_minutes(growing.lake.pin_versions(), ["broker-a"]) == {}
    backfill_lag_minutes(growing.lake)
    assert find_covered_minutes(growing.lake.pin_versions(), ["broker-a"]) == {"broker-a": CoveredMinutes(0, FIRST + 9)}
    growing.write([new_message(topic="orders", queue_id=0, born_timestamp=MIDNIGHT_MS + 5 * 60_000)])
    growing.archive()
    assert find_covered_minutes(growing.lake.pin_versions(), ["broker-a"])["broker-a"].last == FIRST + 4
    backfill_lag_minutes(growing.lake)
    record_expiry(growing.lake, "lag_minutes", minute_time(FIRST).date())
    assert find_covered_minutes(growing.lake.pin_versions(), ["broker-a"]) == {
        "broker-a": CoveredMinutes(FIRST, FIRST + 9)
    }
    assert find_covered_minutes(growing.lake.pin_versions(), ["none"]) == {}


@pytest.mark.some_cases(1)
@pytest.mark.parametrize("by", ["queue", "group"])
def test_a_history_measures_what_is_not_covered(
    growing: GrowingLake, measured: list[datetime.datetime], by: Any
) -> None:
    lake = commitlake.open(growing.lake.root)
    question = {"window": "30s", "since": minute_time(FIRST + 2), "until": minute_time(FIRST + 9), "by": by}
    expected = rows_of(lake.lag_history(**question))
    assert len(measured) == 14
    backfill_lag_minutes(growing.lake)
    measured.clear()
    assert rows_of(lake.lag_history(**question)) == expected != []
    assert all(time.second == 30 for time in measured)
    assert len(measured) == 7
    measured.clear()
    assert rows_of(lake.lag_history(window="1 minute", until=minute_time(FIRST + 9), by=by))
    assert measured == []


@pytest.mark.some_cases(1)
@pytest.mark.parametrize("seed", [2, pytest.param(1, marks=pytest.mark.long("another lake is compared each time"))])
def test_a_history_is_the_same_with_and_without_the_table(tmp_path: Path, seed: int) -> None:
    """Stores have minutes up to different ones; some are not computed yet."""
    *_, random_lake = itertools.islice(growing_lake(tmp_path, seed, 60_000), 6)
    lake = commitlake.open(random_lake.root)
    until = minute_time(FIRST + 6)
    questions: list[dict[str, Any]] = [
        {"window": "1 minute", "until": until},
        {"window": "2 minutes", "until": until, "by": "group"},
        {"window": "1 minute", "until": until, "broker": ["broker-a", "none"], "group": ["billing", "audit"]},
        {"window": "1 minute", "until": until, "group": "audit@broadcast"},
        {"window": "1 minute", "until": until, "topic": ["orders", "%RETRY%billing"], "by": "group"},
    ]
    expected = [rows_of(lake.lag_history(**question)) for question in questions]
    backfill_lag_minutes(random_lake)
    found = [rows_of(lake.lag_history(**question)) for question in questions]
    assert found == expected
    assert sum(map(len, found))
