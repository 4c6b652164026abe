"""Tests of `commitlake replay` from a store's log and from live topics to broker_lite."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest
from deltalake import DeltaTable

from commitlake.connectors.lake.lake import Lake
from commitlake.jobs.replay.command import main
from commitlake.pipelines.replay.ledger import Ledger, add_replay_event
from commitlake.schemas.remoting.topic_and_group_configs import SubscriptionGroupConfig
from commitlake.schemas.tables.replays import ReplayEvent
from tests.support.lakes import GrowingLake
from tests.support.logs import new_message
from tests.support.replays import ReplayWorld

TOPIC = "topic-01"


def store_of(world: ReplayWorld) -> Path:
    """Return the store that the world's lake was archived from."""
    return Path(world.lake.root).parent / "broker-a"


def expected(world: ReplayWorld) -> dict[object, list[object]]:
    """Return the physical offsets of the topic's messages by queue."""
    found: dict[object, list[object]] = {queue: [] for queue in range(4)}
    for row in world.archived():
        if row["topic"] == TOPIC:
            found[row["queue_id"]].append(row["physical_offset"])
    return found


@pytest.fixture
def fresh(world: ReplayWorld, tmp_path: Path) -> ReplayWorld:
    """The same target, and a lake that does not exist yet."""
    return ReplayWorld(Lake(str(tmp_path / "fresh")), world.name_servers, world.client, world.topic)


def test_a_store_is_replayed_without_an_archive(world: ReplayWorld, fresh: ReplayWorld) -> None:
    assert fresh.replay("--store", str(store_of(world)), "--topic", TOPIC, "--verify") == 0
    assert fresh.origins() == expected(world)
    archived = {row["physical_offset"]: row for row in world.archived()}
    for message in (message for queue in fresh.received().values() for message in queue):
        row = archived[int(message.properties["ORIGIN_PHYSICAL_OFFSET"])]
        assert message.properties["ORIGIN_MSG_ID"] == row["msg_id"]
        sent = {name: value for name, value in message.properties.items() if name in dict(row["properties"])}
        assert sent == dict(row["properties"])
    assert fresh.act("list") == 0


def test_a_replay_of_a_store_resumes_after_the_store_was_deleted(
    world: ReplayWorld, fresh: ReplayWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose_the_ledger(*_: object) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "add_outcomes", lose_the_ledger)
        assert fresh.replay("--store", str(store_of(world)), "--topic", TOPIC, "--limit", "50") == 1
    shutil.rmtree(store_of(world))
    assert fresh.act("resume", fresh.replay_id(), "--quiet") == 0
    found = Counter(offset for queue in fresh.origins().values() for offset in queue)
    assert len(found) == found.total() == len(fresh.ledger()) == 50
    assert fresh.act("verify", fresh.replay_id()) == 0
    assert fresh.act("undo", fresh.replay_id()) == 0


def test_a_store_is_replayed_twice_on_request(world: ReplayWorld, fresh: ReplayWorld) -> None:
    for _ in range(2):
        assert fresh.replay("--store", str(store_of(world)), "--topic", TOPIC, "--limit", "5", "--again") == 0
    assert sum(len(queue) for queue in fresh.received().values()) == 10


