"""Batch reads of brokers of broker_lite: the rows of the commitlog source, and an error for any missing message."""

from __future__ import annotations

import json
import logging
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from commitlake.connectors.reading.errors import DamagedLogError
from commitlake.connectors.reading.options import Mode
from commitlake.connectors.rocketmq.errors import NoRouteError, ProtocolError, RocketMQError, UnreachableError
from commitlake.connectors.rocketmq.source.batch import read_ranges, schema_of
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.layouts.rocketmq.sysflag import BodyCodec, compression_bits
from commitlake.schemas.remoting.codes import RequestCode, ResponseCode
from commitlake.schemas.remoting.frames import Command
from tests.support.batches import source_schema
from tests.support.exit_codes import exits
from tests.support.live_brokers import LiveBroker, LiveCluster
from tests.support.live_reading import create_topic, delete_first_segments, offsets, options, partitions, put, rows
from tests.support.peer import reply
from tests.support.stored_rows import stored_rows

COLUMNS = source_schema().names
PULL = RequestCode.PULL_MESSAGE


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LiveCluster]:
    with LiveCluster(tmp_path) as made:
        create_topic(made.brokers["broker-a"])
        yield made


@pytest.fixture
def broker(cluster: LiveCluster) -> LiveBroker:
    return cluster.brokers["broker-a"]


def test_rows_are_those_of_the_commitlog_source(cluster: LiveCluster, broker: LiveBroker) -> None:
    put(broker, 50)
    body = zlib.compress(b"long " * 100)
    bits = compression_bits(BodyCodec.ZLIB)
    put(broker, 1, body=body, sys_flag=bits, properties=(("PRIORITY", "x"), ("_SYS_MSG_PRIORITY_", "3")))
    put(broker, 1, properties=())
    put(broker, 1, properties=(("KEYS", "a  b"), ("n", "é")), flag=7, reconsume_times=2)
    for form in ("stored", "decompressed"):
        found = rows(options(cluster, body=form))
        expected = stored_rows(broker.store.path, "broker-a", form)
        assert sorted(found, key=lambda row: row["physical_offset"]) == expected
    assert len(expected) == 53
    assert {row["body"] for row in expected} >= {b"long " * 100}


def test_partitions_divide_queues_and_give_each_message_once(cluster: LiveCluster, broker: LiveBroker) -> None:
    put(broker, 40)
    for count in (1, 3, 7, 50):
        chosen = options(cluster, minPartitions=count)
        parts = partitions(chosen)
        assert len(parts) >= min(count, 40)
        assert offsets(rows(chosen, parts)) == {0: list(range(20)), 1: list(range(20))}


def test_batches_are_bounded(cluster: LiveCluster, broker: LiveBroker) -> None:
    put(broker, 200, body=bytes(1000))
    chosen = options(cluster, maxBatchBytes=10_000, columns="queue_offset,queue_id")
    schema = source_schema(*schema_of(chosen).names)
    sizes = [batch.num_rows for part in partitions(chosen) for batch in read_ranges(chosen, schema, part)]
    assert sum(sizes) == 200
    assert max(sizes) <= 32 + 8


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {0: [0, 1, 2, 3], 1: [0, 1, 2, 3]}),
        ({"startingOffsets": '{"orders": {"broker-a": {"0": 2}}}'}, {0: [2, 3], 1: [0, 1, 2, 3]}),
        ({"endingOffsets": '{"orders": {"broker-a": {"0": 1, "1": -2}}}'}, {0: [0]}),
        ({"startingOffsets": '{"orders": {"broker-a": {"0": -1, "1": 3}}}'}, {1: [3]}),
        ({"startingOffsets": "latest"}, {}),
    ],
)
def test_reads_begin_and_end_at_offsets(
    cluster: LiveCluster, broker: LiveBroker, given: dict[str, str], expected: dict[int, list[int]]
) -> None:
    put(broker, 8)
    assert offsets(rows(options(cluster, **given))) == expected


