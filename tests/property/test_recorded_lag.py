"""`lag_minutes` has what a broker's own table of offsets had, which was recorded every second.

For some hours of a broker's clock, messages are sent, and groups consume them at different speeds. Snapshots are
archived every few minutes. All requests and answers are those of clients of broker_lite.
"""

from __future__ import annotations

import datetime
import random
from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest

import commitlake
from commitlake.broker_lite.broker.broker import Broker
from commitlake.broker_lite.broker.options import BrokerOptions
from commitlake.broker_lite.handlers.dispatcher import Dispatcher
from commitlake.broker_lite.stores.rocketmq import MessageStore, StoreOptions
from commitlake.connectors.lake.lake import Lake
from commitlake.pipelines.lag_minutes.backfill import backfill_lag_minutes
from commitlake.pipelines.lag_minutes.coverage import find_covered_minutes
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
from commitlake.schemas.layouts.rocketmq.topics import split_offset_key
from commitlake.schemas.remoting.codes import RequestCode
from commitlake.schemas.remoting.json_fields import parse_body
from commitlake.schemas.remoting.statistics_bodies import ConsumerOffsetTable
from commitlake.schemas.times import from_ms
from tests.support.brokers import Peer, send_fields
from tests.support.lakes import MIDNIGHT_MS, archive_store
from tests.support.small_stores import Clock

BROKER, TOPIC, QUEUES = "broker-a", "orders", 2
SECONDS, MOMENTS, MINUTE = 215 * 60, 200, 60
RUNS = (80, 5_430, 9_999, SECONDS)
"""Seconds at which the log is archived, and `lag_minutes` filled."""
SPEEDS = {"Fast": 60, "Even": 9, "Slow": 3, "Bursty": 0, "Stopped": 0, "SetBack": 12, "Tagged": 12, "Late": 12}
"""Messages of a queue that a group consumes at most, each time."""
_MEMBER = Member("client-1", "10.0.0.9:4711", "JAVA", 495, "V5_5_0")
Queue = tuple[str, int]
"""A group, and one of its queues."""


class State(NamedTuple):
    """State of the broker at a second: messages of each queue, and each group's offsets."""

    sent: tuple[int, ...]
    offsets: dict[Queue, int]


@dataclass
class Recording:
    """A lake, the state at each second, and the seconds of the snapshots."""

    lake: Lake
    tags: dict[int, list[str]] = field(default_factory=lambda: defaultdict(list))
    states: list[State] = field(default_factory=list)
    snapshots: list[int] = field(default_factory=list)

    def lag(self, second: int, group: str, queue_id: int) -> int:
        """Return the number of messages of a queue that a group wants and had not consumed."""
        state = self.states[second]
        behind = self.tags[queue_id][state.offsets.get((group, queue_id), 0) : state.sent[queue_id]]
        return behind.count("paid") if group == "Tagged" else len(behind)

    def has_offset_near(self, second: int, group: str) -> bool:
        """Return whether the last snapshot up to a second, or the next one, has an offset of the group."""
        near = [*[one for one in self.snapshots if one <= second][-1:]]
        near += [] if second in self.snapshots else [one for one in self.snapshots if one > second][:1]
        return any(name == group for one in near for name, _ in self.states[one].offsets)


