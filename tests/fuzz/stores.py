"""A store with damaged files: it opens with whole messages only, or fails with a documented error."""

from __future__ import annotations

import random
import shutil
import tempfile
from abc import abstractmethod
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from commitlake.broker_lite.delivery import Delivery
from commitlake.broker_lite.stores.jmq import JournalStore
from commitlake.broker_lite.stores.rocketmq import MessageStore, StoreError
from tests.fuzz.targets import Target
from tests.support.logs import damage
from tests.support.small_stores import STORED_MS
from tests.support.store_formats import JMQ, ROCKETMQ, StoreFormat

_COUNT = 40
S = TypeVar("S", MessageStore, JournalStore)


class DamagedStores(Target, Generic[S]):
    """Stores that were closed or killed, with one to three faults in their files."""

    _format: ClassVar[StoreFormat]
    _errors_of_times: ClassVar[tuple[type[StoreError], ...]] = ()

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
        self._files = []
        for end in ("closed", "crashed"):
            root = self._format.write(self._folder / end, _COUNT, end, has_consumer=True)
            self._files.append([(path.relative_to(root), path.read_bytes()) for path in _files_of(root)])

    @abstractmethod
    def _use(self, store: S) -> None:
        """Use features that only stores of this format have."""

    def try_one(self) -> None:
        """Damage a store, open it, and use it."""
        root, files = self._folder / "case", self._chance.choice(self._files)
        shutil.rmtree(root, ignore_errors=True)
        hurt = self._chance.choices(range(len(files)), k=1 + int(self._chance.random() * 3))
        for number, (path, data) in enumerate(files):
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(self._damaged(data) if number in hurt else data)
        try:
            store = self._format.open(root)
        except StoreError as error:
            assert "expected" in str(error)
            assert "found" in str(error)
            return
        with store:
            self._read(store)
            self._use(store)
            put = store.get_at(self._format.offset_of(self._format.put(store, _COUNT)))
            assert put is not None
            assert put.body == f"body {_COUNT}".encode()

    def _read(self, store: Any) -> None:
        for topic, queue_id in store.queues:
            with suppress(StoreError):
                for got in store.get(topic, queue_id, store.min_offset(topic, queue_id), 100).messages:
                    assert got.body.startswith(b"body ")
            with suppress(*self._errors_of_times):
                store.offset_by_time(topic, queue_id, STORED_MS)

    def _damaged(self, data: bytes) -> bytes:
        worse = damage(data, self._chance)
        return worse if self._chance.random() < 0.5 else worse.ljust(len(data), b"\0")[: len(data)]

    def close(self) -> None:
        """Delete all stores."""
        shutil.rmtree(self._folder)


def _files_of(root: Path) -> list[Path]:
    return [path for path in sorted(root.rglob("*")) if path.is_file()]


class Stores(DamagedStores[MessageStore]):
    """Damaged RocketMQ stores, opened and read by `broker_lite`."""

    _format = ROCKETMQ

    def _use(self, store: MessageStore) -> None:
        for number in range(0, _COUNT, 7):
            for got in store.get_by_key("orders", f"order-{number}"):
                assert f"order-{number}" in (got.keys or [])
        Delivery(store).deliver_due(STORED_MS)


class JmqStores(DamagedStores[JournalStore]):
    """Damaged JMQ stores, opened and read by `broker_lite`."""

    _format = JMQ
    _errors_of_times = (StoreError,)

    def _use(self, store: JournalStore) -> None:
        position = store.min_journal_offset
        while (step := store.read_journal(position, 10))[0]:
            assert step[1] > position
            position = step[1]
        store.read_consumptions(0, 100)
