"""Random lakes of two stores with groups that lag behind, and questions on their lag."""

from __future__ import annotations

import datetime
import functools
import json
import random
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from commitlake.connectors.lake.lake import Lake
from commitlake.pipelines.snapshot.progress import (
    GroupTopic,
    Member,
    OffsetKind,
    OffsetOwner,
    SnapshotSource,
    StoreSnapshot,
    Subscription,
)
from commitlake.pipelines.snapshot.table_append import append_snapshot
from commitlake.schemas.times import from_ms
from tests.support.lakes import MIDNIGHT_MS, GrowingLake, archive_store
from tests.support.logs import new_message

LAKES = 12
BROKERS = ("broker-a", "broker-b")
GROUPS = ("billing", "shipping", "audit")
TOPICS = ("orders", "it's \\ 订单", "%RETRY%billing")
EVERY_MS = 30_000
"""Time between two snapshots, which is also the time between two groups of messages."""
STEPS = 8
_QUEUES = 3
_MEMBER = Member("client-1", "10.0.0.9:4711", "JAVA", 495, "V5_5_0")
_EXPRESSIONS = (
    ("TAG", "*"),
    ("TAG", ""),
    ("TAG", "paid || it's"),
    ("TAG", " paid\t||* || "),
    ("SQL92", "amount > 5 AND (color = 'red' OR color IS NULL)"),
    ("SQL92", "amount >"),
    ("CLASS", "com.example.Filter"),
)


@functools.cache
def lagging_lake(seed: int) -> str:
    """Return the folder of a lake; it lacks what `seed` chooses."""
    folder = Path(_folders().name) / str(seed)
    lake = _RandomLake(folder, seed, EVERY_MS)
    for _ in lake.grow():
        pass
    return lake.lake.root


def growing_lake(folder: Path, seed: int, every_ms: int, brokers: Sequence[str] = BROKERS) -> Iterator[Lake]:
    """Make such a lake in a folder, and yield it after each step, and at the end.

    Args:
        folder: The folder.
        seed: As for `lagging_lake`.
        every_ms: Time between two snapshots.
        brokers: Names of its stores.
    """
    random_lake = _RandomLake(folder, seed, every_ms, brokers)
    for _ in random_lake.grow():
        yield random_lake.lake


@functools.cache
def _folders() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="commitlake-lagging-")


