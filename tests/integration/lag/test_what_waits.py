"""Lag of messages that a real RocketMQ holds back: delays, timers, halves, retries and dead letters."""

from __future__ import annotations

import datetime
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from commitlake.connectors.formats.registry import COMMITLOGS
from commitlake.connectors.reading.stores import find_stores
from commitlake.connectors.rocketmq import (
    Admin,
    ClientOptions,
    OutgoingMessage,
    Producer,
    Puller,
)
from commitlake.connectors.rocketmq.network import Network
from commitlake.jobs.archive.command import main as archive
from commitlake.jobs.lag.command import main as lag
from commitlake.jobs.snapshot.command import main as snapshot
from commitlake.pipelines.lag.store_lag import lag_of_store
from commitlake.schemas.layouts.rocketmq.commitlog import Message
from commitlake.schemas.remoting.codes import RequestCode
from commitlake.schemas.remoting.headers import SendBackRequest
from commitlake.schemas.remoting.heartbeats import ConsumerData, Heartbeat, SubscriptionData
from commitlake.schemas.remoting.json_fields import serialize_body
from commitlake.schemas.remoting.topic_and_group_configs import SubscriptionGroupConfig
from tests.servers.recording import has_pop as has_timers
from tests.servers.rocketmq import VERSIONS, BrokerOptions, RocketMQ
from tests.support.topic_reading import make_topic, wait_for
from tests.support.transaction_producers import Decision, TransactionProducer

pytestmark = pytest.mark.long(
    "half a minute of producing; what waits in made stores is counted in unit tests each time"
)
BROKER, TOPIC, GROUP = "broker-a", "Orders", "Behind"
RETRY, DEAD = f"%RETRY%{GROUP}", f"%DLQ%{GROUP}"
SENT, CONSUMED = 12, 7
OPTIONS = BrokerOptions(
    message_delay_level="1s 1h 1s",
    transaction_timeout_ms=4000,  # later than 5.x writes its op records; otherwise it also asks about finished ones
    transaction_check_interval_ms=1000,
    extra={"flushConsumerOffsetInterval": 500, "transactionCheckMax": 1000, "flushDelayOffsetInterval": 500},
)
HOUR_MS = 3_600_000


class Stopped(NamedTuple):
    """The store of a stopped broker, and a lake that was made while it ran and after."""

    store: Path
    lake: Path
    now_ms: int
    consume_diff: int


@pytest.fixture(
    scope="module",
    params=[
        VERSIONS[0],
        pytest.param(VERSIONS[1], marks=pytest.mark.long("delay levels, halves and retries with RocketMQ 4.9, too")),
    ],
)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def stopped(version: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stopped]:
    """A broker that held back something of each kind, and was stopped."""
    folder = tmp_path_factory.mktemp("waits-")
    lake = folder / "lake"
    with RocketMQ(version, folder / "rocketmq", options=OPTIONS) as servers:
        options = ClientOptions(servers.name_server_address)
        with Admin(options) as admin:
            make_topic(admin, TOPIC, 1)
            for group in (GROUP, "Undertaker", "Radio"):
                admin.create_group(SubscriptionGroupConfig(group))
            now_ms = _send(options, has_timers=has_timers(version))
            with TransactionProducer("Halves", options, lambda _: Decision.UNKNOWN) as producer:
                _send_halves(producer)
                client = Network(options)
                try:
                    _give_back(options, client, servers.broker_address)
                    _broadcast(client, servers.broker_address)
                    _archive(servers.store, lake)
                    asked = ["--lake", str(lake), "--namesrv", servers.name_server_address, "--quiet"]
                    assert snapshot(asked) == 0
                finally:
                    client.close()
                # Two rounds of checks store the halves again, and 5.x has written its op records by then.
                wait_for(lambda: _in_flight(servers.store), lambda count: count == 3, 60)
            stats = admin.consume_stats(GROUP)
        servers.stop_broker()
        _archive(servers.store, lake)
        yield Stopped(servers.store, lake, now_ms, sum(queue.lag for queue in stats.values()))


def _archive(store: Path, lake: Path) -> None:
    quick = ["--no-quality", "--no-keys", "--local", "--quiet"]
    assert archive(["--store", str(store), "--broker", BROKER, "--lake", str(lake), *quick]) == 0


def _send(options: ClientOptions, *, has_timers: bool) -> int:
    """Send messages, delayed ones and timers; some of the latter are soon delivered."""
    with Producer("Waiting", options) as producer, Puller(GROUP, options) as puller:
        for number in range(SENT):
            producer.send(OutgoingMessage(TOPIC, b"x", keys=(f"n{number}",)))
        for level in (1, 2, 2, 2):
            producer.send(OutgoingMessage(TOPIC, b"x", delay_level=level))
        now_ms = max(message.born_timestamp for message in _all(puller, SENT + 1))
        if has_timers:
            for delay_ms in (1500, HOUR_MS, HOUR_MS, 2 * HOUR_MS, 3 * 24 * HOUR_MS - 60_000):
                producer.send(OutgoingMessage(TOPIC, b"x", deliver_at_ms=now_ms + delay_ms))
        _all(puller, SENT + 1 + has_timers)
        (queue,) = puller.queues(TOPIC)
        puller.commit_offset(queue, CONSUMED)
    return now_ms


def _all(puller: Puller, count: int) -> list[Message]:
    (queue,) = puller.queues(TOPIC)
    wait_for(lambda: puller.max_offset(queue), lambda end: end >= count)
    return list(puller.read(queue, 0, count))


