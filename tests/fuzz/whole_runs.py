"""Hostile messages through whole jobs: archive, query, verify, rebuild, salvage, restore and broker_lite.

A case is a message. Hundreds to hundreds of thousands of them make a store, which then goes through every job. No job
may stop; each message is a row of `messages`, or was refused with an answer; nothing is written outside the folders
given.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

from commitlake.broker_lite.broker.broker import Broker
from commitlake.broker_lite.broker.options import BrokerOptions
from commitlake.broker_lite.delivery import Delivery
from commitlake.broker_lite.handlers.dispatcher import Dispatcher
from commitlake.broker_lite.protocol import Channel
from commitlake.broker_lite.stores.rocketmq import MessageStore, StoreOptions
from commitlake.connectors.formats.registry import COMMITLOGS
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.reading.stores import find_stores
from commitlake.pipelines.rebuild.run import rebuild_store
from commitlake.pipelines.rebuild.settings import RequestedSettings
from commitlake.pipelines.restore.log_rows import RestoreSelection
from commitlake.pipelines.restore.run import restore_store
from commitlake.pipelines.salvage.run import salvage_store
from commitlake.schemas.layouts.rocketmq.batchconsumequeue import BATCH_QUEUE_TYPE, QUEUE_TYPE
from commitlake.schemas.layouts.rocketmq.hosts import Host
from commitlake.schemas.layouts.segment_names import segment_name
from commitlake.schemas.remoting.batch import BatchItem, serialize_batch
from commitlake.schemas.remoting.codes import RequestCode
from commitlake.schemas.remoting.frames import Command, parse_command
from tests.fuzz.hostile_messages import START_MS, HostileTexts
from tests.fuzz.planted_logs import PlantedLog
from tests.fuzz.planted_stores import PlantedStores
from tests.fuzz.targets import Target, UnexpectedErrors
from tests.fuzz.whole_jobs import WorkFolder, archive, ask, batches, step, verify
from tests.support.small_stores import Clock

SEGMENT_BYTES = 4 << 20
OPTIONS = StoreOptions(
    segment_size_bytes=SEGMENT_BYTES,
    consume_queue_file_size_bytes=20 * 2000,
    index_slots=5000,
    index_entries=20_000,
    max_message_size_bytes=1 << 17,
)
_WANTED = RequestedSettings(
    queue_file_size=OPTIONS.consume_queue_file_size_bytes,
    index_slots=OPTIONS.index_slots,
    index_entries=OPTIONS.index_entries,
    index_tags=True,
)
_MAX_BATCH_MESSAGES = 400
_BATCH_TOPIC = "batches"
"""A topic whose batches are one record each."""
_MAX_SERVED = 16_000
"""Messages of the largest planted store that goes through the broker, and whose restored copy is verified: the two take
longer than all the other jobs together."""
_FAR_MS = 4 * 86_400_000
_PEER = Host.of("127.0.0.1", 50123)
_QUERIES: tuple[tuple[str, ...], ...] = (
    ("--limit", "200"), ("--key", "order-7"), ("--kind", "delay", "--columns", "priority,properties"),
    ("--table", "message_keys", "--limit", "50"), ("--table", "quarantine"), ("--table", "quality_results"),
)  # fmt: skip


class PlantedMessages(PlantedStores):
    """Records that were written into the log directly, or damaged where no checksum covers them."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__(_MAX_SERVED)
        self._chance = chance

    def finish(self) -> None:
        """Run all jobs on the messages since the last batch."""
        if not self._count:
            return
        log = self._store.begin() / "commitlog"
        log.mkdir()
        for number, data in enumerate(PlantedLog(self._chance, self._count, SEGMENT_BYTES).segments()):
            (log / segment_name(number * SEGMENT_BYTES)).write_bytes(data)
        run_jobs(self._store.folder, self._count)
        if self._count <= _MAX_SERVED:
            with step("broker"):
                _serve(self._store.folder / "store")
        self._store.check_nothing_outside()
        self._count = 0