def test_a_store_is_replayed_again_after_a_finished_replay(
    world: ReplayWorld, fresh: ReplayWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--store", str(store_of(world)), "--topic", TOPIC]
    assert fresh.replay(*arguments, "--limit", "3") == 0
    first = fresh.replay_id()
    assert fresh.replay(*arguments) == 0
    assert len(fresh.ledger()) == 83
    add_replay_event(fresh.lake, first, ReplayEvent.STOPPED)
    assert fresh.replay(*arguments) == 4
    assert f"3 of these messages belong to the replay {first}, which has not finished" in capsys.readouterr().err


def test_a_dry_run_of_a_store_creates_no_lake(
    world: ReplayWorld, fresh: ReplayWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--lake", fresh.lake.root, "--store", str(store_of(world)), "--topic", TOPIC, "--dry-run", "--json"]
    assert main([*arguments, "--namesrv", world.name_servers, "--to-topic", world.topic]) == 0
    printed = capsys.readouterr()
    assert sum(json.loads(line)["messages"] for line in printed.out.splitlines()) == 80
    assert "without a limit, sending takes about 1 s" in printed.err
    assert main([*arguments, "--mask", "keys=null"]) == 0
    assert "order-" in capsys.readouterr().out
    assert not Path(fresh.lake.root).exists()


def test_the_offsets_of_a_group_are_read_from_the_store(
    world: ReplayWorld, fresh: ReplayWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    path = store_of(world) / "config" / "consumerOffset.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"offsetTable": {f"{TOPIC}@billing": {"0": 5, "1": 20}}}))
    place = ["--store", str(store_of(world)), "--topic", TOPIC]
    assert fresh.replay(*place, "--not-consumed-by", "billing") == 0
    offsets = {
        queue_id: [row["queue_offset"] for row in fresh.ledger() if row["queue_id"] == queue_id]
        for queue_id in range(4)
    }
    every = list(range(20))
    assert offsets == {0: every[5:], 1: [], 2: every, 3: every}  # in queues 2 and 3 it has no offset
    assert fresh.replay(*place, "--not-consumed-by", "nobody") == 2
    assert "the store has no offsets of the group 'nobody'" in capsys.readouterr().err


def test_damage_in_a_log_is_reported_and_the_rest_is_sent(
    world: ReplayWorld, fresh: ReplayWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    place = min(row["physical_offset"] for row in world.archived() if row["topic"] == TOPIC)
    (segment,) = (store_of(world) / "commitlog").iterdir()
    data = bytearray(segment.read_bytes())
    data[place + 4 : place + 8] = b"\xff" * 4
    segment.write_bytes(bytes(data))
    assert fresh.replay("--store", str(store_of(world)), "--topic", TOPIC) == 3
    assert "1 range of the log is damaged" in capsys.readouterr().err
    assert len(fresh.ledger()) == 79


def test_a_live_topic_is_replayed_to_another_topic(
    world: ReplayWorld, fresh: ReplayWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    assert world.replay("--topic", TOPIC) == 0
    live = ["--from-broker", world.name_servers, "--topic", world.topic]
    other = ReplayWorld(fresh.lake, world.name_servers, world.client)
    other.make_topic()
    assert other.replay(*live) == 0
    said = capsys.readouterr().err
    assert "no message matches" in said
    assert "80 matching messages were sent by a replay, and left out: --include-replayed selects them, too" in said
    group = f"G-{other.topic}"
    world.client.admin.create_group(SubscriptionGroupConfig(group))
    for queue in world.client.puller.queues(world.topic):
        world.client.admin.offsets.commit(queue, group, 15)
    chosen = [*live, "--include-replayed", "--not-consumed-by", group, "--verify"]
    assert other.replay(*chosen) == 0
    bodies = {queue: [message.body for message in found] for queue, found in other.received().items()}
    assert bodies == {queue: [message.body for message in found[15:]] for queue, found in world.received().items()}
    (place,) = {message.properties["ORIGIN_TOPIC"] for found in other.received().values() for message in found}
    assert place == world.topic


def test_unknown_names_of_live_topics_are_reported_with_the_nearest(
    world: ReplayWorld, fresh: ReplayWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    assert world.replay("--topic", TOPIC, "--limit", "3") == 0
    place = ["--lake", fresh.lake.root, "--from-broker", world.name_servers, "--include-replayed", "--dry-run"]

    def said(*arguments: str, code: int = 0) -> str:
        assert main([*place, *arguments]) == code
        return capsys.readouterr().err

    topic, misspelled = world.topic, f"{world.topic}s"
    assert f"the brokers have no topic '{misspelled}'. Did you mean '{topic}'?" in said("--topic", misspelled, code=2)
    both = said("--topic", misspelled, "--topic", topic, "--queue", "9", "--tag", "no-such-tag")
    assert f"warning: the brokers have no topic '{misspelled}'" in both
    assert f"warning: no queue 9 of '{topic}'; there are 0, 1, 2, 3" in both
    tags = said("--topic", topic, "--tag", "no-such-tag")
    assert "warning: no message that was read has the tag 'no-such-tag'" in tags
    broker = next(iter(world.client.admin.clusters().broker_addr_table))
    assert f"Did you mean '{broker}'?" in said("--topic", topic, "--broker", f"{broker}x", code=2)
    assert "the brokers have no dead letter of the group 'billing'" in said("--dlq-of", "billing", code=2)
    assert "warning" not in said("--topic", topic, "--broker", broker, "--queue", "1")


def test_unknown_tags_and_groups_of_a_store_are_reported(
    world: ReplayWorld, fresh: ReplayWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    place = ["--lake", fresh.lake.root, "--store", str(store_of(world)), "--dry-run"]
    assert main([*place, "--topic", TOPIC, "--tag", "no-such-tag"]) == 0
    assert "warning: no message that was read has the tag 'no-such-tag'" in capsys.readouterr().err
    assert main([*place, "--dlq-of", "billing"]) == 0
    assert "warning: there is no dead letter of the group 'billing'" in capsys.readouterr().err


def test_all_copies_of_a_message_are_sent_only_on_request(world: ReplayWorld, tmp_path: Path) -> None:
    growing = GrowingLake(tmp_path / "second")
    origin = (("RETRY_TOPIC", "orders"), ("REAL_TOPIC", "%RETRY%billing"))
    growing.write(
        [
            new_message(0),
            new_message(1, topic="%RETRY%billing", queue_id=0, properties=origin),
            new_message(2, topic="%DLQ%billing", queue_id=0, properties=(("RETRY_TOPIC", "orders"),)),
        ]
    )
    growing.archive()
    second = ReplayWorld(growing.lake, world.name_servers, world.client, world.topic)

    def sent(*arguments: str) -> list[str]:
        assert second.replay(*arguments, "--again") == 0
        rows = DeltaTable(second.lake.uri("replay_messages")).to_pyarrow_table().to_pylist()
        return sorted(row["topic"] for row in rows if row["replay_id"] == second.replay_id())

    assert sent("--where", "true") == ["orders"]
    assert sent("--topic", "%RETRY%billing") == ["%RETRY%billing"]
    assert sent("--where", "true", "--all-copies") == ["%DLQ%billing", "%RETRY%billing", "orders"]
    assert sent("--topic", "orders", "--all-copies") == ["%DLQ%billing", "%RETRY%billing", "orders"]
    store = ("--store", str(growing.store), "--topic", "orders", "--all-copies")
    assert sent(*store) == ["%DLQ%billing", "%RETRY%billing", "orders"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--store", "a", "--from-broker", "127.0.0.1:1", "--topic", TOPIC], "leave one of them out"),
        (["--from-broker", "127.0.0.1:1", "--key", "order-1"], "--from-broker needs one of --topic and --dlq-of"),
        (["--store", "a", "--not-consumed-by", "g", "--offsets-at", "-1h"], "--offsets-at needs messages of the"),
        (["--store", "/no/such/store", "--topic", TOPIC], "/no/such/store"),
        (["--from-broker", "127.0.0.1:1", "--topic", TOPIC, "--all-copies"], "name the topics of retries and dead let"),
        (["--store", "a", "--dlq-of", "g", "--all-copies"], "--dlq-of and --all-copies cannot be used together"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    fresh: ReplayWorld, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fresh.replay(*arguments) == 2
    assert message in capsys.readouterr().err
    assert not Path(fresh.lake.root).exists()