def _send_halves(producer: TransactionProducer) -> None:
    """Send three halves that stay, two that are committed, and two that are rolled back."""
    decisions = [*[Decision.UNKNOWN] * 3, *[Decision.COMMIT] * 2, *[Decision.ROLLBACK] * 2]
    undecided = iter(decisions)
    for _ in decisions:
        producer.send_in_transaction(OutgoingMessage(TOPIC, b"half"), lambda _: next(undecided))


def _give_back(options: ClientOptions, client: Network, address: str) -> None:
    """Let the group fail on five messages: two are dead, and three are retried, of which it consumes one."""
    with Puller(GROUP, options) as puller:
        for message, level in zip(_all(puller, 5), (1, 1, 1, -1, -1), strict=True):
            header = SendBackRequest(message.physical_offset, GROUP, level, message.msg_id, TOPIC)
            client.send_and_wait(address, RequestCode.CONSUMER_SEND_MSG_BACK, header)
        (retries,) = wait_for(lambda: puller.queues(RETRY), lambda queues: len(queues) == 1)
        wait_for(lambda: puller.max_offset(retries), lambda end: end == 3)
        puller.commit_offset(retries, 1)
    with Puller("Undertaker", options) as puller:
        (dead,) = wait_for(lambda: puller.queues(DEAD), lambda queues: len(queues) == 1)
        wait_for(lambda: puller.max_offset(dead), lambda end: end == 2)
        puller.commit_offset(dead, 1)


def _broadcast(client: Network, address: str) -> None:
    consumer = ConsumerData("Radio", message_model="BROADCASTING", subscription_data_set=(SubscriptionData(TOPIC),))
    beat = Heartbeat(f"{client.client_id}-Radio", (), (consumer,))
    client.send_and_wait(address, RequestCode.HEART_BEAT, None, serialize_body(beat))


def _in_flight(store: Path) -> int | None:
    """Return the number of halves in flight, from the files of a running broker."""
    (found,) = find_stores(str(store), None, formats=COMMITLOGS)
    rows = lag_of_store(found, datetime.datetime.now(datetime.UTC)).rows
    return next((int(row.messages.low) for row in rows if row.kind == "half" and row.messages.is_exact), None)


def rows_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert lag([*arguments, "--all", "--output", "jsonl", "--quiet"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.fixture(
    params=["lake", pytest.param("store", marks=pytest.mark.long("stores are read in unit tests each time"))]
)
def rows(request: pytest.FixtureRequest, stopped: Stopped, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """The rows that `lag` prints for the stopped broker's store, or for its lake."""
    return rows_of(capsys, f"--{request.param}", str(getattr(stopped, request.param)))


def one(rows: list[dict[str, Any]], **wanted: Any) -> dict[str, Any]:
    """Return the only row with these values."""
    (row,) = (row for row in rows if all(row[name] == value for name, value in wanted.items()))
    return row


def bounds(row: dict[str, Any]) -> tuple[Any, Any]:
    return row["messages_min"], row["messages_max"]


def test_each_kind_has_its_own_row(rows: list[dict[str, Any]], version: str) -> None:
    kinds = Counter(row["kind"] for row in rows)
    assert kinds == Counter(
        {"group": 2, "retry": 1, "delay": 1, "half": 1} | ({"timer": 1} if has_timers(version) else {})
    )


def test_lag_of_groups_retries_and_dead_letters_is_counted(
    rows: list[dict[str, Any]], stopped: Stopped, version: str
) -> None:
    behind = one(rows, group=GROUP, topic=TOPIC)
    delivered = SENT + 1 + has_timers(version) + 2  # a delayed one, a timer, two that were committed
    # Nobody knows what the group has subscribed to: it may want none of the messages.
    assert (behind["end"], *bounds(behind)) == (delivered, 0, delivered - CONSUMED)
    retries = one(rows, group=GROUP, topic=RETRY)
    assert (retries["kind"], *bounds(retries)) == ("retry", 2, 2)
    assert bounds(one(rows, group="Undertaker", topic=DEAD)) == (0, 1)
    # RocketMQ's own sum of the group has its retry topic in it, too.
    assert behind["messages_max"] + retries["messages_max"] == stopped.consume_diff


def test_delayed_messages_are_counted_as_waiting(rows: list[dict[str, Any]]) -> None:
    row = one(rows, kind="delay")
    assert (row["queue_id"], *bounds(row), row["verdict"]) == (1, 0, 0, "ok")
    assert row["notes"] == ["level 2, 3600 s; 3 more wait"]  # the delay is that of the store's own queues


def test_timers_are_counted_as_waiting(rows: list[dict[str, Any]], version: str) -> None:
    if has_timers(version):
        row = one(rows, kind="timer")
        assert (*bounds(row), row["verdict"], row["notes"]) == (0, 0, "ok", ["4 more wait for their time"])


def test_halves_are_in_flight_until_they_are_finished(rows: list[dict[str, Any]]) -> None:
    row = one(rows, kind="half")
    assert bounds(row) == (3, 3)
    assert row["time_lag_s_min"] == row["time_lag_s_max"]


def test_a_warning_names_a_broadcasting_group(stopped: Stopped, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert lag(["--lake", str(stopped.lake)]) == 0
    assert f"{BROKER}: Radio broadcasts {TOPIC}: each of its clients keeps its own offsets" in capsys.readouterr().err
    assert lag(["--lake", str(stopped.lake), "--group", "Radio", "--quiet"]) == 0
