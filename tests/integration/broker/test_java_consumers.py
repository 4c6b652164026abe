"""RocketMQ's own consumers against broker_lite, in all their modes, with each layout of its store."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from commitlake.connectors.rocketmq import ClientOptions, Puller
from tests.servers.broker_lite import QUICK_DELAYS, SMALL_FILES, BrokerLite
from tests.servers.jars import java_command
from tests.servers.java_programs import CLIENT, JVM, Row, programs_class_path, run_java
from tests.servers.process import ServerProcess
from tests.support.java_consumers import TOPIC, VOLUME, consume, keys
from tests.support.waiting import let_pass

TAGS = 7
GROUP = "by-concurrent"
"""The group of `consume`."""


@pytest.fixture(
    params=[
        "rocketmq",
        pytest.param("jmq", marks=pytest.mark.long("test_jmq_clients.py has consumers of this layout each time")),
    ]
)
def broker_lite(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[BrokerLite]:
    """A broker on a new store of each layout that consumers can tell apart."""
    delays = () if request.param == "jmq" else QUICK_DELAYS  # JMQ has no delayed messages
    with BrokerLite(tmp_path / "broker", options=(*SMALL_FILES, *delays, "--layout", request.param)) as running:
        yield running


@pytest.fixture
def sent(broker_lite: BrokerLite, client_version: str) -> list[Row]:
    """The messages of the topic."""
    return run_java(client_version, "ProduceEveryKind", [broker_lite.name_server_address, "volume"])


def test_two_consumers_share_the_queues(broker_lite: BrokerLite, client_version: str, sent: list[Row]) -> None:
    rows = consume(broker_lite, client_version, "concurrent", consumers=2)
    assert keys(rows) == keys(sent)
    queues = defaultdict(set)
    for row in rows:
        queues[row["queue_id"]].add(row["consumer"])
    assert set().union(*queues.values()) == {0, 1}
    # A group that goes on gets nothing twice.
    run_java(client_version, "ProduceEveryKind", [broker_lite.name_server_address, "volume"])
    assert not keys(consume(broker_lite, client_version, "concurrent")) & keys(sent)


def test_orderly_consumers_get_each_queue_in_order(
    broker_lite: BrokerLite, client_version: str, sent: list[Row]
) -> None:
    rows = consume(broker_lite, client_version, "orderly", consumers=2)
    assert keys(rows) == keys(sent)
    offsets = defaultdict(list)
    for row in rows:
        offsets[row["queue_id"]].append(row["queue_offset"])
    for found in offsets.values():
        assert list(dict.fromkeys(found)) == sorted(set(found))


@pytest.mark.long("consumers of a group read each time, and the broker serves a broadcast as it serves them")
def test_broadcast_delivers_every_message_to_every_consumer(
    broker_lite: BrokerLite, client_version: str, sent: list[Row]
) -> None:
    rows = consume(broker_lite, client_version, "broadcast", consumers=2, messages=2 * VOLUME)
    for consumer in (0, 1):
        assert keys([row for row in rows if row["consumer"] == consumer]) == keys(sent)


@pytest.mark.long("BoltMQ's consumers filter by tags and by SQL each time")
@pytest.mark.parametrize(
    ("way", "expression", "tags"),
    [
        ("concurrent", "Tag1 || Tag2", {"Tag1", "Tag2"}),
        ("sql", "TAGS IN ('Tag3', 'Tag5') AND KEYS IS NOT NULL", {"Tag3", "Tag5"}),
    ],
)
def test_a_consumer_gets_only_messages_that_match_its_filter(
    broker_lite: BrokerLite, client_version: str, sent: list[Row], way: str, expression: str, tags: set[str]
) -> None:
    wanted = [row for row in sent if row["tags"] in tags]
    rows = consume(broker_lite, client_version, way, expression, messages=len(wanted))
    assert Counter(row["unique_key"] for row in rows) == Counter(row["unique_key"] for row in wanted)


@pytest.mark.long("BoltMQ's consumers pull every message each time")
def test_lite_pull_gets_every_message(broker_lite: BrokerLite, client_version: str, sent: list[Row]) -> None:
    assert keys(consume(broker_lite, client_version, "lite")) == keys(sent)


@pytest.mark.long("a consumer that is killed is taken over from each time")
def test_the_others_take_over_when_a_consumer_leaves(
    broker_lite: BrokerLite, client_version: str, sent: list[Row]
) -> None:
    assert keys(consume(broker_lite, client_version, "failover", consumers=2)) == keys(sent)


def test_the_others_take_over_when_a_consumer_is_killed(
    broker_lite: BrokerLite, client_version: str, tmp_path: Path
) -> None:
    command = [java_command(), *JVM, *CLIENT, f"-Duser.home={tmp_path}", "-cp", programs_class_path(client_version)]
    command += [
        "Consumers",
        broker_lite.name_server_address,
        "forever",
        TOPIC,
        GROUP,
        "*",
        "1",
        str(VOLUME),
        "60",
    ]
    victim = ServerProcess("consumer", command, tmp_path / "consumer.log")
    try:
        first = run_java(client_version, "ProduceEveryKind", [broker_lite.name_server_address, "volume"])
        victim.wait_until(lambda: '"queue_id"' in victim.output(), 60)
    finally:
        victim.kill()
    let_pass(0.5, "the broker sees that the connection is closed")
    got = {line.split('"unique_key":"')[1][:32] for line in victim.output().splitlines() if '"unique_key":"' in line}
    second = run_java(client_version, "ProduceEveryKind", [broker_lite.name_server_address, "volume"])
    with Puller(GROUP, ClientOptions(broker_lite.name_server_address)) as puller:
        left = sum(puller.max_offset(queue) - (puller.committed_offset(queue) or 0) for queue in puller.queues(TOPIC))
    assert left >= VOLUME
    rest = consume(broker_lite, client_version, "concurrent", messages=left)
    assert {key[:32] for key in keys(first) | keys(second)} <= got | {key[:32] for key in keys(rest)}