def test_reads_begin_and_end_at_times(cluster: LiveCluster, broker: LiveBroker) -> None:
    before = cluster.clock.now_ms
    put(broker, 8)  # 0 to 7 at `before` + 1 to 8, by turns into the queues
    found = rows(options(cluster, startingTimestamp=before + 3, endingTimestamp=before + 6))
    assert offsets(found) == {0: [1, 2], 1: [1]}
    by_queue = json.dumps({"orders": {"broker-a": {"1": before + 8}}})
    assert offsets(rows(options(cluster, startingTimestamp=by_queue))) == {0: [0, 1, 2, 3], 1: [3]}
    assert rows(options(cluster, startingTimestamp=before + 9)) == []


def test_brokers_filter_by_tag_and_sql(cluster: LiveCluster, broker: LiveBroker) -> None:
    put(broker, 30)  # tags tag0, tag1, tag2 by turns
    found = rows(options(cluster, tags="tag0 || tag2", columns="queue_id,queue_offset,tags"))
    assert {row["tags"] for row in found} == {"tag0", "tag2"}
    assert len(found) == 20
    assert len(rows(options(cluster, sql="TAGS = 'tag1' AND KEYS <> 'order-1'"))) == 9
    # An end between messages is kept even if the broker's answer continues after it.
    part = options(cluster, tags="tag0", endingOffsets='{"orders": {"broker-a": {"0": 4, "1": 4}}}')
    assert offsets(rows(part)) == {0: [0, 3], 1: [1]}


def test_tags_with_the_same_hash_are_distinguished(cluster: LiveCluster, broker: LiveBroker) -> None:
    for tag in ("Aa", "BB"):  # of the same hash, as Java computes it
        put(broker, 2, properties=(("TAGS", tag),))
    found = rows(options(cluster, tags="BB", columns="queue_id,queue_offset"))
    assert offsets(found) == {0: [1], 1: [1]}
    assert list(found[0]) == ["queue_id", "queue_offset"]


def test_deleted_messages_fail_a_read_or_are_counted(
    cluster: LiveCluster, broker: LiveBroker, caplog: pytest.LogCaptureFixture
) -> None:
    put(broker, 400, body=bytes(500))
    delete_first_segments(broker)
    first = broker.store.min_offset("orders", 0)
    assert first > 5
    start = '{"orders": {"broker-a": {"0": 5}}}'
    with pytest.raises(RocketMQError, match=r"queue 0 of broker-a: option startingOffsets names offset 5, the queue"):
        rows(options(cluster, startingOffsets=start))
    with caplog.at_level(logging.WARNING):
        found = offsets(rows(options(cluster, startingOffsets=start, failOnDataLoss="false")))
    assert found[0] == list(range(first, 200))
    assert f"names offset 5, the queue holds {first} to 200" in caplog.text
    # A read that names nothing takes what is there.
    assert offsets(rows(options(cluster)))[0] == list(range(first, 200))


def test_messages_deleted_after_planning_are_counted(
    cluster: LiveCluster, broker: LiveBroker, caplog: pytest.LogCaptureFixture
) -> None:
    put(broker, 400, body=bytes(500))
    parts = partitions(options(cluster))
    delete_first_segments(broker)
    first = broker.store.min_offset("orders", 0)
    with pytest.raises(
        RocketMQError, match=rf"offsets 0 to {first}: {first} messages cannot be read: the queue begins"
    ):
        rows(options(cluster), parts)
    with caplog.at_level(logging.WARNING):
        assert offsets(rows(options(cluster, failOnDataLoss="false"), parts))[0] == list(range(first, 200))
    assert f"{first} messages cannot be read: the queue begins at {first}" in caplog.text


def test_a_queue_that_ends_too_early_is_an_error(cluster: LiveCluster, broker: LiveBroker) -> None:
    put(broker, 10)
    parts = partitions(options(cluster))
    broker.store.delete_queues("orders")
    put(broker, 4)
    with pytest.raises(
        RocketMQError,
        match="offsets 2 to 5: 3 messages cannot be read: the queue ends at 2",
        check=exits(ExitCode.USAGE),
    ):
        rows(options(cluster), parts)
    assert offsets(rows(options(cluster, failOnDataLoss="false"), parts)) == {0: [0, 1], 1: [0, 1]}


