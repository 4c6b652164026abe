"""Hostile messages through whole jobs: archive, query, verify, rebuild, salvage, restore and broker_lite.

A case is a message. Hundreds to hundreds of thousands of them make a store, which then goes through every job. No job
may stop; each message is a row of `messages`, or was refused with an answer; nothing is written outside the folders
given.
"""

from __future__ import annotations

import contextlib
import datetime
import io
import json
import logging
import random
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from broker_lite.broker.broker import Broker
from broker_lite.broker.options import BrokerOptions
from broker_lite.delivery import Delivery
from broker_lite.handlers.dispatcher import Dispatcher
from broker_lite.protocol import Channel
from broker_lite.store import MessageStore, StoreOptions
from connectors.archive.judging import judge_run
from connectors.archive.run import Config, _commit
from connectors.archive.staged import staging
from connectors.archive.task import ArchiveTasks
from connectors.archive.work import find_work
from connectors.commitlog.stores import find_stores
from connectors.lake.committer import open_for_append
from connectors.lake.follower import finish_runs
from connectors.lake.paths import LakePaths
from connectors.message_keys.follow import follow_keys
from connectors.packs.location import PackLocation
from connectors.rebuild.run import rebuild_store
from connectors.rebuild.settings import Wanted
from connectors.restore.rows import Chosen
from connectors.restore.run import restore_store
from connectors.salvage.run import salvage_store
from connectors.verify.admission import Options
from connectors.verify.doctor import StoreReport, verify_stores
from jobs import query
from schemas.layouts.hosts import Host
from schemas.layouts.inner_batch import BATCH_QUEUE_TYPE, QUEUE_TYPE
from schemas.layouts.remoting import Command, parse_command
from schemas.layouts.segments import segment_name
from schemas.remoting.batch import BatchItem, serialize_batch
from schemas.remoting.codes import RequestCode
from tests.fuzz.hostile_messages import START_MS, HostileTexts
from tests.fuzz.planted_logs import PlantedLog
from tests.fuzz.targets import Target
from tests.unit.broker_lite.builders import Clock

SEGMENT_BYTES = 4 << 20
OPTIONS = StoreOptions(
    segment_size_bytes=SEGMENT_BYTES,
    consume_queue_file_size_bytes=20 * 2000,
    index_slots=5000,
    index_entries=20_000,
    max_message_size_bytes=1 << 17,
)
_WANTED = Wanted(
    queue_file_size=OPTIONS.consume_queue_file_size_bytes,
    index_slots=OPTIONS.index_slots,
    index_entries=OPTIONS.index_entries,
    index_tags=True,
)
_FIRST_BATCH, _LARGEST_BATCH = 250, 250_000
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


class _Store:
    """A folder for a store, what is made of it, and a canary around them."""

    def __init__(self) -> None:
        self._outside = Path(tempfile.mkdtemp(prefix="fuzz-"))
        self.folder = self._outside / "a" / "b" / "c" / "d" / "work"

    def begin(self) -> Path:
        """Return an empty folder for the next store."""
        shutil.rmtree(self._outside, ignore_errors=True)
        (self.folder / "store").mkdir(parents=True)
        return self.folder / "store"

    def check_nothing_outside(self) -> None:
        """See that all that was written is below the folder."""
        inside = self.folder.relative_to(self._outside).parts
        at = self._outside
        for name in inside:
            assert [path.name for path in at.iterdir()] == [name], f"written outside: {sorted(at.iterdir())}"
            at /= name

    def remove(self) -> None:
        """Leave nothing behind."""
        shutil.rmtree(self._outside, ignore_errors=True)


@contextmanager
def _step(name: str) -> Iterator[None]:
    """Let an error say which job it was in; a warning of an overflow is an error, too."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            yield
    except Exception as error:
        error.add_note(f"in {name}")
        raise AssertionError(f"{name}: {type(error).__name__}: {error}") from error


class PlantedMessages(Target):
    """Records that somebody put into the log itself, or that were damaged where no checksum covers them."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._store = _Store()
        self._batch = _FIRST_BATCH
        self._count = 0

    def try_one(self) -> None:
        """One message more; at the end of a batch all of them through all jobs."""
        self._count += 1
        if self._count == self._batch:
            self.finish()
            self._batch = _next_batch(self._batch)

    def finish(self) -> None:
        """Take the messages since the last batch through all jobs."""
        if not self._count:
            return
        log = self._store.begin() / "commitlog"
        log.mkdir()
        for number, data in enumerate(PlantedLog(self._chance, self._count, SEGMENT_BYTES).segments()):
            (log / segment_name(number * SEGMENT_BYTES)).write_bytes(data)
        run_jobs(self._store.folder, self._count)
        if self._count <= _MAX_SERVED:
            with _step("broker"):
                _serve(self._store.folder / "store")
        self._store.check_nothing_outside()
        self._count = 0

    def close(self) -> None:
        """Leave nothing behind."""
        self._store.remove()


