"""Reads of the source `rocketmq` without Spark, from brokers in the test's process."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from commitlake.broker_lite.stores.engine.options import RetentionOptions
from commitlake.broker_lite.stores.engine.retention import Retention
from commitlake.connectors.rocketmq.source.batch import read_ranges, schema_of
from commitlake.connectors.rocketmq.source.options import SourceOptions
from commitlake.connectors.rocketmq.source.ranges import Partition, plan_batch
from commitlake.connectors.spark.versions import to_arrow_schema
from tests.support.live_brokers import LiveBroker, LiveCluster
from tests.support.message_stores import message

Row = dict[str, Any]


def options(cluster: LiveCluster, **given: object) -> SourceOptions:
    """Return options of a read, by default of the topic `orders`."""
    values = {"namesrv": cluster.address, "topics": "orders", "retrySeconds": "0", "timeoutMs": "3000"}
    return parsed(values | {name: str(value) for name, value in given.items()})


def parsed(given: Mapping[str, str]) -> SourceOptions:
    """Return the parsed options of a read."""
    return SourceOptions.parse(given)


def partitions(chosen: SourceOptions) -> list[Partition]:
    """Return the partitions of a batch."""
    with chosen.open_puller() as puller:
        return plan_batch(puller, chosen)


def rows(chosen: SourceOptions, parts: Iterable[Partition] | None = None) -> list[Row]:
    """Return the rows of some partitions, by default of all partitions of a batch."""
    schema = to_arrow_schema(schema_of(chosen))
    found = partitions(chosen) if parts is None else parts
    return [row for part in found for batch in read_ranges(chosen, schema, part) for row in batch.to_pylist()]


def offsets(found: Iterable[Row]) -> dict[int, list[int]]:
    """Return queue offsets by queue."""
    by_queue: dict[int, list[int]] = {}
    for row in found:
        by_queue.setdefault(row["queue_id"], []).append(row["queue_offset"])
    return by_queue


def create_topic(broker: LiveBroker, topic: str = "orders", queues: int = 2) -> None:
    """Create a topic."""
    broker.dispatcher.broker.topics.find_or_create(topic, queues)


def put(broker: LiveBroker, count: int, first: int = 0, queue_ids: Sequence[int] = (0, 1), **changes: Any) -> None:
    """Store messages in queues in turn, a millisecond apart."""
    for number in range(first, first + count):
        broker.clock.now_ms += 1
        broker.store.put(message(number, queue_id=queue_ids[number % len(queue_ids)], **changes))


def delete_first_segments(broker: LiveBroker) -> None:
    """Delete all segments except the one being written, as a broker deletes old ones."""
    files = broker.store._files
    options = RetentionOptions(clean_forcibly_percent=1, disk_max_used_percent=1)
    while Retention(
        broker.store.path, files.log.files, files.delete_expired, options, lambda _: 99
    ).delete_expired_files(time.time()):
        pass
