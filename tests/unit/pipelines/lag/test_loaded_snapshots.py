"""Snapshots in memory have the offsets of those in the table, at any time of their range."""

from __future__ import annotations

import datetime
import random

import pytest

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.snapshot_tables import OFFSETS
from commitlake.pipelines.lag.loaded_snapshots import LoadedSnapshots
from commitlake.pipelines.lag.offsets import WATCH, StoredSnapshots, offset_state_at
from commitlake.pipelines.snapshot.progress import OffsetKind
from commitlake.schemas.times import from_ms
from tests.support.lagging_lakes import BROKERS, EVERY_MS, LAKES, STEPS, lagging_lake
from tests.support.lakes import MIDNIGHT_MS

GROUP = OffsetKind.GROUP


@pytest.mark.some_cases(2)
@pytest.mark.parametrize(
    "seed",
    [
        *range(LAKES // 2),
        *(
            pytest.param(seed, marks=pytest.mark.long("lakes that lack the same, with other messages, each time"))
            for seed in range(LAKES // 2, LAKES)
        ),
    ],
)
def test_offsets_are_those_of_the_table(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(seed)
    table = Lake(lagging_lake(seed)).table(OFFSETS)
    for watch in (WATCH, datetime.timedelta(seconds=40)):
        monkeypatch.setattr("commitlake.pipelines.lag.loaded_snapshots.WATCH", watch)
        for broker in BROKERS:
            stored = StoredSnapshots(table, broker)
            first, last = sorted(chance.sample(range((STEPS + 2) * EVERY_MS), 2))
            loaded = LoadedSnapshots(table, broker, from_ms(MIDNIGHT_MS + first), from_ms(MIDNIGHT_MS + last))
            snapshots = range(-(-first // EVERY_MS) * EVERY_MS, last, EVERY_MS)
            for time in {first, last, *snapshots, *(chance.randint(first, last) for _ in range(4))}:
                at = from_ms(MIDNIGHT_MS + time)
                assert offset_state_at(loaded, GROUP, at, watch) == offset_state_at(stored, GROUP, at, watch), (
                    broker,
                    at,
                )


def test_a_range_before_the_first_snapshot_has_no_offsets() -> None:
    table = Lake(lagging_lake(0)).table(OFFSETS)
    for broker in (*BROKERS, "none"):
        loaded = LoadedSnapshots(table, broker, from_ms(MIDNIGHT_MS - 60_000), from_ms(MIDNIGHT_MS))
        assert offset_state_at(loaded, GROUP, from_ms(MIDNIGHT_MS)) is None
