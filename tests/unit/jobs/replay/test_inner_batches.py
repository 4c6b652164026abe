"""Replays of inner batches: each message of a record is sent as one, with its own key, tag and flag."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from commitlake.pipelines.replay.sending.queue_sender import TargetClient
from commitlake.schemas.layouts.rocketmq.properties import serialize_properties
from commitlake.schemas.layouts.rocketmq.sysflag import INNER_BATCH, NEED_UNWRAP
from commitlake.schemas.remoting.batch import BatchItem, serialize_batch
from tests.servers.broker_lite import BrokerLite
from tests.support.lakes import GrowingLake, shop_messages
from tests.support.logs import new_message
from tests.support.replays import ReplayWorld

RECORDS, EACH = 4, 5
TOPIC = "Batched"
TAG = ("TAGS", "t")


def batch(number: int, told: int = EACH) -> dict[str, Any]:
    """Return the fields of a record with messages."""
    items = [
        BatchItem(each, b"body %d.%d" % (number, each), serialize_properties([("KEYS", f"k{number}.{each} all"), TAG]))
        for each in range(EACH)
    ]
    properties = (("WAIT", "true"), ("INNER_BASE", str(number * EACH)), ("INNER_NUM", str(told)))
    return {"body": serialize_batch(items), "properties": properties, "sys_flag": INNER_BATCH | NEED_UNWRAP}


@pytest.fixture
def batches(tmp_path: Path, broker: BrokerLite, client: TargetClient) -> ReplayWorld:
    """A lake of inner batches with a plain message between them, and a topic of the broker's."""
    growing = GrowingLake(tmp_path)
    plain = dataclasses.replace(shop_messages(1)[0], topic=TOPIC, queue_id=0)
    records = [new_message(number + 1, topic=TOPIC, queue_id=0, **batch(number)) for number in range(RECORDS)]
    growing.write([*records[:2], plain, *records[2:]])
    growing.archive()
    made = ReplayWorld(growing.lake, broker.name_server_address, client)
    made.make_topic(1)
    return made


def test_each_message_of_an_inner_batch_is_sent(batches: ReplayWorld, capsys: pytest.CaptureFixture[str]) -> None:
    assert batches.replay("--topic", TOPIC, "--dry-run") == 0
    assert "21 messages of 1 queue" in capsys.readouterr().err
    assert batches.replay("--topic", TOPIC) == 0
    (found,) = batches.received().values()
    split = [message for message in found if message.keys and "all" in message.keys]
    expected = [(number, each) for number in range(RECORDS) for each in range(EACH)]
    assert [message.body for message in split] == [b"body %d.%d" % one for one in expected]
    assert [(message.keys, message.tags, message.flag) for message in split] == [
        ([f"k{number}.{each}", "all"], "t", each) for number, each in expected
    ]
    assert not any(message.sys_flag & (INNER_BATCH | NEED_UNWRAP) for message in found)
    assert len(found) == len(batches.ledger()) == 21
    assert [row["queue_offset"] for row in batches.ledger() if row["physical_offset"]][:4] == [1, 2, 3, 4]


def test_a_limit_counts_messages_and_a_mask_gets_each(batches: ReplayWorld) -> None:
    assert batches.replay("--topic", TOPIC, "--limit", "7", "--mask", "body=text:gone", "--mask", "keys=last:2") == 0
    (found,) = batches.received().values()
    assert [message.body for message in found] == [b"gone"] * 7


def test_messages_of_a_store_are_split_when_they_are_copied(batches: ReplayWorld) -> None:
    store = Path(batches.lake.root).parent / "broker-a"
    assert batches.replay("--store", str(store), "--topic", TOPIC) == 0
    (found,) = batches.received().values()
    assert len(found) == 21


def test_an_inner_batch_that_cannot_be_split_is_not_sent_and_the_others_are(
    tmp_path: Path, broker: BrokerLite, client: TargetClient
) -> None:
    growing = GrowingLake(tmp_path)
    wrong = [batch(0, told=EACH + 1), batch(1) | {"body": b"no batch"}, batch(2)]
    growing.write(new_message(number + 1, topic=TOPIC, queue_id=0, **record) for number, record in enumerate(wrong))
    growing.archive()
    world = ReplayWorld(growing.lake, broker.name_server_address, client)
    world.make_topic(1)
    assert world.replay("--topic", TOPIC) == 3
    errors = [row["error"] for row in world.ledger() if row["error"]]
    assert (
        errors
        == ["expected an inner batch of 6 messages, found 5"] * 6
        + ["an inner batch whose messages cannot be read: batch item at byte 0: expected at least 22 bytes, found 8"]
        * 5
    )
    assert [len(found) for found in world.received().values()] == [5]
