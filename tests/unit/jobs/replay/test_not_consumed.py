"""Messages that `replay --not-consumed-by` selects, and what its dry run says about the offsets."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from commitlake.connectors.rocketmq import Admin, ClientOptions, OutgoingMessage, Producer
from commitlake.jobs.lag.command import main as lag
from commitlake.jobs.replay.command import main
from commitlake.pipelines.lag.backlog_counting import Queue
from commitlake.pipelines.replay.errors import ReplayError
from commitlake.pipelines.replay.groups.not_consumed_messages import find_not_consumed_live
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
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.remoting.codes import RequestCode
from commitlake.schemas.remoting.frames import Command, serialize_command
from commitlake.schemas.remoting.routes import MessageQueue
from tests.support.lag_places import places_of, put_offsets, stored
from tests.support.lakes import GrowingLake, archive_store
from tests.support.live_brokers import LiveCluster
from tests.support.topic_reading import make_topic

START = datetime.datetime(2023, 11, 15, tzinfo=datetime.UTC)
MEMBERS = (Member("c", "10.0.0.9:1", "JAVA", 473, "V5_5_0"),)
Offsets = dict[str, int]
"""Offset in queue 0 by topic."""


def grow(folder: Path, messages: Iterable[tuple[str, float]], *more_brokers: str) -> GrowingLake:
    """Return a lake of messages of broker-a, each with its topic and second; other brokers have the same messages."""
    growing = GrowingLake(folder)
    growing.write(stored(topic, second) for topic, second in messages)
    growing.archive()
    for broker in more_brokers:
        archive_store(growing.store, growing.lake, broker)
    return growing


def take_snapshot(
    growing: GrowingLake,
    second: int,
    offsets: Offsets,
    *topics: str,
    broker: str = "broker-a",
    model: str = "CLUSTERING",
) -> None:
    """Add a snapshot of the group billing, whose clients subscribe to some topics."""
    taken = START + datetime.timedelta(seconds=second)
    known = {OffsetOwner(OffsetKind.GROUP, "billing", topic, 0): offset for topic, offset in offsets.items()}
    wanted = {
        GroupTopic("billing", topic): Subscription("TAG", "*", message_model=model, members=MEMBERS) for topic in topics
    }
    append_snapshot(
        growing.lake,
        StoreSnapshot(
            broker,
            SnapshotSource.BROKER,
            {OffsetKind.GROUP: taken},
            known,
            subscribed_as_of=taken,
            subscriptions=wanted,
        ),
    )


class DryRun:
    """A dry run of `replay --not-consumed-by billing`, with its output."""

    def __init__(self, capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> None:
        capsys.readouterr()
        chosen = ["--not-consumed-by", "billing", *arguments, "--dry-run", "--json", "--quiet"]
        assert main(chosen) == code
        printed = capsys.readouterr()
        self.rows: list[dict[str, Any]] = [json.loads(line) for line in printed.out.splitlines()]
        self.said = printed.err

    @property
    def chosen(self) -> dict[tuple[str, str], tuple[int, int, int]]:
        """Messages, first and last offset by store and topic."""
        names = ("messages", "first_offset", "last_offset")
        return {(row["broker"], row["topic"]): tuple(row[name] for name in names) for row in self.rows}


def test_a_topic_without_offsets_to_which_clients_subscribe_is_selected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    growing = grow(tmp_path, [(topic, second) for second in range(4) for topic in ("works", "fails", "others")])
    take_snapshot(growing, 10, {"works": 3}, "works", "fails")
    run = DryRun(capsys, "--lake", growing.lake.root)
    assert run.chosen == {("broker-a", "works"): (1, 3, 3), ("broker-a", "fails"): (4, 0, 3)}
    assert [row["group_offset"] for row in run.rows] == [None, 3]
    assert {row["offsets_as_of"] for row in run.rows} == {"2023-11-15T00:00:10Z"}
    assert "not consumed by billing, by its offsets of 2023-11-15T00:00:10Z (" in run.said
    assert "no committed offset in 1 queue of fails: chosen from the first message" in run.said
    run = DryRun(capsys, "--lake", growing.lake.root, "--topic", "fails", "--topic", "others")
    assert run.chosen == {("broker-a", "fails"): (4, 0, 3)}
    assert "warning: the group billing is not known to consume others: none of its messages is chosen" in run.said
    run = DryRun(capsys, "--lake", growing.lake.root, "--topic", "fails", "--topic", "missing")
    assert run.said.count("warning") == 1, "a topic without messages is reported once"


def test_a_broker_without_offsets_is_selected_if_clients_subscribe_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    growing = grow(tmp_path, [("orders", second) for second in range(4)], "broker-b", "broker-c")
    take_snapshot(growing, 10, {"orders": 4}, "orders")
    take_snapshot(growing, 11, {}, "orders", broker="broker-b")
    take_snapshot(growing, 12, {"%RETRY%billing": 0}, broker="broker-c")
    run = DryRun(capsys, "--lake", growing.lake.root, "--topic", "orders")
    assert run.chosen == {("broker-b", "orders"): (4, 0, 3)}
    assert "is not known to consume it on broker-c: its messages there are not chosen" in run.said


def test_clients_that_are_newer_than_the_last_change_of_offsets_are_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    growing = grow(tmp_path, [(topic, second) for second in range(4) for topic in ("works", "fails")])
    for second, topics in ((10, ["works"]), (70, ["works", "fails"])):
        take_snapshot(growing, second, {"works": 3}, *topics)
    run = DryRun(capsys, "--lake", growing.lake.root)
    assert run.chosen == {("broker-a", "works"): (1, 3, 3), ("broker-a", "fails"): (4, 0, 3)}
    assert lag(["--lake", growing.lake.root, "--topic", "fails", "--format", "jsonl"]) == 0
    assert json.loads(capsys.readouterr().out)["topic"] == "fails"
    run = DryRun(capsys, "--lake", growing.lake.root, "--offsets-at", "2023-11-15T00:00:30Z")
    assert list(run.chosen) == [("broker-a", "works")]


def test_a_group_that_consumes_nothing_at_the_time_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    growing = grow(tmp_path, [("orders", 0)])
    take_snapshot(growing, 10, {})
    take_snapshot(growing, 20, {}, "orders")
    run = DryRun(capsys, "--lake", growing.lake.root, "--offsets-at", "2023-11-15T00:00:15Z")
    assert not run.chosen
    assert "the group billing is not known to consume any of the topics: no message is chosen" in run.said


def test_live_topics_are_selected_by_the_same_rule(tmp_path: Path) -> None:
    brokers = ("broker-a", "broker-b", "broker-c")
    with LiveCluster(tmp_path, brokers) as cluster, Admin(options := ClientOptions(cluster.address)) as admin:
        with Producer("P", options) as producer:
            for topic in ("orders", "subs", "%RETRY%billing"):
                make_topic(admin, topic, 2)
                for broker in brokers:
                    producer.send(OutgoingMessage(topic, b"x"), queue=MessageQueue(topic, broker, 1))
        admin.offsets.commit(MessageQueue("orders", "broker-a", 0), "billing", 0)
        cluster.brokers["broker-b"].interfere = clients_of_subs("CLUSTERING")
        found = find_not_consumed_live(admin, "billing", ["orders", "subs", "%RETRY%billing"])
        cluster.brokers["broker-b"].interfere = clients_of_subs("BROADCASTING")
        with pytest.raises(ReplayError, match="the group billing consumes subs"):
            find_not_consumed_live(admin, "billing", ["orders", "subs"])
    assert {queue for queue, start in found.queues.items() if start.is_committed} == {Queue("broker-a", "orders", 0)}
    places = {(queue.broker, queue.topic) for queue in found.queues}
    assert places == {("broker-a", "orders"), ("broker-a", "%RETRY%billing"), ("broker-b", "subs")}
    assert any("is not known to consume it on broker-c" in warning for warning in found.warnings)


def clients_of_subs(model: str) -> Callable[[Command], bytes | None]:
    """Return a broker's answer on the clients of any group: one that subscribes to the topic subs."""
    subscribed = {"subs": {"topic": "subs", "subString": "*"}}
    client = {"clientId": "c", "clientAddr": "10.0.0.9:1", "language": "JAVA", "version": 473}
    body = json.dumps({"subscriptionTable": subscribed, "messageModel": model, "connectionSet": [client]}).encode()
    code = RequestCode.GET_CONSUMER_CONNECTION_LIST
    return lambda asked: serialize_command(asked.reply(0, body=body)) if asked.code == code else None


