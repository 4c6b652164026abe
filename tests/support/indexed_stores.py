"""Small stores with a broker's indexes, and planned reads in plain Python, without columns or Spark."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from commitlake.broker_lite.stores.rocketmq import MessageStore, StoreOptions
from commitlake.connectors.formats.registry import COMMITLOGS
from commitlake.connectors.reading import index_lookups, splits
from commitlake.connectors.reading.files.segment_files import OpenSegment
from commitlake.connectors.reading.listed_records import walk_listed_records
from commitlake.connectors.reading.options import ReadOptions
from commitlake.connectors.reading.planning import ReadPlan, plan_read
from commitlake.connectors.reading.read_request import Filters
from commitlake.connectors.reading.segment_walk import WalkEnd, WalkStep, walk_records
from commitlake.connectors.reading.splits import ListedSplit, Split
from commitlake.schemas.layouts.rocketmq.commitlog import Message, NewMessage, parse_message
from commitlake.schemas.layouts.rocketmq.hosts import Host

SEGMENT_BYTES = 1 << 14
QUEUE_FILE_ENTRIES = 16
STORED_MS = 1_700_000_000_000
STEP_MS = 1000
RARE = "rare"
OPTIONS = StoreOptions(
    segment_size_bytes=SEGMENT_BYTES,
    consume_queue_file_size_bytes=20 * QUEUE_FILE_ENTRIES,
    index_slots=50,
    index_entries=200,
)
_PRODUCER = Host.of("192.168.1.10", 50123)


class Clock:
    """A clock that advances by a second at every call."""

    def __init__(self) -> None:
        self.now_ms = STORED_MS

    def __call__(self) -> int:
        """Return the time in ms since 1970."""
        self.now_ms += STEP_MS
        return self.now_ms


def unique_key(number: int) -> str:
    """Return a message id in the clients' form."""
    return f"{number:032X}"


def message(number: int, chance: random.Random, max_body: int = 200) -> NewMessage:
    """Return a message with a unique key and one of fifty shared keys; every twentieth has the topic `rare`."""
    return NewMessage(
        RARE if number % 20 == 0 else f"topic-{number % 3}",
        chance.randbytes(chance.randrange(max_body)),
        STORED_MS + number,
        _PRODUCER,
        queue_id=number // 20 % 3,
        properties=(
            ("KEYS", f"order-{number} group-{number % 50}"),
            ("UNIQ_KEY", unique_key(number)),
            ("TAGS", f"tag-{number % 2}"),
        ),
    )


def write_indexed_store(
    root: Path, count: int = 600, seed: int = 1, options: StoreOptions = OPTIONS, max_body: int = 200
) -> Path:
    """Create a store with its log, its ConsumeQueues and its IndexFiles."""
    chance = random.Random(seed)
    with MessageStore.open(root, options, clock=Clock()) as store:
        for number in range(count):
            store.put(message(number, chance, max_body))
    return root


def without_seeks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make look-ups cost only their bytes, so that they also pay off in small segments."""
    monkeypatch.setattr(index_lookups, "SEEK_BYTES", 0)
    monkeypatch.setattr(splits, "MAX_GAP_BYTES", 0)


def plan_of(root: Path | str, **options: object) -> ReadPlan:
    """Return the plan of a read with these options."""
    parsed = ReadOptions.parse(
        {"path": str(root), **{name: str(value) for name, value in options.items()}}, formats=COMMITLOGS
    )
    return plan_read(parsed, Filters.of_batch(parsed))


def wanted(messages: Iterable[Message], filters: Filters) -> list[Message]:
    """Return the messages that pass the filters, computed independently of the source."""
    return [
        found
        for found in messages
        if (filters.topics is None or found.topic in filters.topics)
        and (filters.queue_ids is None or found.queue_id in filters.queue_ids)
        and (filters.keys is None or filters.keys & {found.unique_key, *(found.keys or ())})
        and (filters.min_offset is None or found.physical_offset >= filters.min_offset)
        and (filters.end_offset is None or found.physical_offset < filters.end_offset)
        and (filters.min_store_timestamp is None or found.store_timestamp >= filters.min_store_timestamp)
        and (filters.end_store_timestamp is None or found.store_timestamp < filters.end_store_timestamp)
    ]


def read_splits(planned: Iterable[Split], window_bytes: int = 1 << 20) -> Iterator[Message]:
    """Yield the records of splits; a bad range or a gap is an error."""
    for split in planned:
        assert not split.missing, split
        with OpenSegment(split.path) as file:
            steps: Iterator[WalkStep]
            if isinstance(split, ListedSplit):
                steps = walk_listed_records(file, split, window_bytes, 1 << 20)
            else:
                steps = walk_records(file, split, window_bytes, 1 << 20, WalkEnd())
            for step in steps:
                assert not step.bad, step.bad
                for start in step.parts[0].tolist():
                    parsed = parse_message(step.window.data, start)
                    assert parsed is not None
                    yield parsed[0]


def read_by_plan(root: Path | str, **options: object) -> list[Message]:
    """Return the result of a planned read with these options."""
    parsed = ReadOptions.parse(
        {"path": str(root), **{name: str(value) for name, value in options.items()}}, formats=COMMITLOGS
    )
    return wanted(read_splits(plan_of(root, **options).splits), Filters.of_batch(parsed))


def read_by_scan(root: Path | str, **options: object) -> list[Message]:
    """Return the expected result: all records, filtered."""
    parsed = ReadOptions.parse(
        {"path": str(root), **{name: str(value) for name, value in options.items()}}, formats=COMMITLOGS
    )
    return wanted(read_splits(plan_of(root).splits), Filters.of_batch(parsed))
