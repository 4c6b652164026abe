"""A store with damaged files: it opens, and has whole messages only, or says what is wrong."""

from __future__ import annotations

import random
import shutil
import tempfile
from abc import abstractmethod
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Generic, TypeVar

from commitlake.broker_lite.delivery import Delivery
from commitlake.broker_lite.stores.jmq import JournalStore
from commitlake.broker_lite.stores.rocketmq import MessageStore, StoreError
from commitlake.schemas.layouts.jmq.offsets import ConsumedQueue
from tests.fuzz.targets import Target
from tests.support import journal_stores as jmq
from tests.support import message_stores as rocketmq
from tests.support.logs import damage
from tests.support.message_stores import STORED_MS, Clock

_COUNT = 40
S = TypeVar("S", bound=AbstractContextManager[object])


class DamagedStores(Target, Generic[S]):
    """Stores that were closed or killed, with one to three faults in their files."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
        self._files = []
        for name in ("closed", "killed"):
            root = self._folder / name
            self._write(root, is_killed=name == "killed")
            self._files.append([(path.relative_to(root), path.read_bytes()) for path in _files_of(root)])

    @abstractmethod
    def _write(self, root: Path, *, is_killed: bool) -> None:
        """Make a store with something in every file."""

    @abstractmethod
    def _open(self, root: Path) -> S:
        """Open one."""

    @abstractmethod
    def _use(self, store: S) -> None:
        """Read everything, and write one message more."""

    def try_one(self) -> None:
        """Open it and use it."""
        root, files = self._folder / "case", self._chance.choice(self._files)
        shutil.rmtree(root, ignore_errors=True)
        hurt = self._chance.choices(range(len(files)), k=1 + int(self._chance.random() * 3))
        for number, (path, data) in enumerate(files):
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(self._damaged(data) if number in hurt else data)
        try:
            store = self._open(root)
        except StoreError as error:
            assert "expected" in str(error)
            assert "found" in str(error)
            return
        with store:
            self._use(store)

    def _damaged(self, data: bytes) -> bytes:
        worse = damage(data, self._chance)
        return worse if self._chance.random() < 0.5 else worse.ljust(len(data), b"\0")[: len(data)]

    def close(self) -> None:
        """Remove everything."""
        shutil.rmtree(self._folder)


def _files_of(root: Path) -> list[Path]:
    return [path for path in sorted(root.rglob("*")) if path.is_file()]


class Stores(DamagedStores[MessageStore]):
    """RocketMQ's."""

    def _write(self, root: Path, *, is_killed: bool) -> None:
        store = self._open(root)
        rocketmq.fill(store, _COUNT)
        store.config.consumer_offsets.commit("orders", "mail", 0, 3)
        store.config.delay_offsets.set(3, 1)
        store.config.groups.create("mail")
        store.flush()
        store.config.save()
        rocketmq.crash(store) if is_killed else store.close()

    def _open(self, root: Path) -> MessageStore:
        return MessageStore.open(root, rocketmq.SMALL, clock=Clock())

    def _use(self, store: MessageStore) -> None:
        for topic, queue_id in store.queues:
            with suppress(StoreError):
                for got in store.get(topic, queue_id, store.min_offset(topic, queue_id), 100).messages:
                    assert got.body.startswith(b"body ")
            store.offset_by_time(topic, queue_id, STORED_MS)
        for number in range(0, _COUNT, 7):
            for got in store.get_by_key("orders", f"order-{number}"):
                assert f"order-{number}" in (got.keys or [])
        Delivery(store).deliver_due(STORED_MS)
        result = store.put(rocketmq.message(_COUNT))
        put = store.get_at(result.physical_offset)
        assert put is not None
        assert put.body == f"body {_COUNT}".encode()


class JmqStores(DamagedStores[JournalStore]):
    """JMQ's."""

    def _write(self, root: Path, *, is_killed: bool) -> None:
        store = self._open(root)
        jmq.fill(store, _COUNT)
        store.offsets.acknowledge(ConsumedQueue("orders", "mail", 0), 3)
        store.flush()
        store.offsets.save_changed()
        jmq.crash(store) if is_killed else store.close()

    def _open(self, root: Path) -> JournalStore:
        return JournalStore.open(root, jmq.SMALL, clock=Clock())

    def _use(self, store: JournalStore) -> None:
        for topic, queue_id in store.queues:
            with suppress(StoreError):
                for got in store.get(topic, queue_id, store.min_offset(topic, queue_id), 100).messages:
                    assert got.body.startswith(b"body ")
            with suppress(StoreError):
                store.offset_by_time(topic, queue_id, STORED_MS)
        position = store.min_journal_offset
        while (step := store.read_journal(position, 10))[0]:
            assert step[1] > position
            position = step[1]
        store.read_consumptions(0, 100)
        result = store.put(jmq.message(_COUNT), 0)
        put = store.get_at(result.journal_offset)
        assert put is not None
        assert put.body == f"body {_COUNT}".encode()
