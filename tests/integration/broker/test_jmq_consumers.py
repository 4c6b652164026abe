"""RocketMQ's own consumers against broker_lite with a store in JMQ's layout: the other layout's tests once more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.broker_lite import SMALL_FILES, BrokerLite


@pytest.fixture
def broker_lite(tmp_path: Path) -> Iterator[BrokerLite]:
    """A broker on a new store in JMQ's layout."""
    with BrokerLite(tmp_path / "broker", options=(*SMALL_FILES, "--layout", "jmq")) as running:
        yield running
