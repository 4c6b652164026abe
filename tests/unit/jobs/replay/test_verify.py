"""Tests of `replay verify`: messages are read back from the target and compared with the lake."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from commitlake.connectors.rocketmq.producers.messages import OutgoingMessage
from commitlake.pipelines.replay.ledger import read_replay_state
from commitlake.pipelines.replay.origin_properties import ORIGIN_PROPERTIES
from commitlake.schemas.tables.replays import ReplayEvent
from tests.support.replays import ReplayWorld

TOPIC = "topic-01"
CHOICE = ("--topic", TOPIC)


def verified(world: ReplayWorld, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[dict[str, Any]], str]:
    """Return the exit code, the printed rows, and the result as text."""
    capsys.readouterr()
    code = world.act("verify", world.replay_id(), "--output", "jsonl", "--quiet")
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    states = DeltaTable(world.lake.uri("replays")).to_pyarrow_table().sort_by("at").to_pylist()
    return code, rows, str(states[-1]["detail"])


def change_ledger(world: ReplayWorld, change: Mapping[int, Mapping[str, object]]) -> None:
    """Rewrite the ledger with other values in the rows of some physical offsets."""
    table = DeltaTable(world.lake.uri("replay_messages")).to_pyarrow_table()
    rows = [row | change.get(row["physical_offset"], {}) for row in table.to_pylist()]
    write_deltalake(world.lake.uri("replay_messages"), pa.Table.from_pylist(rows, table.schema), mode="overwrite")


def test_an_intact_replay_has_no_differences(world: ReplayWorld, capsys: pytest.CaptureFixture[str]) -> None:
    assert world.replay(*CHOICE) == 0
    state = read_replay_state(world.lake, world.replay_id())
    assert state.event is ReplayEvent.FINISHED
    assert state.detail == "80 messages read back from the target and compared with the lake: no differences"
    assert verified(world, capsys) == (0, [], state.detail)


def test_messages_of_others_in_the_same_queues_do_not_count(
    world: ReplayWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    world.client.producer.send(OutgoingMessage(world.topic, b"before"))
    assert world.replay(*CHOICE) == 0
    for number in range(8):
        world.client.producer.send(OutgoingMessage(world.topic, b"behind %d" % number))
    code, rows, words = verified(world, capsys)
    assert (code, rows) == (0, [])
    assert words.startswith("80 messages")


def test_a_message_that_was_sent_twice_is_found(world: ReplayWorld, capsys: pytest.CaptureFixture[str]) -> None:
    assert world.replay(*CHOICE) == 0
    (message, *_) = world.received()[1]
    kept = {name: message.properties[name] for name in ORIGIN_PROPERTIES}
    (queue,) = [queue for queue in world.client.puller.queues(world.topic) if queue.queue_id == 1]
    world.client.producer.send(OutgoingMessage(world.topic, message.body, properties=kept), queue=queue)
    code, rows, words = verified(world, capsys)
    assert (code, words.rpartition(": ")[2]) == (3, "twice 1")
    assert rows == [
        {
            "problem": "twice",
            "topic": world.topic,
            "broker": queue.broker_name,
            "queue_id": 1,
            "queue_offset": 20,
            "origin_broker": kept["ORIGIN_BROKER"],
            "origin_offset": int(kept["ORIGIN_PHYSICAL_OFFSET"]),
        }
    ]


def test_missing_and_swapped_messages_are_found(world: ReplayWorld, capsys: pytest.CaptureFixture[str]) -> None:
    assert world.replay(*CHOICE) == 0
    ledger = [row for row in world.ledger() if row["target_queue_id"] == 2]
    first, second, last = ledger[0], ledger[1], ledger[-1]
    change_ledger(
        world,
        {
            first["physical_offset"]: {"target_offset": second["target_offset"]},
            second["physical_offset"]: {"target_offset": first["target_offset"]},
            last["physical_offset"]: {"target_offset": last["target_offset"] + 1000},
        },
    )
    code, rows, words = verified(world, capsys)
    assert code == 3
    found = {(row["problem"], row["origin_offset"]) for row in rows}
    exchanged = {first["physical_offset"], second["physical_offset"]}
    assert found >= {("body", offset) for offset in exchanged} | {("properties", offset) for offset in exchanged}
    assert ("order", second["physical_offset"]) in found
    # A message after the queue's end is missing; the message that is there is not in the ledger.
    assert found >= {("expired", last["physical_offset"]), ("twice", last["physical_offset"])}
    assert "body 2" in words


def test_without_packs_bodies_are_compared_by_their_checksums(
    world: ReplayWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    assert world.replay(*CHOICE) == 0
    shutil.rmtree(world.lake.bodies_root)
    code, rows, words = verified(world, capsys)
    assert (code, rows) == (0, [])
    assert words.startswith("80 messages read back from the target and compared with the lake, 80 of them by size")


def test_a_message_deleted_from_the_lake_is_reported(world: ReplayWorld, capsys: pytest.CaptureFixture[str]) -> None:
    assert world.replay(*CHOICE) == 0
    offset = world.ledger()[0]["physical_offset"]
    DeltaTable(world.lake.uri("messages")).delete(f"physical_offset = {offset}")
    code, rows, words = verified(world, capsys)
    assert code == 3
    assert [(row["problem"], row["origin_offset"]) for row in rows] == [("not_in_lake", offset), ("twice", offset)]
    assert "not_in_lake 1" in words