def test_a_store_without_a_snapshot_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    growing = grow(tmp_path, [("orders", 0)], "broker-b")
    take_snapshot(growing, 10, {"orders": 0})
    run = DryRun(capsys, "--lake", growing.lake.root)
    assert list(run.chosen) == [("broker-a", "orders")]
    assert "broker-b: the lake has no snapshot of its groups: none of its messages is chosen" in run.said


def test_a_group_that_broadcasts_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    growing = grow(tmp_path, [("orders", 0)])
    take_snapshot(growing, 5, {"orders": 0}, "orders")
    take_snapshot(growing, 10, {"orders": 0}, "orders", model="BROADCASTING")
    run = DryRun(capsys, "--lake", growing.lake.root, code=ExitCode.USAGE)
    assert "the group billing consumes orders by broadcasting" in run.said


@pytest.mark.parametrize("place", ["lake", "store"])
def test_messages_of_a_deleted_topic_are_not_selected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], place: str
) -> None:
    growing = grow(tmp_path, [("orders", second) for second in range(6)])
    growing.recreate_topics()
    growing.write(stored("orders", second) for second in range(10, 13))
    put_offsets(growing.store, "consumerOffset.json", {"orders@billing": {0: 1}})
    arguments = places_of(growing)[place]
    if place == "store":
        arguments += ["--lake", str(tmp_path / "none")]
    run = DryRun(capsys, *arguments)
    assert run.chosen == {("broker-a", "orders"): (2, 1, 2)}
    assert "orders: deleted and created again; messages of the deleted topic are not chosen" in run.said


