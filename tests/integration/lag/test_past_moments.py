"""Lag at past moments, compared with a broker's own offsets and a count of sent messages at these moments.

For more than four minutes, messages are sent, and groups consume them at different speeds. A snapshot is taken every
few seconds. At random moments, and at whole minutes, everything pauses for some milliseconds, and the true state is
recorded.
"""

from __future__ import annotations

import datetime
import random
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import NamedTuple

import pytest

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.rocketmq import Admin, ClientOptions, OutgoingMessage, Producer, Puller
from commitlake.connectors.rocketmq.network import Network
from commitlake.jobs.archive.command import main as archive
from commitlake.pipelines.lag.store_lag import lag_of_lake
from commitlake.pipelines.lag.verdicts import FigureBounds
from commitlake.pipelines.lag_minutes.backfill import backfill_lag_minutes
from commitlake.pipelines.lag_minutes.minute_computation import last_minute_at
from commitlake.pipelines.lag_minutes.minute_reader import lag_at_minutes
from commitlake.pipelines.snapshot.broker_queries import fetch_store_snapshot
from commitlake.pipelines.snapshot.progress import OffsetKind
from commitlake.pipelines.snapshot.table_append import append_snapshot
from commitlake.schemas.remoting.codes import RequestCode
from commitlake.schemas.remoting.heartbeats import ConsumerData, Heartbeat, SubscriptionData
from commitlake.schemas.remoting.json_fields import serialize_body
from commitlake.schemas.remoting.topic_and_group_configs import SubscriptionGroupConfig
from commitlake.schemas.selection import Selection
from tests.servers.rocketmq import VERSIONS, RocketMQ
from tests.support.topic_reading import make_topic
from tests.support.waiting import let_pass

pytestmark = pytest.mark.long("four minutes of producing and consuming")
BROKER, TOPIC, QUEUES = "broker-a", "Orders", 2
SECONDS, MOMENTS, SNAPSHOT_SECONDS = 250.0, 200, 7.0
SPEEDS = {"Fast": 60, "Even": 12, "Slow": 3, "Bursty": 0, "Stopped": 0, "SetBack": 12, "Tagged": 12}
"""Messages of a queue that a group consumes in a round at most."""
Offsets = dict[str, dict[int, int]]


class Moment(NamedTuple):
    """State at a moment: messages of each queue with their tags, and each group's offsets."""

    at: datetime.datetime
    sent: dict[int, int]
    offsets: Offsets
    is_snapshot: bool
    is_minute: bool = False


class Recording(NamedTuple):
    """A lake, and the state at several moments."""

    lake: Lake
    tags: dict[int, list[str]]
    moments: list[Moment]

    def lag(self, moment: Moment, group: str, queue_id: int) -> int:
        """Return the number of messages of a queue that a group wants and had not consumed."""
        behind = self.tags[queue_id][moment.offsets[group][queue_id] : moment.sent[queue_id]]
        return behind.count("paid") if group == "Tagged" else len(behind)

    def snapshot_offsets(self, moment: Moment, group: str) -> list[int]:
        """Return a group's offsets in the last snapshot at or before a moment and in the next one; 0 if it has none."""
        snapshots = [one for one in self.moments if one.is_snapshot]
        before = [one for one in snapshots if one.at <= moment.at][-1:]
        after = [one for one in snapshots if one.at > moment.at][: 0 if moment.is_snapshot else 1]
        return [offset for one in (*before, *after) for offset in one.offsets[group].values()]


