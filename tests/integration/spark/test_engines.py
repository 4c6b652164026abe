"""Both engines give the same rows: of lakes of logs that real brokers wrote, and of random lakes."""

from __future__ import annotations

import datetime
import os
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import commitlake
from commitlake.connectors.lake.lake import Lake
from commitlake.pipelines.edges.table_update import follow_edges
from commitlake.pipelines.lag_minutes.backfill import backfill_lag_minutes
from commitlake.pipelines.snapshot.progress import OffsetKind, OffsetOwner, SnapshotSource, StoreSnapshot
from commitlake.pipelines.snapshot.table_append import append_snapshot
from tests.support.analysed_lakes import QUESTIONS as RATES
from tests.support.analysed_lakes import rows_of
from tests.support.hypothesis_profiles import load
from tests.support.jmq_consumers import JmqShop
from tests.support.journeyed_lakes import PLANS, WINDOWS, JourneyedLake, Sent, time_of
from tests.support.lagging_lakes import BROKERS, LAG_HISTORY_QUESTIONS, LAG_QUESTIONS, growing_lake
from tests.support.lakes import archive_store
from tests.support.logs import write_store
from tests.support.small_stores import Clock

load()

RANDOM_LAKES = int(os.environ.get("TEST_LAKES", "6"))
LAKES_AT_ONCE = 3
"""Random lakes whose stores and keys are put into one: a query of Spark takes long to plan, and short to run."""
GOLDEN = Path(__file__).parents[2] / "golden"
SLICES = {  # by name of a store: slices of its log, of which the last one begins after a gap
    "4.9.7": ["rocketmq-4.9.7-00000000000000000000-0"],
    "5.5.0": ["rocketmq-5.5.0-00000000000000000000-0"],
    "damaged": ["rocketmq-5.5.0-00000000000003145728-350065"],
}
JMQ = "jmq"
REAL_STORES = [name for name in SLICES if name != "damaged"]
SEGMENT = 1 << 20
MINUTE = datetime.timedelta(minutes=1)


@pytest.fixture
def planned_once(foreign_session: SparkSession) -> Iterator[SparkSession]:
    """The session without adaptive execution, which plans a query again after each stage: of a few rows, for longer."""
    foreign_session.conf.set("spark.sql.adaptive.enabled", "false")
    yield foreign_session
    foreign_session.conf.set("spark.sql.adaptive.enabled", "true")


def check(spark: SparkSession, root: str, method: str, question: dict[str, Any]) -> list[dict[str, Any]]:
    """Check that a method of a lake returns the same rows with Spark and without it, and return them."""
    here = rows_of(getattr(commitlake.open(root), method)(**question))
    assert rows_of(getattr(commitlake.open(root, spark), method)(**question)) == here, (method, question)
    return here


def real_lake(folder: Path, name: str) -> Lake:
    """Return a lake of slices that a real broker wrote, in which groups have consumed some messages of each queue."""
    lake, segments = Lake(str(folder / "lake")), []
    for slice_name in SLICES[name]:
        _, _, base, position = slice_name.split("-")
        data = bytes(int(position)) + (GOLDEN / f"{slice_name}.bin").read_bytes()
        segments.append((int(base), data.ljust(SEGMENT, b"\0")))
    archive_store(write_store(folder / name, segments), lake, name)
    return _with_groups(lake, name)


def jmq_lake(folder: Path) -> Lake:
    """Return a lake of a JMQ store, whose messages applications have consumed and failed to consume."""
    shop = JmqShop(folder, Clock())
    shop.send(0, 60)
    shop.consume("billing", 20, fails=lambda offset: offset in {3, 7})
    shop.consume("shipping", 5)
    shop.archive()
    shop.retry("billing", succeeds=False)
    shop.send(60, 10)
    shop.archive()
    return _with_groups(shop.lake, shop.store.name)


