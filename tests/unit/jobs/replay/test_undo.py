"""Tests of `commitlake replay undo` after replays to broker_lite."""

from __future__ import annotations

import json
from typing import Any

import pytest

from commitlake.connectors.rocketmq import ClientOptions, OutgoingMessage
from commitlake.connectors.rocketmq.admin import Admin
from commitlake.connectors.rocketmq.network import Network
from commitlake.connectors.rocketmq.producers.tracked_connections import TrackedConnection
from commitlake.jobs.replay.command import main
from commitlake.pipelines.replay.ledger import Ledger, read_replay_state
from commitlake.pipelines.replay.sending import share_sender
from commitlake.pipelines.replay.sending.batches import Batch
from commitlake.pipelines.replay.sending.queue_sender import QueueSender
from commitlake.pipelines.replay.sending.run import ReplayRun
from commitlake.schemas.remoting.codes import RequestCode
from commitlake.schemas.remoting.heartbeats import ConsumerData, Heartbeat, SubscriptionData
from commitlake.schemas.remoting.json_fields import serialize_body
from commitlake.schemas.remoting.topic_and_group_configs import SubscriptionGroupConfig
from commitlake.schemas.tables.replays import ReplayEvent
from tests.servers.broker_lite import BrokerLite
from tests.support.replays import ReplayWorld

TOPIC, QUEUES, SENT = "topic-01", 4, 20
"""Of each of the target's queues, twenty messages are sent."""


@pytest.fixture
def group(world: ReplayWorld) -> str:
    """A group that no other test uses, and that has consumed no message."""
    name = f"G-{world.topic}"
    world.client.admin.create_group(SubscriptionGroupConfig(name))
    commit(world, name, *[0] * QUEUES)
    return name


def commit(world: ReplayWorld, group: str, *offsets: int) -> None:
    for queue, offset in zip(sorted(world.client.puller.queues(world.topic)), offsets, strict=True):
        world.client.admin.offsets.commit(queue, group, offset)


def offsets(world: ReplayWorld, group: str) -> list[int | None]:
    queues = sorted(world.client.puller.queues(world.topic))
    return [world.client.admin.offsets.committed(queue, group) for queue in queues]


def undo(world: ReplayWorld, *arguments: str) -> int:
    return world.act("undo", world.replay_id(), *arguments)