class _RandomLake:
    """A lake whose stores get messages, snapshots and archive runs by turns."""

    def __init__(self, folder: Path, seed: int, every_ms: int, brokers: Sequence[str] = BROKERS) -> None:
        self._chance = random.Random(seed)
        self._every_ms = every_ms
        self.lake = Lake(str(folder / "lake"))
        self._stores = {broker: GrowingLake(folder / broker) for broker in brokers}
        self._offsets: dict[str, dict[OffsetOwner, int]] = {broker: {} for broker in brokers}
        self._begins: dict[str, list[int]] = {broker: [0] for broker in brokers}
        self._starts: dict[str, int | None] = dict.fromkeys(brokers, 0)
        self._has_subscriptions = seed % 4 != 3
        self._is_recreated = seed % 3 == 2
        if seed % 2:
            self._configure(next(iter(self._stores.values())).store)

    def _configure(self, store: Path) -> None:
        (store / "config").mkdir(parents=True)
        topics = {name: {"topicName": name, "readQueueNums": 2, "writeQueueNums": 2} for name in TOPICS[1:]}
        topics["orders"] = {"topicName": "orders", "readQueueNums": 4, "attributes": {"queue.type": "BatchCQ"}}
        (store / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": topics}))

    def grow(self) -> Iterator[None]:
        """Do all steps; yield after each of them, and at the end."""
        for step in range(STEPS):
            for broker in self._stores:
                self._write(broker, step)
                if self._is_recreated and step in {3, 5} and self._chance.random() < 0.7:
                    self._stores[broker].recreate_topics()
                if step == 0 or (step < STEPS - 1 and self._chance.random() < 0.5):
                    archive_store(self._stores[broker].store, self.lake, broker)
                if self._chance.random() < 0.8:
                    self._snapshot(broker, step)
            yield
        first = next(iter(self._stores))
        archive_store(self._stores[first].store, self.lake, first)
        yield

    def _write(self, broker: str, step: int) -> None:
        growing, chance = self._stores[broker], self._chance
        begin = MIDNIGHT_MS + step * self._every_ms
        times = sorted(begin + chance.randrange(self._every_ms) for _ in range(chance.randrange(2, 9)))
        # The clock is set back, but not while topics are created again, which a history then knows earlier than `lag`.
        if chance.random() < 0.2 and not (self._is_recreated and step in {3, 4, 5, 6}):
            times = [*times[2:], *times[:2]]
        for time in times:
            properties = {"amount": str(chance.randrange(10))}
            if chance.random() < 0.6:
                properties["TAGS"] = chance.choice(("paid", "it's", "*"))
            if chance.random() < 0.5:
                properties["color"] = chance.choice(("red", "blue"))
            message = new_message(
                topic=chance.choice(TOPICS),
                queue_id=chance.randrange(_QUEUES),
                properties=tuple(properties.items()),
                born_timestamp=time,
            )
            growing.write([message])
            self._begins[broker].append(len(growing.log))

    def _snapshot(self, broker: str, step: int) -> None:
        growing, chance = self._stores[broker], self._chance
        offsets = self._offsets[broker]
        for group in ("billing", "shipping", "audit@broadcast", "audit", "CID_RMQ_SYS_TRANS"):
            for topic in TOPICS[: 1 if group == "shipping" else 3]:
                for queue in range(_QUEUES):
                    position = OffsetOwner(OffsetKind.GROUP, group, topic, queue)
                    length = growing.queue_length(topic, queue)
                    kind = chance.random()
                    if kind < 0.3:
                        offsets[position] = chance.randint(min(offsets.get(position, 0), length), length)
                    elif kind < 0.35:
                        offsets[position] = chance.choice((-1, 0, length + 2))
                    elif kind < 0.4:
                        offsets.pop(position, None)
        start = self._starts[broker]
        if start is not None and chance.random() < 0.4:
            self._starts[broker] = chance.choice([each for each in self._begins[broker] if each >= start])
        time = from_ms(MIDNIGHT_MS + (step + 1) * self._every_ms)
        asks = self._has_subscriptions and chance.random() < 0.8
        snapshot = StoreSnapshot(
            broker,
            SnapshotSource.BROKER if asks else SnapshotSource.FILE,
            {OffsetKind.GROUP: time},
            dict(offsets),
            time if asks else None,
            dict(self._subscriptions()) if asks else {},
            log_end=None if chance.random() < 0.05 else len(growing.log),
            log_start=None if chance.random() < 0.1 else self._starts[broker],
        )
        append_snapshot(self.lake, snapshot)

    def _subscriptions(self) -> list[tuple[GroupTopic, Subscription]]:
        chance, found = self._chance, []
        for group in GROUPS:
            for topic in TOPICS[:2]:
                if chance.random() < 0.6:
                    kind, expression = chance.choice(_EXPRESSIONS)
                    model = "BROADCASTING" if group == "audit" and chance.random() < 0.7 else "CLUSTERING"
                    members = chance.choice(((), (_MEMBER,), None))
                    key = GroupTopic(group, topic)
                    found.append((key, Subscription(kind, expression, 1, "PUSH", model, "LAST", members)))
        return found


def _some(values: tuple[str, ...]) -> st.SearchStrategy[list[str] | None]:
    return st.none() | st.lists(st.sampled_from(values), min_size=1, max_size=2, unique=True)


MOMENTS = st.builds(
    lambda step, more: from_ms(MIDNIGHT_MS + step * EVERY_MS) + datetime.timedelta(microseconds=more),
    st.integers(0, STEPS + 2),
    st.sampled_from((-1, 0, 0, 0, 1, 7_000_123, 20_000_000)),
)
CHOICES: dict[str, st.SearchStrategy[Any]] = {
    "by": st.sampled_from(("queue", "group")),
    "broker": _some((*BROKERS, "none")),
    "group": _some((*GROUPS, "audit@broadcast")),
    "topic": _some(TOPICS),
}
LAG_QUESTIONS = st.fixed_dictionaries({"at": st.none() | MOMENTS}, optional=CHOICES)
"""Arguments of `AnalysisLake.lag`."""
LAG_HISTORY_QUESTIONS = st.fixed_dictionaries(
    {
        "window": st.sampled_from(("10s", "30s", "1 minute")),
        "since": st.integers(0, STEPS).map(lambda step: from_ms(MIDNIGHT_MS + step * EVERY_MS)),
    },
    optional={**CHOICES, "until": MOMENTS},
)
"""Arguments of `AnalysisLake.lag_history`."""
