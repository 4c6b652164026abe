"""Timers that wait while a store moves between a real broker and ours: none is lost, and none is delivered twice."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from commitlake.broker_lite.delivery import Delivery
from commitlake.broker_lite.stores.rocketmq import MessageStore, StoreOptions
from commitlake.connectors.rocketmq import OutgoingMessage, Producer
from commitlake.connectors.rocketmq.options import ClientOptions
from commitlake.schemas.layouts.rocketmq.commitlog import NewMessage
from commitlake.schemas.layouts.rocketmq.hosts import Host
from commitlake.schemas.layouts.rocketmq.topics import TIMER_TOPIC
from tests.servers.broker_lite import SMALL_FILES as LITE_FILES
from tests.servers.broker_lite import BrokerLite
from tests.servers.java_programs import run_java
from tests.servers.rocketmq import SMALL_FILES, RocketMQ, StartBroker
from tests.support.waiting import let_pass

TOPIC = "Timed"
STORE_OPTIONS = StoreOptions(
    segment_size_bytes=1 << 20,
    consume_queue_file_size_bytes=100 * 20,
    index_slots=200,
    index_entries=800,
    max_message_size_bytes=512 << 10,
)
AGO_MS = 100_000
MARGIN_SECONDS = 3
"""A broker delivers when the second is over, and looks ten times a second."""


def send(servers: RocketMQ | BrokerLite, names: Iterable[str], due_seconds: float) -> None:
    """Send timers that are due at a time; tags name them."""
    with Producer("timers", ClientOptions(servers.name_server_address)) as producer:
        for name in names:
            producer.send(OutgoingMessage(TOPIC, b"x", tags=name, deliver_at_ms=int(due_seconds * 1000)))


def park(delivery: Delivery, names: Iterable[str], due_ms: int) -> None:
    """Send the same timers in a store of ours."""
    for name in names:
        pairs = (("UNIQ_KEY", name.ljust(32, "0")), ("TAGS", name), ("TIMER_DELIVER_MS", str(due_ms)))
        born_ms = delivery.store.clock()
        delivery.send(NewMessage(TOPIC, b"x", born_ms, Host.of("127.0.0.1", 1), properties=pairs))


def delivered(servers: RocketMQ) -> list[str]:
    """Return the names of the timers delivered so far."""
    return sorted(row["tags"] for row in run_java("5.5.0", "ConsumeAll", [servers.name_server_address, TOPIC]))


def wait_for(due_seconds: float) -> None:
    """Wait until timers due at a time are delivered."""
    let_pass(due_seconds + MARGIN_SECONDS - time.time(), "what is due is delivered")


def names(prefix: str, count: int) -> list[str]:
    """Return names for this number of timers."""
    return [f"{prefix}{number}" for number in range(count)]


@pytest.mark.long("a minute and a half of waiting; ours delivers timers of RocketMQ's client each time")
def test_timers_of_both_brokers_are_delivered_once(start_broker: StartBroker, tmp_path: Path) -> None:
    root = tmp_path / "store"
    now_ms = int(time.time() * 1000)
    clock_ms = [now_ms - AGO_MS]
    # Twelve timers were parked a while ago, in turns. Five of them have been delivered; the others are due soon.
    with MessageStore.open(root, STORE_OPTIONS, clock=lambda: clock_ms[0]) as store:
        delivery = Delivery(store)
        for number in range(7):
            park(delivery, [f"late{number}"], now_ms + 15_000 + number * 500)
            if number < 5:
                park(delivery, [f"early{number}"], clock_ms[0] + 1_000 + number * 700)
        clock_ms[0] += 30_000
        assert len(delivery.deliver_due(clock_ms[0])) == 5
    servers = start_broker("5.5.0", root, SMALL_FILES)
    wait_for(now_ms / 1000 + 18)
    assert delivered(servers) == names("early", 5) + names("late", 7)

    # Four of the real broker's timers are delivered there, and four in our store, whose clock is ahead.
    soon, later = time.time() + 2, time.time() + 45
    send(servers, names("real", 4), soon)
    send(servers, names("then", 4), later)
    wait_for(soon)
    servers.stop_broker()
    with MessageStore.open(root, STORE_OPTIONS, clock=lambda: int(later * 1000) + 2000) as store:
        assert store.max_offset(TIMER_TOPIC, 0) == 5 + 7 + 4 + 4
        assert len(Delivery(store).deliver_due(store.clock())) == 4

    # Ours is killed right after it has taken the last ones.
    due = max(later, time.time()) + 10
    lite = BrokerLite(tmp_path / "lite", store=root, options=LITE_FILES).start()
    try:
        send(lite, names("killed", 20), due)
    finally:
        lite.kill()
    servers.start_broker()
    wait_for(due)
    everything = names("early", 5) + names("late", 7) + names("real", 4) + names("then", 4) + names("killed", 20)
    assert delivered(servers) == sorted(everything)
    servers.stop_broker()
    with MessageStore.open(root, STORE_OPTIONS) as store:
        assert Delivery(store).deliver_due(store.clock() + 1_000_000) == []
        assert store.max_offset(TIMER_TOPIC, 0) == len(everything)