def test_a_message_that_the_broker_leaves_out_is_an_error(cluster: LiveCluster, broker: LiveBroker) -> None:
    put(broker, 10, queue_ids=(0,))
    parts = partitions(options(cluster))
    first = broker.store.get("orders", 0, 0).messages[0]

    def leave_out(request: Command) -> bytes | None:
        if request.code != PULL:
            return None
        answer = broker.store.get("orders", 0, 0)
        body = b"".join(record for record in _records(broker)[1:])
        assert answer.messages[0] == first
        return reply(request, 0, body, "FOUND", suggestWhichBrokerId="0", nextBeginOffset="10", minOffset="0",
                     maxOffset="10")  # fmt: skip

    broker.interfere = leave_out
    with pytest.raises(RocketMQError, match="1 message cannot be read: the broker has not sent them"):
        rows(options(cluster), parts)


def _records(broker: LiveBroker) -> list[bytes]:
    log = (broker.store.path / "commitlog" / f"{0:020d}").read_bytes()
    return [log[one.physical_offset :][: one.size] for one in broker.store.get("orders", 0, 0).messages]


def test_damaged_records_are_handled_according_to_the_mode(cluster: LiveCluster, broker: LiveBroker) -> None:
    put(broker, 3, queue_ids=(0,), body=b"a sound body")
    records = _records(broker)
    records[1] = records[1].replace(b"a sound body", b"an ill body!")
    parts = partitions(options(cluster))
    answer = {"suggestWhichBrokerId": "0", "nextBeginOffset": "3", "minOffset": "0", "maxOffset": "3"}
    broker.interfere = lambda request: (
        reply(request, 0, b"".join(records), "FOUND", **answer) if request.code == PULL else None
    )
    with pytest.raises(DamagedLogError, match=r"broker broker-a.*expected a body that matches its checksum"):
        rows(options(cluster), parts)
    found = rows(options(cluster, mode=Mode.PERMISSIVE), parts)
    assert [row["queue_offset"] for row in found] == [0, None, 2]
    assert found[1]["_corrupt_record"]["start"] == broker.store.get("orders", 0, 0).messages[1].physical_offset
    assert len(rows(options(cluster, mode=Mode.DROPMALFORMED), parts)) == 2
    records[1] = b"no record at all, whatever the mode says" * 4
    with pytest.raises(DamagedLogError, match="expected whole records in the broker's answer to a pull, found magic"):
        rows(options(cluster, mode=Mode.PERMISSIVE), parts)


def test_a_busy_broker_is_asked_again(
    cluster: LiveCluster, broker: LiveBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("commitlake.connectors.rocketmq.queue_reading.FIRST_PAUSE_SECONDS", 0.001)
    put(broker, 80)
    parts = partitions(options(cluster))
    busy = iter([True, False, True, True])
    broker.interfere = lambda request: (
        reply(request, ResponseCode.SYSTEM_BUSY) if request.code == PULL and next(busy, False) else None
    )
    assert sum(map(len, offsets(rows(options(cluster, retrySeconds=5), parts)).values())) == 80


def test_an_unreachable_broker_is_an_error(cluster: LiveCluster, broker: LiveBroker) -> None:
    put(broker, 4)
    parts = partitions(options(cluster))
    broker.interfere = lambda request: b"" if request.code == PULL else None
    with pytest.raises(UnreachableError, match="expected an answer"):
        rows(options(cluster, timeoutMs=100), parts)
    with pytest.raises(NoRouteError, match="'payments'"):
        partitions(options(cluster, topics="payments"))


def test_an_answer_without_a_next_offset_is_an_error(cluster: LiveCluster, broker: LiveBroker) -> None:
    put(broker, 4)
    parts = partitions(options(cluster))
    broker.interfere = lambda request: reply(request, 0) if request.code == PULL else None
    with pytest.raises(ProtocolError):
        rows(options(cluster), parts)
