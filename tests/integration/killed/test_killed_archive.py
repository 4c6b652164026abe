"""An archive that is killed anywhere, and run again: the tables equal those of an undisturbed archive.

The log grows between the runs, and some of its bodies are damaged, so that every table has something to lose. Tasks run
on threads each time, and on Spark before a release: each of its runs begins a JVM. What commits is the same.
"""

from __future__ import annotations

import os
import random
import signal
from functools import partial
from itertools import chain, repeat
from pathlib import Path

import pytest
from deltalake import DeltaTable

from commitlake.broker_lite.stores.rocketmq import MessageStore, StoreOptions
from commitlake.broker_lite.stores.rocketmq.writing import PutResult
from commitlake.connectors.lake.paths import LakePaths
from tests.integration.killed.child import DISK_FULL, STEPS
from tests.support.archive_processes import (
    PATIENCE_SECONDS,
    archive,
    archive_process,
    begin,
    launch,
    launched_ahead,
    ready,
)
from tests.support.corpus import json_bodies, shop_batches
from tests.support.kills import kill_count
from tests.support.lake_contents import check_bodies, content
from tests.support.waiting import let_pass

KILLS = kill_count(3)
SEGMENT = 4 << 20
OPTIONS = StoreOptions(segment_size_bytes=SEGMENT, index_slots=1000, index_entries=4000, keep_index=False)
AROUND_COMMITS = ("before the commit", "after the commit", "before the run is told", "before the keys are committed")
GROWTH = 1500  # messages before each run: some MiB


class GrowingStore:
    """A store that a producer writes to, and a disk damages here and there."""

    def __init__(self, root: Path, seed: int) -> None:
        self.root = root
        self._chance = random.Random(seed)
        self._batches = shop_batches(json_bodies(1024, count=200, seed=seed))
        self.damaged = 0

    def grow(self, count: int = GROWTH) -> None:
        """Write more messages, and damage the body of one of them."""
        written: list[PutResult] = []
        with MessageStore.open(self.root, OPTIONS) as store:
            while len(written) < count:
                written += store.put_batch(next(self._batches))
        victim = self._chance.choice(written[: len(written) // 2])
        base = victim.physical_offset - victim.physical_offset % SEGMENT
        with (self.root / "commitlog" / f"{base:020d}").open("r+b") as segment:
            segment.seek(victim.physical_offset - base + 200)
            byte = segment.read(1)[0]
            segment.seek(-1, os.SEEK_CUR)
            segment.write(bytes([byte ^ 0x55]))
        self.damaged += 1


@pytest.fixture(params=["threads", pytest.param("spark", marks=pytest.mark.long("each run begins a JVM"))])
def where(request: pytest.FixtureRequest) -> str:
    """The runner of an archive's tasks."""
    return str(request.param)


def check_same(where: str, store: GrowingStore, lake: Path, peaceful: Path) -> None:
    """Compare a lake with one that was made of the whole log in one go, row by row."""
    archive(where, store.root, peaceful)
    found, expected = content(lake), content(peaceful)
    for name, table in expected.items():
        assert found[name].num_rows == table.num_rows, (
            f"{name}: expected {table.num_rows}, found {found[name].num_rows}"
        )
        assert found[name].equals(table), name
    assert found["quarantine"].num_rows == store.damaged
    check_bodies(store.root, SEGMENT, lake)
    runs = DeltaTable(LakePaths(str(lake)).archive_runs).to_pyarrow_table().to_pylist()
    assert sorted(run["sequence"] for run in runs) == list(range(1, len(runs) + 1))
    assert sum(run["messages"] for run in runs) == expected["messages"].num_rows
    assert sum(run["quarantined"] for run in runs) == store.damaged


@pytest.mark.long("runs are killed around the commits each time")
@pytest.mark.kills
@pytest.mark.timeout(120 + 60 * KILLS)
def test_runs_killed_at_random_moments_lose_and_duplicate_no_message(where: str, tmp_path: Path) -> None:
    store = GrowingStore(tmp_path / "store", seed=20261121)
    chance = random.Random(4711)
    store.grow(2 * GROWTH)
    seconds = archive(where, store.root, tmp_path / "measured")
    lake = tmp_path / "lake"
    killed = 0
    with launched_ahead(where, store.root, lake, repeat(None, KILLS)) as ahead:
        for launched in chain(ahead, map(partial(launch, where, store.root, lake), repeat(None))):
            with ready(launched) as process:
                begin(process)
                let_pass(chance.uniform(0, seconds), "it is killed at any moment")
                killed += process.poll() is None
            store.grow(GROWTH if killed % 3 else 64)
            if killed == KILLS:
                break
    archive(where, store.root, lake)
    check_same(where, store, lake, tmp_path / "peaceful")


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(AROUND_COMMITS, id="around the commits"),
        pytest.param(tuple(STEPS), id="all", marks=pytest.mark.long("those around the commits have most to lose")),
    ],
)
@pytest.mark.timeout(120 + 60 * len(STEPS))
def test_runs_killed_at_a_step_lose_and_duplicate_no_message(
    where: str, tmp_path: Path, steps: tuple[str, ...]
) -> None:
    store = GrowingStore(tmp_path / "store", seed=7)
    lake = tmp_path / "lake"
    with launched_ahead(where, store.root, lake, steps) as processes:
        for step, launched in zip(steps, processes, strict=True):
            store.grow()
            with ready(launched) as process:
                begin(process)
                assert process.wait(PATIENCE_SECONDS) == -signal.SIGKILL, step
    archive(where, store.root, lake)
    check_same(where, store, lake, tmp_path / "peaceful")


def test_a_full_disk_fails_the_run_and_leaves_the_lake_unchanged(where: str, tmp_path: Path) -> None:
    store = GrowingStore(tmp_path / "store", seed=5)
    lake = tmp_path / "lake"
    store.grow()
    archive(where, store.root, lake)
    before = content(lake)
    store.grow()
    with archive_process(where, store.root, lake, DISK_FULL) as process:
        begin(process)
        _, errors = process.communicate(timeout=PATIENCE_SECONDS)
        assert process.returncode == 1
        assert "File too large" in errors
    assert content(lake) == before
    archive(where, store.root, lake)
    check_same(where, store, lake, tmp_path / "peaceful")


@pytest.mark.long("two runs over one store are raced each time")
def test_the_same_job_started_twice_archives_once(where: str, tmp_path: Path) -> None:
    store = GrowingStore(tmp_path / "store", seed=11)
    store.grow()
    lake = tmp_path / "lake"
    with archive_process(where, store.root, lake) as first, archive_process(where, store.root, lake) as second:
        begin(first)
        begin(second)
        answers = [process.stdout.readline() for process in (first, second) if process.stdout]
        errors = [process.stderr.read() for process, answer in zip((first, second), answers, strict=True)
                  if not answer and process.stderr]  # fmt: skip
    assert [answer.startswith("done") for answer in answers].count(True) >= 1
    assert all("ConcurrentArchiveError" in error for error in errors)
    check_same(where, store, lake, tmp_path / "peaceful")
