"""Reads of a stream, micro-batch by micro-batch, through checkpoints as Spark keeps them."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from commitlake.connectors.rocketmq.errors import RocketMQError, UnreachableError
from commitlake.connectors.rocketmq.source.batch import schema_of
from commitlake.connectors.rocketmq.source.stream import RocketmqStreamReader
from commitlake.connectors.rocketmq.source.stream_offsets import from_checkpoint
from commitlake.schemas.errors import UsageError
from commitlake.schemas.remoting.codes import RequestCode
from tests.support.live_brokers import LiveBroker, LiveCluster
from tests.support.live_reading import Row, create_topic, delete_first_segments, offsets, options, put

EARLIEST = {"startingOffsets": "earliest"}


class Query:
    """Runs a stream like Spark: asks for the end of a micro-batch, stores it, and reads the rows between."""

    def __init__(self, cluster: LiveCluster, **given: object) -> None:
        chosen = options(cluster, columns="broker,queue_id,queue_offset", **given).for_stream()
        self.reader = RocketmqStreamReader(chosen, schema_of(chosen))
        self.checkpoint: dict[str, Any] | None = None
        self.ends: list[tuple[dict[str, Any], dict[str, Any]]] = []

    def restart(self) -> None:
        """Continue with another reader, as after a crash of the driver."""
        self.reader.stop()
        self.reader = RocketmqStreamReader(self.reader._options, schema_of(self.reader._options))

    def plan(self) -> bool:
        """Fix the next micro-batch; return whether there is one."""
        start = self.checkpoint if self.checkpoint is not None else self.reader.initialOffset()
        end = self.reader.latestOffset(json.loads(json.dumps(start)), self.reader.getDefaultReadLimit())
        if end == start:
            self.checkpoint = end
            return False
        self.ends.append((start, end))
        self.checkpoint = end
        return True

    def read(self, number: int = -1) -> list[Row]:
        """Read the rows of a micro-batch."""
        start, end = (json.loads(json.dumps(each)) for each in self.ends[number])
        parts = self.reader.partitions(start, end)
        return [row for part in parts for batch in self.reader.read(part) for row in batch.to_pylist()]

    def run(self) -> list[list[Row]]:
        """Plan and read all current micro-batches."""
        found = []
        while self.plan():
            found.append(self.read())
        return found


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LiveCluster]:
    with LiveCluster(tmp_path) as made:
        create_topic(made.brokers["broker-a"])
        yield made


@pytest.fixture
def broker(cluster: LiveCluster) -> LiveBroker:
    return cluster.brokers["broker-a"]


@pytest.fixture
def queries() -> Iterator[list[Query]]:
    made: list[Query] = []
    yield made
    for query in made:
        query.reader.stop()


def flat(batches: list[list[Row]]) -> list[Row]:
    return [row for batch in batches for row in batch]


def test_a_stream_begins_at_the_end_by_default(cluster: LiveCluster, broker: LiveBroker, queries: list[Query]) -> None:
    put(broker, 6)
    late, early = Query(cluster), Query(cluster, **EARLIEST)
    queries += [late, early]
    assert late.run() == []
    assert offsets(flat(early.run())) == {0: [0, 1, 2], 1: [0, 1, 2]}
    put(broker, 2, 6)
    assert offsets(flat(late.run())) == {0: [3], 1: [3]}
    assert offsets(flat(early.run())) == {0: [3], 1: [3]}
    assert early.reader.reportLatestOffset() == {"version": 1, "queues": {"orders": {"broker-a": {"0": 4, "1": 4}}}}


@pytest.mark.parametrize("limit", [1, 3, 10, 100])
def test_micro_batches_take_fair_shares_of_the_queues(
    cluster: LiveCluster, broker: LiveBroker, queries: list[Query], limit: int
) -> None:
    put(broker, 20, queue_ids=(0, 0, 0, 1))
    queries.append(query := Query(cluster, maxOffsetsPerTrigger=limit, **EARLIEST))
    batches = query.run()
    assert all(len(batch) <= max(limit, 2) for batch in batches)
    assert offsets(flat(batches)) == {0: list(range(15)), 1: list(range(5))}
    if limit == 10:
        assert offsets(batches[0]) == {0: list(range(5)), 1: list(range(5))}


def test_a_restarted_stream_plans_the_same_micro_batches(
    cluster: LiveCluster, broker: LiveBroker, queries: list[Query]
) -> None:
    put(broker, 9)
    queries.append(query := Query(cluster, maxOffsetsPerTrigger=4, **EARLIEST))
    assert query.plan()
    first = query.read()
    put(broker, 9, 9)
    query.restart()
    assert query.read() == first
    rest = flat(query.run())
    assert offsets(first + rest) == {0: list(range(9)), 1: list(range(9))}


def test_the_first_micro_batch_keeps_its_start_after_a_restart(
    cluster: LiveCluster, broker: LiveBroker, queries: list[Query]
) -> None:
    put(broker, 4)
    queries.append(query := Query(cluster))  # from the end
    start = query.reader.initialOffset()
    put(broker, 4, 4)
    query.checkpoint = start
    assert query.plan()
    put(broker, 4, 8)
    query.ends = [(query.reader.initialOffset(), query.ends[0][1])]
    assert offsets(query.read()) == {0: [2, 3], 1: [2, 3]}


def test_new_queues_and_brokers_are_read_from_their_first_message(
    cluster: LiveCluster, broker: LiveBroker, queries: list[Query]
) -> None:
    queries.append(query := Query(cluster))
    assert query.run() == []
    second = cluster.add("broker-b")
    create_topic(second, queues=1)
    put(second, 3, queue_ids=(0,))
    put(broker, 2)
    found = flat(query.run())
    assert [row["queue_offset"] for row in found if row["broker"] == "broker-b"] == [0, 1, 2]
    query.restart()
    assert flat([query.read(number) for number in range(len(query.ends))]) == found


def test_available_now_ends_at_the_current_ends_of_queues(
    cluster: LiveCluster, broker: LiveBroker, queries: list[Query]
) -> None:
    put(broker, 10)
    queries.append(query := Query(cluster, maxOffsetsPerTrigger=4, **EARLIEST))
    query.reader.prepareForTriggerAvailableNow()
    put(broker, 10, 10)
    create_topic(cluster.add("broker-b"))
    assert offsets(flat(query.run())) == {0: list(range(5)), 1: list(range(5))}


def test_an_unreachable_broker_keeps_its_queues(
    cluster: LiveCluster, broker: LiveBroker, queries: list[Query], caplog: pytest.LogCaptureFixture
) -> None:
    second = cluster.add("broker-b")
    create_topic(second)
    put(second, 2)
    put(broker, 2)
    queries.append(query := Query(cluster, timeoutMs=600, **EARLIEST))
    query.checkpoint = query.reader.initialOffset()
    second.interfere = lambda request: b"" if request.code == RequestCode.GET_MAX_OFFSET else None
    with caplog.at_level(logging.WARNING):
        found = flat(query.run())
    assert {row["broker"] for row in found} == {"broker-a"}
    assert "queue 0 of broker-b waits, because its broker cannot be asked" in caplog.text
    second.interfere = lambda _: None
    assert {row["broker"] for row in flat(query.run())} == {"broker-b"}
    for each in (broker, second):
        each.interfere = lambda request: b"" if request.code == RequestCode.GET_MAX_OFFSET else None
    with pytest.raises(UnreachableError):
        query.plan()


def test_deleted_messages_fail_a_stream_or_are_skipped(
    cluster: LiveCluster, broker: LiveBroker, queries: list[Query], caplog: pytest.LogCaptureFixture
) -> None:
    strict, lax = Query(cluster, **EARLIEST), Query(cluster, failOnDataLoss="false", **EARLIEST)
    queries += [strict, lax]
    for query in queries:
        query.checkpoint = query.reader.initialOffset()
    put(broker, 400, body=bytes(500))
    delete_first_segments(broker)
    first = broker.store.min_offset("orders", 0)
    with pytest.raises(RocketMQError, match=rf"{first} messages, offsets 0 to {first}, were deleted before the stream"):
        strict.plan()
    with caplog.at_level(logging.WARNING):
        batches = lax.run()
    assert offsets(flat(batches))[0] == list(range(first, 200))
    assert f"{first} messages, offsets 0 to {first}, were deleted" in caplog.text


def test_a_recreated_topic_is_an_error_or_read_from_its_start(
    cluster: LiveCluster, broker: LiveBroker, queries: list[Query]
) -> None:
    put(broker, 10)
    strict, lax = Query(cluster, **EARLIEST), Query(cluster, failOnDataLoss="false", **EARLIEST)
    queries += [strict, lax]
    for query in queries:
        assert len(flat(query.run())) == 10
    broker.store.delete_queues("orders")
    put(broker, 4)
    with pytest.raises(RocketMQError, match="read up to offset 5, but the queue ends at 2: the topic was recreated"):
        strict.plan()
    assert offsets(flat(lax.run())) == {0: [0, 1], 1: [0, 1]}


def test_named_queues_must_exist(cluster: LiveCluster, queries: list[Query]) -> None:
    queries.append(query := Query(cluster, startingOffsets='{"orders": {"broker-a": {"7": 1}}}'))
    with pytest.raises(UsageError, match="queue 7 of broker-a is not among the 2 queues"):
        query.plan()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"version": 2, "queues": {}}, "checkpoint has version 2, expected version 1"),
        ({"stores": {}}, "checkpoint has version None, expected version 1"),
        ({"version": 1}, "checkpoint is damaged"),
        ({"version": 1, "queues": {"orders": {"broker-a": {"0": -1}}}}, "checkpoint is damaged"),
        ({"version": 1, "queues": {"orders": 5}}, "checkpoint is damaged"),
    ],
)
def test_a_foreign_checkpoint_is_refused(value: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        from_checkpoint(value)