def _with_groups(lake: Lake, name: str) -> Lake:
    """Add snapshots of two groups, which have consumed some messages of each queue, and their lag at each minute."""
    follow_edges(lake)
    rows = commitlake.open(lake.root).messages(columns=["topic", "queue_id", "queue_offset", "store_timestamp"])
    ends: dict[tuple[str, int], int] = {}
    for row in rows.to_pylist():
        queue = row["topic"], row["queue_id"]
        ends[queue] = max(ends.get(queue, 0), row["queue_offset"] + 1)
    last = max(row["store_timestamp"] for row in rows.to_pylist())
    chance = random.Random(5)
    for minutes in (0, 3):
        offsets = {
            OffsetOwner(OffsetKind.GROUP, group, *queue): chance.randint(0, end)
            for queue, end in ends.items()
            for group in ("billing", "shipping")
        }
        taken = {OffsetKind.GROUP: last + minutes * MINUTE}
        append_snapshot(lake, StoreSnapshot(name, SnapshotSource.BROKER, taken, offsets, log_end=1))
    backfill_lag_minutes(lake)
    return lake


@pytest.mark.parametrize(
    "name",
    [
        "damaged",
        *(pytest.param(name, marks=pytest.mark.long("another lake each time")) for name in [*REAL_STORES, JMQ]),
    ],
)
def test_rows_of_real_brokers_are_the_same(foreign_session: SparkSession, tmp_path: Path, name: str) -> None:
    root = (jmq_lake(tmp_path) if name == JMQ else real_lake(tmp_path, name)).root
    last = max(commitlake.open(root).lag().column("as_of").to_pylist())
    times = {"since": last - 60 * MINUTE, "until": last + MINUTE}
    assert check(foreign_session, root, "tps", {"by": ["topic", "kind", "tag", "queue"], "window": "1s"})
    assert len(check(foreign_session, root, "dead_letters", {})) == (3 if name == "damaged" else 0)
    assert check(foreign_session, root, "lag_history", {"window": "1 minute", "since": last - 5 * MINUTE})
    if name != "damaged":  # these take longer, and are compared for other lakes each time
        assert check(foreign_session, root, "lag", {})
        assert check(foreign_session, root, "journeys", times)
        check(foreign_session, root, "topic_flow", times)
        messages = commitlake.open(root).messages(columns=["keys"]).to_pylist()
        keys = sorted({key for row in messages for key in row["keys"] or ()})[:1000]
        assert len(check(foreign_session, root, "lineage", {"keys": [*keys, "no such key"]})) > len(keys) > 10


def _join_plans(plans: Sequence[Sequence[Sent]]) -> Iterator[Sent]:
    """Yield the messages of several plans, each with keys of its own."""
    for number, plan in enumerate(plans):
        for sent in plan:
            yield replace(sent, key=" ".join(f"{number}-{key}" for key in sent.key.split()))


@pytest.mark.long("TEST_LAKES lakes are made and compared")
@pytest.mark.timeout(600 + 200 * RANDOM_LAKES)
@settings(max_examples=max(1, RANDOM_LAKES // LAKES_AT_ONCE), phases=(Phase.reuse, Phase.generate))
@given(
    seed=st.integers(0, 1 << 30),
    plans=st.lists(PLANS, min_size=LAKES_AT_ONCE, max_size=LAKES_AT_ONCE),
    window=WINDOWS,
    rates=RATES,
    lag=LAG_QUESTIONS,
    history=LAG_HISTORY_QUESTIONS,
    has_minutes=st.booleans(),
)
def test_rows_of_random_lakes_are_the_same(
    planned_once: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
    seed: int,
    plans: Sequence[Sequence[Sent]],
    window: tuple[int, int, int],
    rates: dict[str, Any],
    lag: dict[str, Any],
    history: dict[str, Any],
    has_minutes: bool,
) -> None:
    folder = tmp_path_factory.mktemp("engines-")
    more = [f"broker-{number}" for number in range(2 * LAKES_AT_ONCE - len(BROKERS))]
    *_, lagging = growing_lake(folder / "lagging", seed, 30_000, [*BROKERS, *more])
    if has_minutes:
        backfill_lag_minutes(lagging)
    check(planned_once, lagging.root, "lag", lag)
    check(planned_once, lagging.root, "lag_history", history)
    check(planned_once, lagging.root, "tps", rates)
    journeyed = JourneyedLake(folder / "journeyed", list(_join_plans(plans))).root
    since, length, margin = window
    times = {"since": time_of(since), "until": time_of(since + length), "margin": f"{margin}s"}
    check(planned_once, journeyed, "journeys", times)
    check(planned_once, journeyed, "topic_flow", times)
    check(planned_once, journeyed, "dead_letters", {})
    check(planned_once, journeyed, "tps", {"by": rates["by"], "window": rates["window"]})
