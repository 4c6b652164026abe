"""A broker's clock that steps, also across midnight: archived rows do not depend on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from commitlake.broker_lite.stores.rocketmq import MessageStore, StoreOptions
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.runtime.local_runner import ThreadRunner
from commitlake.connectors.runtime.runner import Runner
from commitlake.connectors.spark.runner import SparkRunner
from commitlake.pipelines.archive.run import Config, run_archive
from commitlake.schemas.layouts.rocketmq.commitlog import NewMessage
from tests.support.lake_contents import check_bodies, content
from tests.support.logs import BROKER_HOST

SEGMENT = 64 << 10
OPTIONS = StoreOptions(segment_size_bytes=SEGMENT, index_slots=100, index_entries=400)
MIDNIGHT_MS = 1_700_006_400_000
DAY_MS = 86_400_000
STEPS_MS = (-10 * 60_000, 3 * DAY_MS, -5 * DAY_MS, 60_000, -400 * DAY_MS, 401 * DAY_MS)


class Clock:
    """A clock that advances a millisecond per reading, and can be moved forward or back."""

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        """Return the time, ms since 1970."""
        self.now_ms += 1
        return self.now_ms


@pytest.fixture(params=["threads", pytest.param("spark", marks=pytest.mark.long("each task is the same"))])
def runner(request: pytest.FixtureRequest) -> Runner:
    """The runner of an archive's tasks."""
    return SparkRunner(request.getfixturevalue("spark")) if request.param == "spark" else ThreadRunner()


def test_a_clock_that_steps_loses_and_duplicates_no_message(runner: Runner, tmp_path: Path) -> None:
    clock = Clock(MIDNIGHT_MS + 60_000)
    root = tmp_path / "store"
    sent = 0
    for step_ms in STEPS_MS:
        with MessageStore.open(root, OPTIONS, clock=clock) as store:
            for number in range(150):
                body = b"%d in all" % sent
                born = clock.now_ms - 5
                properties = [("KEYS", f"order-{sent % 40}")]
                store.put(NewMessage(f"topic-{number % 3}", body, born, BROKER_HOST, properties=properties))
                sent += 1
                if number == 75:  # within a segment, and within a run
                    clock.now_ms += step_ms
        result = run_archive(runner, Config(str(root), Lake(str(tmp_path / "lake")), "a"))
        assert (result.messages, result.quarantined, result.gaps) == (150, 0, 0)
    run_archive(runner, Config(str(root), Lake(str(tmp_path / "peaceful")), "a"))
    found, expected = content(tmp_path / "lake"), content(tmp_path / "peaceful")
    assert found.keys() == expected.keys()
    for name, rows in expected.items():
        assert found[name].equals(rows), name
    assert found["messages"].num_rows == sent
    check_bodies(root, SEGMENT, tmp_path / "lake")
    assert len({path.name for path in Path(Lake(str(tmp_path / "lake")).bodies_root).iterdir()}) > 3
