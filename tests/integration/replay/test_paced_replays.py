"""The rate of a replay into a real RocketMQ, by the times at which the broker stored its messages."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.servers.rocketmq import VERSIONS, RocketMQ
from tests.support.lakes import GrowingLake, shop_messages
from tests.support.replays import ReplayWorld, target_client

RATE, SECONDS, WINDOW_MS = 1000, 35, 10_000


@pytest.mark.timed
@pytest.mark.long("it sends for half a minute")
def test_each_ten_seconds_have_as_many_messages_as_the_rate_allows(tmp_path: Path) -> None:
    growing = GrowingLake(tmp_path / "grown")
    growing.write(shop_messages(RATE * SECONDS))
    growing.archive()
    with (
        RocketMQ(VERSIONS[0], tmp_path / "server") as servers,
        target_client(servers.name_server_address) as client,
    ):
        world = ReplayWorld(growing.lake, servers.name_server_address, client)
        world.make_topic()
        assert world.replay("--where", "true", "--rate", f"{RATE}/s") == 0
        times = sorted(message.store_timestamp for queue in world.received().values() for message in queue)
    windows = Counter((time - times[0]) // WINDOW_MS for time in times)
    whole = [windows[number] for number in range((times[-1] - times[0]) // WINDOW_MS)]
    assert len(whole) == 3
    assert all(0.95 * RATE * 10 <= count <= 1.05 * RATE * 10 for count in whole), windows
