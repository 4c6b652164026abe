"""An archive that pulls from a broker, is killed anywhere, and run again: rows equal those of the files, each once."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path

import pytest
from deltalake import DeltaTable

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.runtime.local_runner import HERE
from commitlake.pipelines.archive.run import Config, run_archive
from tests.integration.killed.child import NAME_SERVER, STEPS
from tests.support.archive_processes import PATIENCE_SECONDS, archive, begin, launched_ahead, ready
from tests.support.kills import kill_count
from tests.support.lake_contents import check_bodies, content
from tests.support.live_brokers import STORE, LiveCluster
from tests.support.live_reading import create_topic, put
from tests.support.waiting import let_pass

KILLS = kill_count(2)
GROWTH = 300
AROUND_COMMITS = ("before the commit", "after the commit")


class Broker:
    """A broker in this process, which receives messages between the runs."""

    def __init__(self, cluster: LiveCluster) -> None:
        self.cluster = cluster
        self.live = cluster.brokers["broker-a"]
        self.place = f"{NAME_SERVER}{cluster.address}"
        self._chance = random.Random(20261124)
        self._count = 0
        for topic, queues in (("orders", 4), ("payments", 1)):
            create_topic(self.live, topic, queues)

    def grow(self) -> None:
        """Store more messages."""
        with self.cluster.lock:
            for topic, queues in (("orders", range(4)), ("payments", range(1))):
                body = self._chance.randbytes(self._chance.randrange(2000))
                put(self.live, GROWTH, self._count, queues, topic=topic, body=body)
        self._count += GROWTH


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker with some messages."""
    with LiveCluster(tmp_path) as cluster:
        made = Broker(cluster)
        made.grow()
        yield made


def check_same(broker: Broker, lake: Path, folder: Path) -> None:
    """Compare a lake with an undisturbed one of the broker's files."""
    config = Config(str(broker.live.store.path), Lake(str(folder / "files")), "broker-a", parser_version="1")
    run_archive(HERE, config)
    found, expected = content(lake), content(folder / "files")
    for name, table in expected.items():
        assert found[name].num_rows == table.num_rows, name
        assert found[name].equals(table), name
    check_bodies(broker.live.store.path, STORE.segment_size_bytes, lake)
    runs = DeltaTable(Lake(str(lake)).uri("archive_runs")).to_pyarrow_table().to_pylist()
    assert sorted(run["sequence"] for run in runs) == list(range(1, len(runs) + 1))
    assert sum(run["messages"] for run in runs) == expected["messages"].num_rows


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(
            AROUND_COMMITS,
            id="around the commit",
            marks=pytest.mark.long("an archive of a store is killed around the same commits each time"),
        ),
        pytest.param(
            tuple(step for step in STEPS if "second" not in step),
            id="all",
            marks=pytest.mark.long("those around the commit have most to lose"),
        ),
    ],
)
@pytest.mark.timeout(120 + 60 * len(STEPS))
def test_runs_killed_at_a_step_lose_and_duplicate_no_message(
    broker: Broker, tmp_path: Path, steps: tuple[str, ...]
) -> None:
    lake = tmp_path / "lake"
    reached = 0
    with launched_ahead("threads", broker.place, lake, steps) as processes:
        for step, launched in zip(steps, processes, strict=True):
            broker.grow()
            with ready(launched) as process:
                begin(process)
                code = process.wait(PATIENCE_SECONDS)
            assert code == -signal.SIGKILL or "quarantine" in step, step
            reached += code == -signal.SIGKILL
    assert reached >= len(AROUND_COMMITS)
    archive("threads", broker.place, lake)
    check_same(broker, lake, tmp_path)


@pytest.mark.long("an archive of a store is killed around the same commits each time")
@pytest.mark.kills
@pytest.mark.timeout(120 + 60 * KILLS)
def test_runs_killed_at_random_moments_lose_and_duplicate_no_message(broker: Broker, tmp_path: Path) -> None:
    chance = random.Random(4711)
    lake = tmp_path / "lake"
    seconds = archive("threads", broker.place, tmp_path / "measured")
    with launched_ahead("threads", broker.place, lake, repeat(None, KILLS)) as ahead:
        for launched in ahead:
            with ready(launched) as process:
                begin(process)
                let_pass(chance.uniform(0, seconds), "it is killed at any moment")
            broker.grow()
    archive("threads", broker.place, lake)
    check_same(broker, lake, tmp_path)