def steps(world: ReplayWorld, capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> list[Any]:
    capsys.readouterr()
    assert undo(world, "--json", *arguments) == code
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.fixture
def interleaved(world: ReplayWorld, group: str, monkeypatch: pytest.MonkeyPatch) -> ReplayWorld:
    """A replay that sent ten messages, then ten more to each queue, while others sent one after each ten."""
    post = QueueSender._send_batch

    def post_and_another(self: QueueSender, batch: Batch, over: TrackedConnection, *, is_alone: bool) -> int:
        first = post(self, batch, over, is_alone=is_alone)
        other = OutgoingMessage(world.topic, b"x", tags="Other", keys=("foreign",))
        world.client.producer.send(other, queue=self.queue)
        return first

    with monkeypatch.context() as patched:
        patched.setattr(share_sender, "MAX_BATCH_MESSAGES", SENT // 2)
        patched.setattr(QueueSender, "_send_batch", post_and_another)
        assert world.replay("--topic", TOPIC) == 0
    return world


def test_a_group_skips_all_messages_that_it_has_not_consumed(
    world: ReplayWorld, group: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert world.replay("--topic", TOPIC) == 0
    commit(world, group, 0, 5, SENT, 0)
    rows = steps(world, capsys)
    assert [(row["set_to"], row["steps_over"], row["consumed"], row["left"]) for row in rows] == [
        (SENT, SENT, 0, 0), (SENT, SENT - 5, 5, 0), (None, 0, SENT, 0), (SENT, SENT, 0, 0),
    ]  # fmt: skip
    assert {row["group"] for row in rows} == {group}
    assert rows[2]["note"] == "the group has consumed all of them"
    assert offsets(world, group) == [0, 5, SENT, 0]
    assert undo(world, "--apply") == 2
    assert "3 offsets of" in (printed := capsys.readouterr().err)
    assert "there is no terminal to ask for confirmation: no offset was set" in printed
    assert undo(world, "--apply", "--yes") == 0
    assert offsets(world, group) == [SENT] * QUEUES
    state = read_replay_state(world.lake, world.replay_id())
    assert state.event is ReplayEvent.UNDONE
    assert f"queue 1 of broker-a: 5 to {SENT}" in str(state.detail)
    assert undo(world, "--apply") == 0  # no offset is left to set
    assert world.act("resume", world.replay_id()) == 2
    assert "was undone for some groups" in capsys.readouterr().err


def test_a_route_without_a_broker_that_the_replay_has_sent_to_is_an_error(
    world: ReplayWorld, group: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert world.replay("--topic", TOPIC) == 0
    route = world.client.admin.route(world.topic)
    other = route.broker_datas[0]._replace(broker_name="broker-b")
    monkeypatch.setattr(Admin, "route", lambda *_: route._replace(broker_datas=(other,)))
    assert undo(world) == 1
    assert (
        "the replay sent messages to the brokers broker-a, but the topic's route now has only broker-b"
        in capsys.readouterr().err
    )


def test_messages_of_others_are_not_skipped(
    interleaved: ReplayWorld, group: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = steps(interleaved, capsys, code=3)
    assert [(row["set_to"], row["steps_over"], row["left"], row["others"]) for row in rows] == [
        (10, 10, 10, 1)
    ] * QUEUES
    assert "10 more follow after 1 message of others (offset 10, keys foreign)" in rows[0]["note"]
    assert undo(interleaved, "--apply", "--yes", "--quiet") == 3
    assert offsets(interleaved, group) == [10] * QUEUES
    assert [row["set_to"] for row in steps(interleaved, capsys, code=3)] == [None] * QUEUES
    commit(interleaved, group, *[11] * QUEUES)  # once the group has consumed the other message
    assert undo(interleaved, "--apply", "--yes", "--quiet") == 0
    assert offsets(interleaved, group) == [21] * QUEUES


def test_messages_of_others_are_skipped_on_request(
    interleaved: ReplayWorld, group: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = steps(interleaved, capsys, "--skip-others")
    assert [(row["set_to"], row["steps_over"], row["skips"]) for row in rows] == [(21, SENT, 1)] * QUEUES
    assert rows[0]["note"] == "1 message of others is skipped (offset 10, keys foreign)"


def test_messages_of_others_outside_the_subscription_do_not_block_a_group(
    interleaved: ReplayWorld, broker: BrokerLite, group: str, capsys: pytest.CaptureFixture[str]
) -> None:
    network = Network(ClientOptions(interleaved.name_servers))
    try:
        wanted = SubscriptionData(interleaved.topic, "Tag0 || Tag1 || Tag2")
        data = ConsumerData(group, subscription_data_set=(wanted,))
        beat = Heartbeat(f"client-of-{group}", (), (data,))
        network.send_and_wait(broker.broker_address, RequestCode.HEART_BEAT, None, serialize_body(beat))
        rows = steps(interleaved, capsys)
        assert [(row["set_to"], row["others"]) for row in rows] == [(21, 0)] * QUEUES
        assert undo(interleaved, "--apply", "--yes") == 4
        assert "has 1 client" in capsys.readouterr().err
        assert offsets(interleaved, group) == [0] * QUEUES
        assert undo(interleaved, "--apply", "--yes", "--online") == 0
        assert offsets(interleaved, group) == [21] * QUEUES
    finally:
        network.close()


def test_messages_that_a_killed_replay_did_not_record_are_skipped(
    world: ReplayWorld, group: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lose_the_ledger(*_: object) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "add_outcomes", lose_the_ledger)
        assert world.replay("--topic", TOPIC) == 1
    assert [row["steps_over"] for row in steps(world, capsys)] == [SENT] * QUEUES


def test_too_many_groups_are_refused(
    world: ReplayWorld, group: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert world.replay("--topic", TOPIC) == 0
    names = [f"group-{number}" for number in range(100_000)]
    with monkeypatch.context() as patched:
        patched.setattr(Admin, "groups_of_topic", lambda *_: [*names, group])
        assert undo(world, "--apply", "--yes") == 2
        assert "100,001 groups consume a topic of the target, expected at most 5,000" in (capsys.readouterr().err)
        assert undo(world, "--group", group, "--apply", "--yes") == 0
    assert offsets(world, group) == [SENT] * QUEUES


def test_a_replay_that_sent_nothing_has_nothing_to_undo(
    world: ReplayWorld, group: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(ReplayRun, "send_replay", lambda *_, **__: 1 / 0)
        assert world.replay("--topic", TOPIC) == 1
    assert undo(world) == 0
    assert "has sent nothing" in capsys.readouterr().err


def test_a_recreated_topic_is_left_unchanged(
    world: ReplayWorld, group: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert world.replay("--topic", TOPIC) == 0
    world.client.admin.delete_topic(world.topic)
    world.make_topic(QUEUES)
    commit(world, group, *[0] * QUEUES)
    rows = steps(world, capsys, code=3)
    assert "the queue ends at 0, but the replay's last message was at 19" in rows[0]["note"]
    queues = sorted(world.client.puller.queues(world.topic))
    for _ in range(SENT):
        world.client.producer.send(OutgoingMessage(world.topic, b"x"), queue=queues[0])
    rows = steps(world, capsys, code=3)
    assert "the message at offset 0 is no longer the replay's" in rows[0]["note"]


def test_groups_are_selected_by_name(world: ReplayWorld, group: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert world.replay("--topic", TOPIC) == 0
    assert undo(world, "--group", f"{group}x") == 2
    assert f"Did you mean '{group}'?" in capsys.readouterr().err
    assert {row["group"] for row in steps(world, capsys, "--group", group)} == {group}
    assert main(["list", "--lake", world.lake.root, "--apply"]) == 2
    assert "--apply cannot be used with 'replay list'" in capsys.readouterr().err
