"""Kills at any moment: messages acknowledged with sync flush are stored in order, and once."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from commitlake.schemas.layouts.rocketmq.message_id import parse_message_id
from tests.servers.broker_lite import SMALL_FILES, BrokerLite
from tests.support.acknowledged_sends import Producer
from tests.support.kills import kill_count
from tests.support.waiting import let_pass, wait_until

TURNS = 2
"""Kills of one store."""
STORES = kill_count(1, share=TURNS)


def check_rocketmq(root: Path, acknowledged: Mapping[str, str]) -> None:
    """Check that a store in RocketMQ's layout has all messages with these keys and ids, and no gap."""
    from commitlake.broker_lite.stores.rocketmq import MessageStore, StoreOptions

    options = StoreOptions(
        segment_size_bytes=1 << 20, consume_queue_file_size_bytes=2000, index_slots=200, index_entries=800,
        max_message_size_bytes=512 << 10,
    )  # fmt: skip
    with MessageStore.open(root, options) as store:
        for key, msg_id in acknowledged.items():
            found = store.get_at(parse_message_id(msg_id).physical_offset)
            assert found is not None, key
            assert found.unique_key == key
            assert store.entry_at("orders", found.queue_id, found.queue_offset) is not None
        for queue_id in range(4):
            offsets = [one.queue_offset for one in store.get("orders", queue_id, 0, 1 << 30).messages]
            assert offsets == list(range(len(offsets)))


def check_jmq(root: Path, acknowledged: Mapping[str, str]) -> None:
    """Check the same for a store in JMQ's layout."""
    from commitlake.broker_lite.stores.jmq import JournalOptions, JournalStore

    options = JournalOptions(
        journal_file_size_bytes=1 << 20, queue_file_size_bytes=2200, max_body_size_bytes=512 << 10
    )  # fmt: skip
    with JournalStore.open(root, options) as store:
        for key, msg_id in acknowledged.items():
            found = store.get_at(parse_message_id(msg_id).physical_offset)
            assert found is not None, key
            assert found.properties["UNIQ_KEY"] == key
            assert store.get("orders", found.queue_id, found.queue_offset, 1).messages == [found]
        for queue_id in range(4):
            offsets = [one.queue_offset for one in store.get("orders", queue_id, 0, 1 << 30).messages]
            assert offsets == list(range(len(offsets)))


@pytest.mark.kills
@pytest.mark.parametrize("seed", range(STORES))
@pytest.mark.parametrize(("layout", "check"), [("rocketmq", check_rocketmq), ("jmq", check_jmq)])
def test_acknowledged_messages_survive_kills(
    tmp_path: Path, seed: int, layout: str, check: Callable[[Path, Mapping[str, str]], None]
) -> None:
    moment = random.Random(seed)
    broker = BrokerLite(tmp_path / "broker", options=(*SMALL_FILES, "--flush", "sync", "--layout", layout))
    acknowledged: dict[str, str] = {}
    for turn in range(TURNS):
        broker.start()
        producers = [Producer(broker.broker_address, f"{turn}-{number}") for number in range(3)]
        for producer in producers:
            producer.start()
        let_pass(moment.uniform(0.05, 1.5), "the broker is killed at any moment")
        broker.kill()
        for producer in producers:
            producer.join()
            acknowledged |= producer.acknowledged
    check(broker.store, acknowledged)


def test_a_bus_error_ends_the_broker_with_a_message(tmp_path: Path) -> None:
    with BrokerLite(tmp_path / "broker", options=SMALL_FILES) as broker:
        os.kill(broker.process.pid, signal.SIGBUS)
        wait_until(lambda: not broker.process.is_running)
        assert "Bus error" in broker.process.output()
