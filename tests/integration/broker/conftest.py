"""A running broker_lite for the tests with real clients."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.broker_lite import SMALL_FILES, BrokerLite
from tests.servers.rocketmq import VERSIONS

QUICK = ("--delay-levels", "1s 2s 1s 1s 3s 1h", "--transaction-timeout", "4s", "--transaction-check-interval", "2s",
         "--transaction-check-max", "3")  # fmt: skip
"""As tests.servers.recording.RECORDING_OPTIONS: delays and check-backs that a test can wait for."""


@pytest.fixture(params=VERSIONS)
def client_version(request: pytest.FixtureRequest) -> str:
    """Each version of RocketMQ's client."""
    return str(request.param)


@pytest.fixture
def broker_lite(tmp_path: Path) -> Iterator[BrokerLite]:
    """A broker on a new store with small files."""
    with BrokerLite(tmp_path / "broker", options=(*SMALL_FILES, *QUICK)) as running:
        yield running
