"""ConsumeQueues and IndexFiles of real brokers: look-ups give the result of a scan, for every topic and key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from commitlake.connectors.formats.registry import COMMITLOGS
from commitlake.connectors.formats.rocketmq.format import FORMAT as ROCKETMQ
from commitlake.connectors.reading import index_lookups
from commitlake.connectors.reading.index_lookups import QueueIndex
from commitlake.connectors.reading.planning import ReadMethod
from commitlake.connectors.reading.read_request import Filters
from commitlake.connectors.reading.snapshots import segment_ranges, take_snapshot
from commitlake.connectors.reading.stores import find_stores
from commitlake.schemas.layouts.rocketmq.commitlog import Message
from tests.servers.recording import RecordedStore
from tests.support.indexed_stores import plan_of, read_by_plan, read_splits, wanted, without_seeks


@pytest.fixture(autouse=True)
def nothing_to_seek(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small segments are worth a look-up, as large ones are on a disk."""
    without_seeks(monkeypatch)


@pytest.fixture
def messages(recorded_store: RecordedStore) -> list[Message]:
    """Every record of the log."""
    return list(read_splits(plan_of(recorded_store.store).splits))


def test_queues_claim_every_record(
    recorded_store: RecordedStore, messages: list[Message], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_lookups, "MAX_SHARE", 1)  # everything is wanted here, so no reader would use an index
    (store,) = find_stores(str(recorded_store.store), formats=COMMITLOGS)
    index = QueueIndex(Path(recorded_store.store), Filters(), 1 << 26, ROCKETMQ.queues.lookup_queue_format)
    open_ranges = [
        each
        for whole in segment_ranges(store, take_snapshot([store]).ranges[store.broker])
        for each in index.find_records(whole).unknown
    ]
    unclaimed = [
        found.topic for found in messages if any(start <= found.physical_offset < end for start, end in open_ranges)
    ]
    assert Counter(unclaimed) == {}


def test_topics_are_read_by_their_queues(recorded_store: RecordedStore, messages: list[Message]) -> None:
    ways = Counter[ReadMethod]()
    for topic in sorted({found.topic for found in messages}):
        filters = Filters(topics=frozenset({topic}))
        assert read_by_plan(recorded_store.store, topics=topic) == wanted(messages, filters), topic
        ways.update(
            segment.way for store in plan_of(recorded_store.store, topics=topic).stores for segment in store.segments
        )
    assert ways[ReadMethod.CONSUME_QUEUE] > ways[ReadMethod.SCAN]


def keys_of(messages: list[Message]) -> Iterator[tuple[str, str]]:
    """Topics with keys of both kinds."""
    for found in messages:
        yield from ((found.topic, key) for key in [*(found.keys or ()), found.unique_key] if key and "," not in key)


def test_keys_are_found(recorded_store: RecordedStore, messages: list[Message]) -> None:
    pairs = sorted(set(keys_of(messages)))
    ways = Counter[ReadMethod]()
    for topic, key in pairs[:: max(1, len(pairs) // 150)]:
        filters = Filters(topics=frozenset({topic}), keys=frozenset({key}))
        assert read_by_plan(recorded_store.store, topics=topic, keys=key) == wanted(messages, filters), (topic, key)
        for store in plan_of(recorded_store.store, topics=topic, keys=key).stores:
            ways.update(segment.way for segment in store.segments)
    assert ways[ReadMethod.INDEX_FILE] > ways[ReadMethod.SCAN]
