"""Stores with batches in one record and light queues, used in turn by a real broker, ours, and a real one again."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from commitlake.broker_lite.stores.rocketmq import MessageStore, StoreOptions
from commitlake.broker_lite.stores.rocketmq.store_files import CheckpointFile
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.rocketmq import OutgoingMessage, Producer
from commitlake.connectors.rocketmq.options import ClientOptions
from commitlake.schemas.layouts.rocketmq.batchconsumequeue import ENTRY
from tests.servers.broker_lite import SMALL_FILES as LITE_FILES
from tests.servers.broker_lite import BrokerLite
from tests.servers.java_programs import count_origins, run_java
from tests.servers.rocketmq import SMALL_FILES, RocketMQ, StartBroker
from tests.support.lakes import archive_store
from tests.support.replays import ReplayWorld, target_client

TOPIC = "Batched"
LIGHT = ("%LMQ%first", "%LMQ%second")
BATCH_FILE_BYTES = 20 * ENTRY.size
OPTIONS = dataclasses.replace(
    SMALL_FILES,
    extra={
        "enableLmq": True,
        "enableMultiDispatch": True,
        "mapperFileSizeBatchConsumeQueue": BATCH_FILE_BYTES,
        "messageIndexSafe": True,
    },
)
STORE_OPTIONS = StoreOptions(
    segment_size_bytes=1 << 20,
    consume_queue_file_size_bytes=100 * 20,
    batch_queue_file_size_bytes=BATCH_FILE_BYTES,
    index_slots=200,
    index_entries=800,
    max_message_size_bytes=512 << 10,
)
SENT = 640


def send_batches(servers: RocketMQ | BrokerLite) -> None:
    """Send batches with the Java client, after a tenth as many that it does not count."""
    run_java("5.5.0", "SendLoad", [servers.name_server_address, TOPIC, "batch", str(SENT), "50", "1"])


def send_others(servers: RocketMQ | BrokerLite) -> None:
    """Send single messages to the topic of batches, and messages for light queues."""
    with Producer("others", ClientOptions(servers.name_server_address)) as producer:
        for number in range(20):
            producer.send(OutgoingMessage(TOPIC, b"single %d" % number, tags="single"))
            names = LIGHT if number % 4 == 0 else LIGHT[:1]
            producer.send(
                OutgoingMessage("Lit", b"lit %d" % number, properties={"INNER_MULTI_DISPATCH": ",".join(names)})
            )


def queue_files(root: Path) -> dict[str, bytes]:
    """Return the files of all queues by their names, without those of the broker's own topics."""
    folders = [path for kind in ("consumequeue", "batchconsumequeue") for path in sorted((root / kind).iterdir())]
    files = [path for folder in folders if folder.name in (TOPIC, "Lit", *LIGHT) for path in sorted(folder.rglob("0*"))]
    return {str(path.relative_to(root)): path.read_bytes() for path in files if path.is_file()}


def without_index(root: Path) -> None:
    """Delete the index: the log is read from its first record."""
    shutil.rmtree(root / "index")


def crashed(root: Path) -> None:
    """Leave the store as after a crash, with a checkpoint that covers nothing."""
    (root / "abort").touch()
    checkpoint = CheckpointFile(root)
    checkpoint.update(physic_msg_timestamp=1, logics_msg_timestamp=1, index_msg_timestamp=0)
    checkpoint.save()


def without_queues(root: Path) -> None:
    """Delete the queues."""
    for kind in ("consumequeue", "batchconsumequeue"):
        shutil.rmtree(root / kind)


STATES: tuple[tuple[Callable[[Path], None], ...], ...] = (
    (),
    (without_index,),
    (crashed,),
    (without_index, crashed, without_queues),
)