class World:
    """A broker, whose clients send, consume, and write down its offsets."""

    def __init__(self, store: MessageStore, clock: Clock, recording: Recording) -> None:
        self.store, self.clock, self.recording = store, clock, recording
        self.chance = random.Random(47)
        self.peer = Peer(Dispatcher(Broker(store, BrokerOptions())))
        self.is_set_back = False
        for group in SPEEDS:
            self.peer.heartbeat("client-1", group, TOPIC, "paid" if group == "Tagged" else "*")

    def at(self, second: int, milliseconds: int = 0) -> None:
        """Set the broker's clock."""
        self.clock.now_ms = MIDNIGHT_MS + 1000 * second + milliseconds

    def send_and_consume(self, second: int) -> None:
        """Send some messages within a second, and let some groups consume."""
        self.at(second, self.chance.randrange(1, 999))
        for _ in range(self.chance.choice((0, 0, 1, 1, 2))):
            queue_id, tag = self.chance.randrange(QUEUES), self.chance.choice(("paid", "open", "sent"))
            fields = send_fields(TOPIC, {"TAGS": tag}, e=queue_id, g=self.clock.now_ms)
            assert self.peer.ask(RequestCode.SEND_MESSAGE_V2, fields, b"x").code == 0
            self.recording.tags[queue_id].append(tag)
        for group, speed in SPEEDS.items():
            if self.chance.random() < 0.1 and (group != "Late" or second > SECONDS // 3):
                self._consume(group, speed, self.chance.randrange(QUEUES))

    def _consume(self, group: str, speed: int, queue_id: int) -> None:
        before = self.recording.states[-1].offsets.get((group, queue_id), 0)
        end = len(self.recording.tags[queue_id])
        most = 2_000 if group == "Bursty" and self.chance.random() < 0.02 else speed
        after = min(end, before + self.chance.randrange(most + 1))
        if group == "Stopped":
            after = min(end, 20)
        # Set back to before its last snapshot, and not moved before the next one: a group that is as far again by then
        # looks like one that only went on.
        if group == "SetBack" and self.is_set_back:
            after = before
        elif group == "SetBack" and self.chance.random() < 0.02:
            known = self.recording.states[self.recording.snapshots[-1]].offsets if self.recording.snapshots else {}
            if (last := known.get((group, queue_id), 0)) > 1:
                after, self.is_set_back = last // 2, True
        if after != before:
            fields = {"consumerGroup": group, "topic": TOPIC, "queueId": queue_id, "commitOffset": after}
            assert self.peer.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields).code == 0

    def write_down(self) -> None:
        """Record what the broker has."""
        table = self.store.config.consumer_offsets.entries
        owners = ((split_offset_key(key)[1], queues) for key, queues in table.items())
        offsets = {(group, queue): offset for group, queues in owners for queue, offset in queues.items()}
        sent = tuple(self.store.max_offset(TOPIC, queue_id) for queue_id in range(QUEUES))
        self.recording.states.append(State(sent, offsets))

    def snapshot(self, second: int) -> StoreSnapshot:
        """Return a snapshot of the offsets that the broker answers with, which are those that were just recorded."""
        answer = self.peer.ask(RequestCode.GET_ALL_CONSUMER_OFFSET)
        table = parse_body(ConsumerOffsetTable, answer.body).offset_table
        owners = ((split_offset_key(key)[1], queues) for key, queues in table.items())
        offsets = {(group, queue): offset for group, queues in owners for queue, offset in queues.items()}
        assert offsets == self.recording.states[-1].offsets
        time = from_ms(MIDNIGHT_MS + 1000 * second)
        subscriptions = {
            GroupTopic(group, TOPIC): Subscription(
                "TAG", "paid" if group == "Tagged" else "*", 1, "PUSH", "CLUSTERING", "LAST", (_MEMBER,)
            )
            for group in {group for group, _ in offsets}
        }
        self.recording.snapshots.append(second)
        self.is_set_back = False
        return StoreSnapshot(
            BROKER,
            SnapshotSource.BROKER,
            {OffsetKind.GROUP: time},
            {OffsetOwner(OffsetKind.GROUP, group, TOPIC, queue): offset for (group, queue), offset in offsets.items()},
            time,
            subscriptions,
            log_end=self.store.max_physical_offset,
            log_start=0,
        )


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    folder, clock = tmp_path_factory.mktemp("recorded-"), Clock(MIDNIGHT_MS)
    found = Recording(Lake(str(folder / "lake")))
    options = StoreOptions(segment_size_bytes=4 << 20, index_slots=1000, index_entries=4000)
    with MessageStore.open(folder / BROKER, options, clock=clock) as store:
        world, due = World(store, clock, found), 90
        for second in range(SECONDS + 1):
            world.at(second)
            world.write_down()
            if second >= due:
                append_snapshot(found.lake, world.snapshot(second))
                due = second + world.chance.randrange(60, 500)
                if world.chance.random() < 0.5:
                    due -= due % MINUTE
            if second in RUNS:
                archive_store(folder / BROKER, found.lake, BROKER)
                backfill_lag_minutes(found.lake)
            world.send_and_consume(second)
    return found


@pytest.mark.long("`lag_minutes` is compared with `lag` each time")
def test_lag_is_within_its_bounds_at_200_moments_and_exact_at_snapshots(recording: Recording) -> None:
    last = recording.snapshots[-1] // MINUTE
    first = -(-recording.snapshots[0] // MINUTE)
    moments = random.Random(3).sample(range(first, last + 1), MOMENTS)
    begin = MIDNIGHT_MS // 60_000
    covered = find_covered_minutes(recording.lake.pin_versions(), [BROKER])[BROKER]
    assert all(covered.contains_minute(begin + minute) for minute in moments)
    since, until = (from_ms(MIDNIGHT_MS + 60_000 * minute) for minute in (first - 1, last))
    rows = commitlake.open(recording.lake.root).lag_history(window="1 minute", since=since, until=until, topic=TOPIC)
    found = {(row["as_of"], row["group"], row["queue_id"]): row for row in rows.to_pylist()}
    exact = total = 0
    for minute in moments:
        time, second = from_ms(MIDNIGHT_MS) + datetime.timedelta(minutes=minute), minute * MINUTE
        for group in SPEEDS:
            for queue_id in range(QUEUES):
                where = (minute, group, queue_id)
                row, truth = found.get((time, group, queue_id)), recording.lag(second, group, queue_id)
                if row is None:
                    assert not recording.has_offset_near(second, group), where
                    continue
                offset = recording.states[second].offsets.get((group, queue_id), 0)
                assert row["messages_min"] <= truth <= _or_more(row["messages_max"], truth), where
                assert row["offset_min"] <= offset <= _or_more(row["offset_max"], offset), where
                if second in recording.snapshots:
                    assert row["messages_min"] == row["messages_max"] == truth, where
                exact += row["messages_min"] == row["messages_max"]
                total += 1
    at_snapshots = sum(minute * MINUTE in recording.snapshots for minute in moments)
    print(f"{len(moments)} minutes, {at_snapshots} of them at snapshots: {exact} of {total} figures exact")
    assert at_snapshots > 10
    assert total > exact > 0


def _or_more(bound: int | None, value: int) -> int:
    """Return an upper bound; the value itself if the bound is not known."""
    return value if bound is None else bound