def test_messages_of_a_queue_that_the_new_topic_lacks_are_not_selected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    growing = GrowingLake(tmp_path)
    growing.write(replace(stored("orders", second), queue_id=second % 2) for second in range(6))
    growing.recreate_topics()
    growing.write(stored("orders", second) for second in range(10, 13))
    growing.archive()
    take_snapshot(growing, 14, {"orders": 1}, "orders")
    run = DryRun(capsys, "--lake", growing.lake.root)
    assert run.chosen == {("broker-a", "orders"): (2, 1, 2)}


def test_all_messages_of_a_topic_that_was_created_again_later_are_selected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    growing = grow(tmp_path, [("orders", second) for second in range(6)])
    take_snapshot(growing, 7, {"orders": 4})
    growing.recreate_topics()
    growing.write(stored("orders", second) for second in range(10, 13))
    growing.archive()
    run = DryRun(capsys, "--lake", growing.lake.root)
    assert run.chosen == {("broker-a", "orders"): (5, 0, 5)}  # the last two of the deleted topic, and three new ones
    assert "all messages of the new topic are chosen" in run.said


def test_offsets_between_two_snapshots_are_taken_as_far_as_they_are_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    growing = grow(tmp_path, [("orders", second) for second in range(10)])
    for second, offset in ((10, 3), (20, 7), (30, 5)):
        take_snapshot(growing, second, {"orders": offset})
    place = ["--lake", growing.lake.root, "--offsets-at"]
    run = DryRun(capsys, *place, "2023-11-15T00:00:15Z")
    assert run.chosen == {("broker-a", "orders"): (7, 3, 9)}
    assert (
        "billing consumed 4 messages between the snapshots of 2023-11-15T00:00:10Z and 2023-11-15T00:00:20Z" in run.said
    )
    run = DryRun(capsys, *place, "2023-11-15T00:00:35Z")
    assert run.chosen == {("broker-a", "orders"): (5, 5, 9)}
    assert "billing may have consumed some of them between 2023-11-15T00:00:30Z and 2023-11-15T00:00:35Z" in run.said
    run = DryRun(capsys, *place, "2023-11-15T00:00:25Z", code=ExitCode.USAGE)
    assert (
        "not known for orders/0: the group was set back between the snapshots of 2023-11-15T00:00:20Z and" in run.said
    )
    assert "and --offsets-at 2023-11-15T00:00:30Z those after it" in run.said


def test_dead_letters_and_offsets_of_a_group_are_not_combined(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = DryRun(capsys, "--lake", str(tmp_path), "--dlq-of", "billing", code=ExitCode.USAGE)
    assert "--dlq-of and --not-consumed-by cannot be used together, as no group consumes dead letters" in run.said