class SentMessages(Target):
    """Messages that a client sends to a broker, whose store then goes through the jobs."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._messages = HostileTexts(chance)
        self._items: list[BatchItem] = []
        self._batch_size = 0
        self._store = WorkFolder()
        self._batches = batches(_MAX_SERVED)
        self._batch = next(self._batches)
        self._unexpected = UnexpectedErrors(with_exception=True)
        self._begin()

    def _begin(self) -> None:
        self._clock = Clock(START_MS)
        self._root = self._store.begin()
        _plant_batch_topic(self._root)
        self._broker = MessageStore.open(self._root, OPTIONS, clock=self._clock)
        self._dispatcher = Dispatcher(Broker(self._broker, BrokerOptions()))
        self._answers: list[bytes] = []
        self._channel = Channel(_PEER, self._answers.append, lambda: None)
        self._sent = 0

    def try_one(self) -> None:
        """Send one more message, alone or in a batch; at the end of a store, run all jobs on it."""
        self._sent += 1
        if not self._batch_size and self._chance.random() < 0.02:
            self._batch_size = 1 + int(self._chance.random() ** 3 * _MAX_BATCH_MESSAGES)
        if self._batch_size:
            self._items.append(self._messages.item())
            if len(self._items) == self._batch_size:
                self._send_batch()
        else:
            fields, body = self._messages.sent()
            self._send(Command(RequestCode.SEND_MESSAGE_V2, fields, body, opaque=self._sent))
        if self._sent % 50 == 0:
            self._clock.now_ms += 7_000
            with step("tick"):
                self._dispatcher.run_periodic_work(self._clock.now_ms)
        if self._sent == self._batch:
            self.finish()
            self._batch = next(self._batches)

    def _send_batch(self) -> None:
        fields = self._messages.sent_batch(self._chance.choice(("orders", _BATCH_TOPIC)))
        body = serialize_batch(self._items)
        self._items, self._batch_size = [], 0
        self._send(Command(RequestCode.SEND_BATCH_MESSAGE, fields, body, opaque=self._sent))

    def _send(self, request: Command) -> None:
        """Send a request, which is answered."""
        self._answers.clear()
        self._dispatcher.handle(self._channel, request)
        while self._dispatcher.run_long_requests():
            pass
        self._dispatcher.answer_held_pulls()
        (answer,) = self._answers
        assert parse_command(answer) is not None
        self._unexpected.check()

    def finish(self) -> None:
        """Deliver all waiting messages, open the store again, and run all jobs on it."""
        if not self._sent:
            return
        if self._items:
            self._send_batch()
        for _ in range(20):
            self._clock.now_ms += _FAR_MS // 20
            with step("tick"):
                while self._dispatcher.run_periodic_work(self._clock.now_ms):
                    pass
        self._unexpected.check()
        self._broker.close()
        with step("broker"):
            count = _serve(self._root, self._clock)
        run_jobs(self._store.folder, count)
        self._store.check_nothing_outside()
        self._begin()

    def close(self) -> None:
        """Stop listening for errors, close the broker, and delete the store."""
        self._unexpected.stop()
        self._broker.close()
        self._store.remove()


def _plant_batch_topic(root: Path) -> None:
    """Write the configuration of a topic whose batches are one record each."""
    (root / "config").mkdir()
    attributes = {QUEUE_TYPE: BATCH_QUEUE_TYPE}
    entry = {"topicName": _BATCH_TOPIC, "readQueueNums": 4, "writeQueueNums": 4, "perm": 6, "attributes": attributes}
    (root / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": {_BATCH_TOPIC: entry}}))


def run_jobs(folder: Path, count: int) -> None:
    """Run the jobs that read a store, and then the others on its lake.

    Args:
        folder: has the store in `store`, and receives all output.
        count: number of messages in the store.
    """
    root, lake = folder / "store", Lake(str(folder / "lake"))
    with step("archive"):
        archive(root, lake, SEGMENT_BYTES)
    with step("query"):
        found = ask(lake, "--count")
        assert found == [str(count)], f"{found} of {count} messages"
        for question in _QUERIES:
            ask(lake, *question)
    (store,) = find_stores(str(root), "a", formats=COMMITLOGS)
    with step("verify"):
        assert verify(root).records == count
    with step("rebuild"):
        rebuild_store(store, folder / "rebuilt", _WANTED)
    with step("salvage"):
        salvage_store(store, folder / "salvaged")
        assert verify(folder / "salvaged").records >= count
    with step("restore"):
        restored = restore_store(
            lake, folder / "restored", RestoreSelection(""), settings=_WANTED, segment_size=SEGMENT_BYTES,
            skips_missing_bodies=True, threads=1,
        )  # fmt: skip
        assert restored.records + restored.lost == count
    if count <= _MAX_SERVED:
        with step("verify of what was restored"):
            verify(folder / "restored")


def _serve(root: Path, clock: Clock | None = None) -> int:
    """Deliver and pull all messages of a store, and check that it has the same ones when it is opened again.

    Returns:
        Number of records that the log has then.
    """
    clock = clock or Clock(START_MS + _FAR_MS)
    with MessageStore.open(root, OPTIONS, clock=clock) as store:
        delivery = Delivery(store)
        for _ in range(3):
            clock.now_ms += _FAR_MS
            delivery.deliver_due(clock.now_ms)
            list(delivery.take_due_half_messages(clock.now_ms, 1000, 2))
        delivery.pending_half_messages()
        pulled = _pull(store)
        store.get_by_key("orders", "order-7")
    with MessageStore.open(root, OPTIONS, clock=clock) as store:
        Delivery(store).next_due_ms()
        assert _pull(store) == pulled
    return verify(root).records


def _pull(store: MessageStore) -> dict[tuple[str, int], int]:
    """Return the number of messages pulled from each queue."""
    found = {}
    for topic, queue_id in store.queues:
        number, count, end = store.min_offset(topic, queue_id), 0, store.max_offset(topic, queue_id)
        while number < end:
            result = store.get(topic, queue_id, number, 1000)
            count += len(result.messages)
            assert result.next_offset > number, f"no progress at {number} of {topic}/{queue_id}: {result}, {end}"
            number = result.next_offset
        found[topic, queue_id] = count
    return found
