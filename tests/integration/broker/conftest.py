"""A running broker_lite for the tests with real clients."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.broker_lite import QUICK_DELAYS, SMALL_FILES, BrokerLite
from tests.servers.rocketmq import VERSIONS


@pytest.fixture(params=VERSIONS)
def client_version(request: pytest.FixtureRequest) -> str:
    """Each version of RocketMQ's client."""
    return str(request.param)


@pytest.fixture
def broker_lite(tmp_path: Path) -> Iterator[BrokerLite]:
    """A broker on a new store with small files."""
    with BrokerLite(tmp_path / "broker", options=(*SMALL_FILES, *QUICK_DELAYS)) as running:
        yield running