class World:
    """Sends, consumes, and records the state."""

    def __init__(self, servers: RocketMQ, lake: Lake, stack: ExitStack) -> None:
        options = ClientOptions(servers.name_server_address)
        self.lake = lake
        self.admin = stack.enter_context(Admin(options))
        make_topic(self.admin, TOPIC, QUEUES)
        for group in SPEEDS:
            self.admin.create_group(SubscriptionGroupConfig(group))
        self.producer = stack.enter_context(Producer("Recorded", options))
        self.pullers = {group: stack.enter_context(Puller(group, options)) for group in SPEEDS}
        self.queues = sorted(self.producer.queues(TOPIC))
        self.offsets: Offsets = {group: dict.fromkeys(range(QUEUES), 0) for group in SPEEDS}
        self.tags: dict[int, list[str]] = defaultdict(list)
        self.moments: list[Moment] = []
        self.chance = random.Random(19)
        self.was_set_back = False
        self.client = Network(options)
        stack.callback(self.client.close)
        for group in SPEEDS:
            wanted = SubscriptionData(TOPIC, "paid" if group == "Tagged" else "*")
            consumers = (ConsumerData(group, subscription_data_set=(wanted,)),)
            beat = Heartbeat(f"{self.client.client_id}-{group}", (), consumers)
            self.client.send_and_wait(servers.broker_address, RequestCode.HEART_BEAT, None, serialize_body(beat))

    def send_and_consume(self, number: int) -> None:
        """Send some messages, and let each group consume some."""
        for queue in self.queues:
            for _ in range(self.chance.randrange(8)):
                tag = self.chance.choice(["paid", "open", "sent"])
                self.producer.send(OutgoingMessage(TOPIC, b"x", tags=tag), queue=queue)
                self.tags[queue.queue_id].append(tag)
        for group, speed in SPEEDS.items():
            most = 200 if group == "Bursty" and self.chance.random() < 0.02 else speed
            for queue in self.queues:
                before, end = self.offsets[group][queue.queue_id], len(self.tags[queue.queue_id])
                after = min(end, before + self.chance.randrange(most + 1))
                if group == "SetBack" and number % 150 == 149:
                    after, self.was_set_back = before // 2, True
                elif group == "SetBack" and self.was_set_back:
                    after = before  # a group that is as far again by the next snapshot looks like others
                if group == "Stopped":
                    after = min(end, 20)
                if after != before:
                    self.pullers[group].commit_offset(queue, after)
                    self.offsets[group][queue.queue_id] = after

    def write_down_minute(self) -> None:
        """Record the state of a whole minute, if one begins soon; every second one is a snapshot, too."""
        now = datetime.datetime.now(datetime.UTC)
        minute = now.replace(second=0, microsecond=0) + datetime.timedelta(minutes=1)
        if (left := (minute - now).total_seconds()) < 1:
            let_pass(left, "nothing is sent or consumed while the minute begins")
            self.write_down(is_snapshot=minute.minute % 2 == 0, minute=minute)

    def write_down(self, *, is_snapshot: bool, minute: datetime.datetime | None = None) -> None:
        """Record the state while nothing is sent or consumed, and add a snapshot to the lake."""
        let_pass(0.003, "what was sent was stored in an earlier millisecond")
        progress = fetch_store_snapshot(self.admin, BROKER)
        if minute is not None:
            assert minute <= progress.taken[OffsetKind.GROUP] < minute + datetime.timedelta(seconds=30)
            taken = {**progress.taken, OffsetKind.GROUP: minute}
            progress = replace(progress, taken=taken, subscribed_as_of=minute)
        asked = {
            (position.group, position.queue_id): offset
            for position, offset in progress.offsets.items()
            if position.kind == OffsetKind.GROUP and position.topic == TOPIC
        }
        offsets = {group: {queue: asked.get((group, queue), 0) for queue in range(QUEUES)} for group in SPEEDS}
        assert offsets == self.offsets
        sent = {queue: len(self.tags[queue]) for queue in range(QUEUES)}
        at = progress.taken[OffsetKind.GROUP]
        self.moments.append(Moment(at, sent, offsets, is_snapshot, minute is not None))
        if is_snapshot:
            append_snapshot(self.lake, progress)
            self.was_set_back = False
        let_pass(0.003, "what is sent next is stored in a later millisecond")


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recording]:
    folder = tmp_path_factory.mktemp("moments-")
    lake = Lake(str(folder / "lake"))
    with RocketMQ(VERSIONS[0], folder / "rocketmq") as servers, ExitStack() as stack:
        world = World(servers, lake, stack)
        for number in range(10):
            world.send_and_consume(number)
        quick = ["--no-quality", "--no-keys", "--local", "--quiet"]
        run = ["--store", str(servers.store), "--broker", BROKER, "--lake", lake.root, *quick]
        assert archive(run) == 0  # creates the lake
        let_pass(0.01, "the run's own snapshot is older than the next one")
        world.write_down(is_snapshot=True)
        begun, snapshots, number = time.monotonic(), 1, 10
        due = sorted(world.chance.uniform(1, SECONDS) for _ in range(MOMENTS))
        while time.monotonic() - begun < SECONDS or due:
            world.send_and_consume(number)
            number += 1
            world.write_down_minute()
            passed = time.monotonic() - begun
            while due and due[0] <= passed:
                due.pop(0)
                world.write_down(is_snapshot=False)
                world.send_and_consume(number)
            if passed >= snapshots * SNAPSHOT_SECONDS:
                snapshots += 1
                world.write_down(is_snapshot=True)
            let_pass(0.05, "groups and producers are not busy all the time")
        world.write_down(is_snapshot=True)
        assert archive(run) == 0
        yield Recording(lake, world.tags, world.moments)


def check_moment(recording: Recording, moment: Moment, found: Mapping[tuple[str, int], FigureBounds]) -> int:
    """Check the messages behind by group and queue at a moment, and return the number of exact figures."""
    for group in SPEEDS:
        for queue_id in range(QUEUES):
            if (group, queue_id) not in found:
                assert not any(recording.snapshot_offsets(moment, group)), (moment, group)
                continue
            messages, truth = found[group, queue_id], recording.lag(moment, group, queue_id)
            assert messages.high is not None
            assert messages.low <= truth <= messages.high, (moment, group, queue_id)
            assert messages.is_exact or not moment.is_snapshot
    return sum(each.is_exact for each in found.values())


def test_lag_is_within_its_bounds_at_200_moments_and_exact_at_snapshots(recording: Recording) -> None:
    exact = total = 0
    for moment in recording.moments:
        rows = lag_of_lake(recording.lake, moment.at, Selection(topics=[TOPIC])).rows
        found = {(row.group, row.queue_id): row.messages for row in rows}
        exact += check_moment(recording, moment, found)
        total += len(found)
    snapshots = sum(moment.is_snapshot for moment in recording.moments)
    print(f"{len(recording.moments)} moments, {snapshots} of them snapshots: {exact} of {total} figures exact")
    assert sum(not moment.is_snapshot and not moment.is_minute for moment in recording.moments) == MOMENTS
    assert snapshots > 15


def test_stored_minutes_are_within_their_bounds_and_exact_at_snapshots(recording: Recording) -> None:
    backfill_lag_minutes(recording.lake)
    minutes = [moment for moment in recording.moments if moment.is_minute]
    exact = total = 0
    for moment in minutes:
        tables = lag_at_minutes(
            recording.lake.table("lag_minutes"), [last_minute_at(moment.at)], Selection(topics=[TOPIC])
        )
        rows = [row for table in tables for row in table.to_pylist()]
        found = {
            (row["group"], row["queue_id"]): FigureBounds(row["messages_min"], row["messages_max"]) for row in rows
        }
        exact += check_moment(recording, moment, found)
        total += len(found)
    print(f"{len(minutes)} minutes: {exact} of {total} figures exact")
    assert len(minutes) > 2
    assert {moment.is_snapshot for moment in minutes} == {False, True}
    assert total > exact > 0
