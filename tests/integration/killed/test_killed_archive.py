"""An archive that is killed anywhere, and run again: the tables equal those of an undisturbed archive.

The log grows between the runs, and some of its bodies are damaged, so that every table has rows to lose. Tasks always
run on threads, and on Spark only before a release, because each run there starts a JVM. Both commit by the same code.
"""

from __future__ import annotations

import random
import signal
from functools import partial
from itertools import chain, repeat
from pathlib import Path

import pytest

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
from tests.support.growing_stores import GROWTH, GrowingStore, check_same
from tests.support.kills import kill_count
from tests.support.lake_contents import content
from tests.support.waiting import let_pass

KILLS = kill_count(3)
AROUND_COMMITS = ("before the commit", "after the second commit", "before the keys are committed")


@pytest.fixture(params=["threads", pytest.param("spark", marks=pytest.mark.long("each run begins a JVM"))])
def where(request: pytest.FixtureRequest) -> str:
    """The runner of an archive's tasks."""
    return str(request.param)


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


@pytest.mark.long("a run that is killed before its commit is made good by the same steps each time")
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
    assert all("ConcurrentRunError" in error for error in errors)
    check_same(where, store, lake, tmp_path / "peaceful")