def numbers(servers: RocketMQ | BrokerLite) -> dict[int, list[int]]:
    """Return the numbers of the messages that a Java consumer gets from each queue of the topic."""
    found: dict[int, list[int]] = {}
    for row in run_java("5.5.0", "ConsumeAll", [servers.name_server_address, TOPIC]):
        found.setdefault(row["queue_id"], []).append(row["queue_offset"])
    return found


@pytest.fixture
def written(start_broker: StartBroker, tmp_path: Path) -> Path:
    """A store that a real broker wrote."""
    store = tmp_path / "store"
    (store / "config").mkdir(parents=True)
    topic = {"topicName": TOPIC, "readQueueNums": 2, "writeQueueNums": 2, "perm": 6, "order": False,
             "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "attributes": {"queue.type": "BatchCQ"}}  # fmt: skip
    (store / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": {TOPIC: topic}}))
    servers = start_broker("5.5.0", store, OPTIONS)
    send_batches(servers)
    send_others(servers)
    servers.stop_broker()
    return store


@pytest.mark.long("a setting that is rarely used; batch queues have unit tests")
def test_real_broker_store_is_served_by_ours_then_by_the_real_broker_again(
    written: Path, start_broker: StartBroker, tmp_path: Path
) -> None:
    queues = queue_files(written)
    assert {name.split("/")[1] for name in queues} == {TOPIC, "Lit", *LIGHT}
    for number, state in enumerate(STATES):
        root = Path(shutil.copytree(written, tmp_path / f"state{number}"))
        for change in state:
            change(root)
        with MessageStore.open(root, STORE_OPTIONS) as store:
            sent = sum(store.max_offset(TOPIC, queue) for queue in range(2))
        assert sent > SENT
        assert queue_files(root) == queues, state

    root = tmp_path / f"state{len(STATES) - 1}"
    (root / "abort").touch()
    options = (*LITE_FILES, "--batch-queue-entries", str(BATCH_FILE_BYTES // ENTRY.size))
    with BrokerLite(tmp_path / "lite", store=root, options=options) as lite:
        before = numbers(lite)
        assert sum(map(len, before.values())) == sent
        send_batches(lite)
        send_others(lite)
        during = numbers(lite)
        assert sum(map(len, during.values())) == 2 * sent
    servers = start_broker("5.5.0", root, OPTIONS)
    assert numbers(servers) == during == {queue: list(range(len(found))) for queue, found in during.items()}
    send_batches(servers)
    send_others(servers)
    after = numbers(servers)
    assert after == {queue: list(range(len(found))) for queue, found in after.items()}
    assert sum(map(len, after.values())) == 3 * sent
    servers.stop_broker()
    with MessageStore.open(root, STORE_OPTIONS) as store:
        assert [store.max_offset(name, 0) for name in LIGHT] == [60, 15]
        bodies = [one.body for one in store.get(LIGHT[1], 0, 0, 100).messages]
        assert bodies == [b"lit %d" % number for number in range(0, 20, 4)] * 3


@pytest.mark.long("a setting that is rarely used; the splitting of batches has unit tests")
def test_a_replay_sends_each_message_of_the_batches(written: Path, start_broker: StartBroker, tmp_path: Path) -> None:
    with MessageStore.open(Path(shutil.copytree(written, tmp_path / "counted")), STORE_OPTIONS) as store:
        sent = sum(store.max_offset(TOPIC, queue) for queue in range(2))
    lake = Lake(str(tmp_path / "lake"))
    archive_store(written, lake)
    servers = start_broker("5.5.0", written, OPTIONS)
    with target_client(servers.name_server_address) as client:
        world = ReplayWorld(lake, servers.name_server_address, client)
        world.make_topic(2)
        assert world.replay("--topic", TOPIC) == 0
        found = [message for messages in world.received().values() for message in messages]
        assert len({message.unique_key for message in found}) == sent
        assert {len(message.body) for message in found} == {50, *range(len(b"single 0"), len(b"single 00") + 1)}
    assert sum(len(row["ids"]) for row in count_origins(servers, world.topic)) == sent > SENT
