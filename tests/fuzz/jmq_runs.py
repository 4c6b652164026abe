"""Hostile records in a JMQ journal through whole jobs: archive, query, verify, rebuild and broker_lite.

`rebuild --salvage` and `restore` write RocketMQ's log: they refuse a journal, and that is tried as well.
"""

from __future__ import annotations

import random
from pathlib import Path

from commitlake.broker_lite.broker.broker import Broker
from commitlake.broker_lite.broker.options import BrokerOptions
from commitlake.broker_lite.handlers.dispatcher import Dispatcher
from commitlake.broker_lite.protocol import Channel
from commitlake.broker_lite.stores.jmq import JournalOptions, JournalStore
from commitlake.broker_lite.stores.jmq_adapter import JmqStore
from commitlake.connectors.formats.registry import all_formats
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.reading.stores import find_stores
from commitlake.jobs.rebuild import command as rebuild
from commitlake.pipelines.rebuild.run import rebuild_store
from commitlake.pipelines.rebuild.settings import RequestedSettings
from commitlake.pipelines.restore.log_rows import RestoreSelection
from commitlake.pipelines.restore.run import restore_store
from commitlake.schemas.errors import UsageError
from commitlake.schemas.layouts.jmq.queue_file import ENTRY
from commitlake.schemas.layouts.rocketmq.hosts import Host
from commitlake.schemas.layouts.segment_names import segment_name
from commitlake.schemas.remoting.codes import RequestCode, ResponseCode
from commitlake.schemas.remoting.frames import Command, parse_command
from tests.fuzz.hostile_messages import START_MS
from tests.fuzz.planted_journals import PlantedJournal
from tests.fuzz.planted_stores import PlantedStores
from tests.fuzz.targets import UnexpectedErrors
from tests.fuzz.whole_jobs import archive, ask, step, verify
from tests.support.brokers import pull_fields
from tests.support.small_stores import Clock

FILE_BYTES = 4 << 20
OPTIONS = JournalOptions(
    journal_file_size_bytes=FILE_BYTES, queue_file_size_bytes=2000 * ENTRY.size, max_body_size_bytes=1 << 17
)
_MAX_SERVED = 16_000
_DAMAGED_SHARES = (0.0, 0.02, 0.5)
_PEER = Host.of("127.0.0.1", 50123)
_PULLED = {ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.PULL_NOT_FOUND}
_QUERIES: tuple[tuple[str, ...], ...] = (
    ("--limit", "200"), ("--key", "order-7"), ("--columns", "priority,properties", "--limit", "1000"),
    ("--table", "message_keys", "--limit", "50"), ("--table", "quarantine"), ("--table", "quality_results"),
)  # fmt: skip


class PlantedJmq(PlantedStores):
    """Records that were written into a journal directly, or damaged there."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__(_MAX_SERVED)
        self._chance = chance
        self._unexpected = UnexpectedErrors(with_exception=True)

    def finish(self) -> None:
        """Run all jobs on the records since the last batch."""
        if not self._count:
            return
        root = self._store.begin()
        (root / "journal").mkdir()
        planted = PlantedJournal(self._chance, self._count, FILE_BYTES, self._chance.choice(_DAMAGED_SHARES))
        for number, data in enumerate(planted.segments()):
            (root / "journal" / segment_name(number * FILE_BYTES)).write_bytes(data)
        self._run_jobs(int((~planted.is_damaged).sum()))
        self._store.check_nothing_outside()
        self._count = 0

    def _run_jobs(self, intact: int) -> None:
        """Take the store through the jobs that read it.

        Args:
            intact: how many records have no damage. A damaged one may pass for a record, and be found as well.
        """
        folder = self._store.folder
        root, lake = folder / "store", Lake(str(folder / "lake"))
        with step("archive"):
            archive(root, lake, FILE_BYTES)
        with step("query"):
            (found,) = ask(lake, "--count")
            assert intact <= int(found) <= self._count, f"{found} rows of {intact} intact and {self._count} records"
            for question in _QUERIES:
                ask(lake, *question)
        (store,) = find_stores(str(root), "a", formats=all_formats())
        with step("verify"):
            assert verify(root).records == int(found)
        with step("rebuild"):
            wanted = RequestedSettings(queue_file_size=OPTIONS.queue_file_size_bytes)
            rebuilt = rebuild_store(store, folder / "rebuilt", wanted)
            assert rebuilt.totals.records == int(found)
        with step("salvage"):
            code = rebuild.main([str(root), "--salvage", "--out", str(folder / "salvaged"), "--local", "--quiet"])
            assert code == 2, f"rebuild --salvage of a journal ended with {code}"
        with step("restore"):
            try:
                restore_store(lake, folder / "restored", RestoreSelection(""))
            except UsageError as error:
                assert "JMQ" in str(error), error
            else:
                raise AssertionError("a journal was restored as RocketMQ's log")
        if self._count <= _MAX_SERVED:
            with step("broker"):
                _serve(root)
                self._unexpected.check()
            with step("verify of what the broker opened"):
                assert verify(root).records == int(found)

    def close(self) -> None:
        """Stop listening for errors, and delete the store."""
        self._unexpected.stop()
        super().close()


def _serve(root: Path) -> None:
    """Open a store and read all of it as the archive's agent does; open it again and read it as clients do."""
    clock = Clock(START_MS + 1)
    with JournalStore.open(root, OPTIONS, clock=clock) as store:
        position = store.min_journal_offset
        while (taken := store.read_journal(position, 1000))[0]:
            assert taken[1] > position, f"no progress at {position} of the journal"
            position = taken[1]
        for topic, queue_id in store.queues:
            store.offset_by_time(topic, queue_id, START_MS)
        first = {place: len(store.queue_offset_range(*place)) for place in store.queues}
    with JmqStore.open(root, OPTIONS, clock=clock) as store:
        assert {place: len(store.journal.queue_offset_range(*place)) for place in store.journal.queues} == first
        dispatcher = Dispatcher(Broker(store, BrokerOptions()))
        for topic, queue_id in first:
            _pull_all(dispatcher, store, topic, queue_id)
        dispatcher.run_periodic_work(clock.now_ms)


def _pull_all(dispatcher: Dispatcher, store: JmqStore, topic: str, queue_id: int) -> None:
    """Pull a queue from its beginning to its end, as a consumer does."""
    answers: list[bytes] = []
    channel = Channel(_PEER, answers.append, lambda: None)
    number, end = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
    while number < end:
        answers.clear()
        fields = {name: str(value) for name, value in pull_fields(topic, queue_id, number).items()}
        dispatcher.handle(channel, Command(RequestCode.PULL_MESSAGE, fields | {"sysFlag": "4"}))
        while dispatcher.run_long_requests():
            pass
        dispatcher.answer_held_pulls()
        (frame,) = answers
        parsed = parse_command(frame)
        assert parsed is not None
        answer = parsed[0]
        if answer.code not in _PULLED:
            return  # A topic that no client can create, or a queue that the broker does not have.
        following = int(answer.ext_fields["nextBeginOffset"])
        assert following > number, f"no progress at {number} of {topic}/{queue_id}: {answer}"
        number = following
