"""Replays over slow connections: what is late is waited for, not sent again, and nothing overtakes it."""

from __future__ import annotations

import pytest

from commitlake.connectors.rocketmq.producers import tracked_connections
from commitlake.pipelines.replay.sending import target_client
from tests.servers.broker_lite import BrokerLite
from tests.servers.delaying_proxy import DelayingProxy, Faults
from tests.support.replays import ReplayWorld


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target_client, "_SEND_SECONDS", 0.2)
    monkeypatch.setattr(tracked_connections, "EXECUTING_SECONDS", 0.1)


@pytest.mark.parametrize(
    "faults",
    [
        Faults(hold=0.5, hold_seconds=0.5, large_bytes=500),
        Faults(cut=0.5, cut_seconds=0.5, large_bytes=500),
        Faults(cut=0.06, cut_seconds=0.3, large_bytes=100),  # requests for routes and offsets, too
    ],
)
def test_a_batch_that_is_late_is_in_the_target_once_and_in_order(
    world: ReplayWorld, broker: BrokerLite, faults: Faults
) -> None:
    with DelayingProxy(broker.name_server_address, broker.broker_address, faults, seed=1) as proxy:
        world.name_servers = proxy.name_server_address
        assert world.replay("--topic", "topic-01") == 0
    rows = [row for row in world.archived() if row["topic"] == "topic-01"]
    expected = {queue: [row["physical_offset"] for row in rows if row["queue_id"] == queue] for queue in range(4)}
    assert world.origins() == expected
    assert proxy.held + proxy.cuts > 0