class SentMessages(Target):
    """Messages that a client sends to a broker, whose store then goes through the jobs."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._messages = HostileTexts(chance)
        self._items: list[BatchItem] = []
        self._batch_size = 0
        self._store = _Store()
        self._batch = _FIRST_BATCH
        self._unexpected = _Unexpected()
        logging.getLogger("broker_lite.handlers.dispatcher").addHandler(self._unexpected)
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
        """One message more, sent alone or with its batch; at the end of a store it goes through all jobs."""
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
            with _step("tick"):
                self._dispatcher.tick(self._clock.now_ms)
        if self._sent == self._batch:
            self.finish()
            self._batch = _next_batch(self._batch)

    def _send_batch(self) -> None:
        fields = self._messages.sent_batch(self._chance.choice(("orders", _BATCH_TOPIC)))
        body = serialize_batch(self._items)
        self._items, self._batch_size = [], 0
        self._send(Command(RequestCode.SEND_BATCH_MESSAGE, fields, body, opaque=self._sent))

    def _send(self, request: Command) -> None:
        """Send a request, which is answered."""
        self._answers.clear()
        self._dispatcher.handle(self._channel, request)
        while self._dispatcher.work():
            pass
        self._dispatcher.answer_arrived()
        (answer,) = self._answers
        assert parse_command(answer) is not None
        self._unexpected.check()

    def finish(self) -> None:
        """Let all that waits come, open the store again, and take it through all jobs."""
        if not self._sent:
            return
        if self._items:
            self._send_batch()
        for _ in range(20):
            self._clock.now_ms += _FAR_MS // 20
            with _step("tick"):
                while self._dispatcher.tick(self._clock.now_ms):
                    pass
        self._unexpected.check()
        self._broker.close()
        with _step("broker"):
            count = _serve(self._root, self._clock)
        run_jobs(self._store.folder, count)
        self._store.check_nothing_outside()
        self._begin()

    def close(self) -> None:
        """Leave nothing behind."""
        logging.getLogger("broker_lite.handlers.dispatcher").removeHandler(self._unexpected)
        self._broker.close()
        self._store.remove()


def _plant_batch_topic(root: Path) -> None:
    """Write the configuration of a topic whose batches are one record each."""
    (root / "config").mkdir()
    attributes = {QUEUE_TYPE: BATCH_QUEUE_TYPE}
    entry = {"topicName": _BATCH_TOPIC, "readQueueNums": 4, "writeQueueNums": 4, "perm": 6, "attributes": attributes}
    (root / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": {_BATCH_TOPIC: entry}}))


def _next_batch(batch: int) -> int:
    """Return the size of the next store: twice the last, and after the largest one that the broker serves."""
    return _MAX_SERVED if batch == _LARGEST_BATCH else min(_LARGEST_BATCH, 2 * batch)


def run_jobs(folder: Path, count: int) -> None:
    """Take a store through the jobs that read it, and what the lake has through the others.

    Args:
        folder: with the store in `store`; gets all that is made.
        count: how many messages the store has.
    """
    root, lake = folder / "store", LakePaths(str(folder / "lake"))
    with _step("archive"):
        _archive(root, lake)
    with _step("query"):
        found = _query(lake, "--count")
        assert found == [str(count)], f"{found} of {count} messages"
        for question in _QUERIES:
            _query(lake, *question)
    (store,) = find_stores(str(root), "a")
    with _step("verify"):
        assert _verify(root).records == count
    with _step("rebuild"):
        rebuild_store(store, folder / "rebuilt", _WANTED, threads=1)
    with _step("salvage"):
        salvage_store(store, folder / "salvaged", threads=1)
        assert _verify(folder / "salvaged").records >= count
    with _step("restore"):
        restored = restore_store(
            lake, lake.bodies, folder / "restored", Chosen(""), settings=_WANTED, segment_size=SEGMENT_BYTES,
            skip=True, threads=1,
        )  # fmt: skip
        assert restored.records + restored.lost == count
    if count <= _MAX_SERVED:
        with _step("verify of what was restored"):
            _verify(folder / "restored")


def _archive(root: Path, lake: LakePaths) -> None:
    """Archive as the job does, in this process."""
    work = find_work(str(root), "a", lake)
    open_for_append(lake.messages)
    config = Config(str(root), lake.root, broker="a")
    splits = work.splits(SEGMENT_BYTES)
    tasks = ArchiveTasks(splits, lake, PackLocation(lake.bodies), work.commit.run_id, "1")
    with staging(lake, work.commit.run_id) as manifest:
        manifest.extend(tasks.run(range(len(splits))))
        judged = judge_run(lake, work, manifest, None)
    commit = _commit(config, work, manifest, judged.files, datetime.datetime.now(datetime.UTC))
    finish_runs(lake, commit.run_id, "1")
    follow_keys(lake)


def _query(lake: LakePaths, *arguments: str) -> list[str]:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        code = query.main(["--lake", lake.root, "--output", "jsonl", "--quiet", *arguments])
    assert code == 0, f"query {arguments} ended with {code}"
    return out.getvalue().splitlines()


def _verify(root: Path) -> StoreReport:
    (store,) = find_stores(str(root), "a")
    (report,) = verify_stores([store], Options(), processes=1)
    return report


def _serve(root: Path, clock: Clock | None = None) -> int:
    """Open a store, deliver all that waits, and pull all that is there; opened again, it is the same.

    Returns:
        How many records the log has then.
    """
    clock = clock or Clock(START_MS + _FAR_MS)
    with MessageStore.open(root, OPTIONS, clock=clock) as store:
        delivery = Delivery(store)
        for _ in range(3):
            clock.now_ms += _FAR_MS
            delivery.deliver_due(clock.now_ms)
            list(delivery.take_due_halves(clock.now_ms, 1000, 2))
        delivery.pending_halves()
        pulled = _pull(store)
        store.get_by_key("orders", "order-7")
    with MessageStore.open(root, OPTIONS, clock=clock) as store:
        Delivery(store).next_due_ms()
        assert _pull(store) == pulled
    return _verify(root).records


def _pull(store: MessageStore) -> dict[tuple[str, int], int]:
    """Return how many messages each queue gives."""
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


class _Unexpected(logging.Handler):
    """Errors of handlers that nobody has thought of: they are answered, too, but are ours to mend."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self._found: logging.LogRecord | None = None

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info is not None:
            self._found = record

    def check(self) -> None:
        """Raise what was found."""
        found, self._found = self._found, None
        if found is not None:
            raise AssertionError(found.getMessage()) from (found.exc_info[1] if found.exc_info else None)
