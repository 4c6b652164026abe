"""RocketMQ's own consumers against broker_lite with a store in JMQ's layout: the other layout's tests once more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.broker.test_java_consumers import (  # noqa: F401 (they run here with this module's broker)
    sent,
    test_a_consumer_gets_what_it_asks_for,
    test_broadcast_gives_everything_to_everybody,
    test_lite_pull_gets_everything,
    test_orderly_consumers_get_each_queue_in_order,
    test_the_others_take_over_when_a_consumer_goes,
    test_the_others_take_over_when_a_consumer_is_killed,
    test_two_consumers_share_the_queues,
)
from tests.servers.broker_lite import SMALL_FILES, BrokerLite


@pytest.fixture
def broker_lite(tmp_path: Path) -> Iterator[BrokerLite]:
    """A broker on a new store in JMQ's layout."""
    with BrokerLite(tmp_path / "broker", options=(*SMALL_FILES, "--layout", "jmq")) as running:
        yield running
