"""`archive --follow`: new messages are in the lake within seconds, once, for any end of the process."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable

from commitlake.broker_lite.stores.rocketmq import MessageStore, StoreOptions
from commitlake.connectors.lake.lake import Lake
from tests.support.comparing import plain_rows
from tests.support.logs import messages
from tests.support.planted_modules import LOADED, plant_modules
from tests.support.process_trees import kill_tree
from tests.support.waiting import wait_until

OPTIONS = StoreOptions(segment_size_bytes=1 << 16, index_slots=100, index_entries=400)
PATIENCE_SECONDS = 240


class Follower:
    """An `archive --follow` in a process of its own, in a folder with modules that nobody may import."""

    def __init__(self, store: Path, lake: Path, *arguments: str) -> None:
        self._here = plant_modules(store.with_name("here"))
        command = [
            sys.executable,
            "-P",
            "-m",
            "commitlake.jobs.cli.main",
            "archive",
            "--store",
            str(store),
            "--broker",
            "a",
        ]
        command += ["--lake", str(lake), "--spark", "--trigger", "1s", *(arguments or ["--follow"])]
        self.process = subprocess.Popen(
            command,
            cwd=self._here,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def end(self, number: int) -> int:
        """Send a signal to the job; its exit code."""
        os.kill(self.process.pid, number)
        return self.wait()

    def wait(self) -> int:
        """Wait for the end of the job, and return its exit code."""
        self.error = self.process.communicate(timeout=PATIENCE_SECONDS)[1]
        assert not (self._here / LOADED).exists(), (self._here / LOADED).read_text()
        return self.process.returncode

    def close(self) -> None:
        """Leave nothing of it."""
        if self.process.poll() is None:
            kill_tree(self.process.pid)
            self.process.communicate()


def write(store: Path, count: int, seed: int) -> None:
    """Store messages as a producer sends them."""
    with MessageStore.open(store, OPTIONS) as broker:
        for message in messages(count, seed=seed):
            broker.put(message)


def offsets(lake: Path) -> list[int]:
    """The archived messages, by their place in the log."""
    try:
        table = DeltaTable(Lake(str(lake)).uri("messages"))
    except Exception:  # noqa: BLE001 (not there yet, or being made)
        return []
    return sorted(table.to_pyarrow_table(columns=["physical_offset"]).column(0).to_pylist())


def write_and_wait(store: Path, lake: Path, times: int) -> list[float]:
    """Write messages so many times, and wait each time until a follower has archived them; the seconds that took."""
    wait_until(lambda: len(offsets(lake)) == 50, PATIENCE_SECONDS)
    waits = []
    for number in range(times):
        write(store, 20, seed=2 + number)
        expected = 50 + 20 * (number + 1)
        waits.append(wait_until(lambda expected=expected: len(offsets(lake)) == expected, PATIENCE_SECONDS))  # type: ignore[misc]
    return waits


@pytest.mark.timed
@pytest.mark.long("it measures seconds, beside which nothing may run")
@pytest.mark.timeout(900)
def test_new_messages_are_archived_within_seconds(tmp_path: Path) -> None:
    store, lake = tmp_path / "store", tmp_path / "lake"
    write(store, 50, seed=1)
    follower = Follower(store, lake)
    try:
        waits = write_and_wait(store, lake, 6)
        assert min(waits[1:]) < 5, waits
        assert follower.end(signal.SIGTERM) == 0
    finally:
        follower.close()


@pytest.mark.timeout(900)
def test_what_is_there_is_archived_once(tmp_path: Path) -> None:
    store, lake = tmp_path / "store", tmp_path / "lake"
    write(store, 70, seed=1)
    follower = Follower(store, lake, "--available-now")
    try:
        assert follower.wait() == 0, follower.error
    finally:
        follower.close()
    assert offsets(lake) == [row["physical_offset"] for row in plain_rows(store)]
    assert len(offsets(lake)) == 70


@pytest.mark.parametrize(
    "stops",
    [
        pytest.param(True, marks=pytest.mark.long("three JVMs; a killed stream is continued each time")),
        pytest.param(False, marks=pytest.mark.long("two JVMs; a killed stream is continued each time")),
    ],
)
@pytest.mark.timeout(900)
def test_messages_are_archived_once_after_a_stop_or_a_kill(tmp_path: Path, stops: bool) -> None:
    store, lake = tmp_path / "store", tmp_path / "lake"
    write(store, 50, seed=1)
    follower = Follower(store, lake)
    try:
        write_and_wait(store, lake, 2)
        if stops:
            assert follower.end(signal.SIGTERM) == 0
            follower.close()
            follower = Follower(store, lake)
        write(store, 30, seed=20)
        wait_until(lambda: len(offsets(lake)) == 120, PATIENCE_SECONDS)
        kill_tree(follower.process.pid)
        follower.close()
        write(store, 10, seed=21)
        shutil.rmtree(lake / "_streams")  # a checkpoint that is lost costs no message
        follower = Follower(store, lake, "--available-now")
        assert follower.wait() == 0
    finally:
        follower.close()
    assert offsets(lake) == [row["physical_offset"] for row in plain_rows(store)]
    assert len(offsets(lake)) == 130


@pytest.mark.long("three JVMs; two archives of one store are run at the same time each time")
@pytest.mark.timeout(900)
def test_runs_during_follow_succeed_and_duplicate_no_message(tmp_path: Path) -> None:
    store, lake = tmp_path / "store", tmp_path / "lake"
    write(store, 50, seed=1)
    follower = Follower(store, lake)
    nightly: list[Follower] = []
    try:
        wait_until(lambda: len(offsets(lake)) == 50, PATIENCE_SECONDS)
        nightly = [Follower(store, lake, "--quiet") for _ in range(2)]
        number = 0
        while any(run.process.poll() is None for run in nightly):
            number += 1
            write(store, 20, seed=2 + number)
        assert [(run.wait(), run.error) for run in nightly] == [(0, "")] * 2
        wait_until(lambda: len(offsets(lake)) == 50 + 20 * number, PATIENCE_SECONDS)
        assert follower.end(signal.SIGTERM) == 0
    finally:
        for each in (follower, *nightly):
            each.close()
    assert offsets(lake) == [row["physical_offset"] for row in plain_rows(store)]
