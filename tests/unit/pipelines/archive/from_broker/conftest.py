"""A broker in this process, and a lake that is fed from it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.live_brokers import LiveCluster
from tests.support.live_reading import create_topic
from tests.support.pulled_lakes import PulledLake


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LiveCluster]:
    """One broker with the topic orders, of two queues."""
    with LiveCluster(tmp_path) as running:
        create_topic(running.brokers["broker-a"])
        yield running


@pytest.fixture
def lake(cluster: LiveCluster, tmp_path: Path) -> PulledLake:
    """A lake that is still to be made."""
    return PulledLake(cluster, tmp_path / "lake")
