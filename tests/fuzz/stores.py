"""A store with damaged files: it opens, and has whole messages only, or says what is wrong."""

from __future__ import annotations

import random
import shutil
import tempfile
from pathlib import Path

from broker_lite.delivery import Delivery
from broker_lite.store import MessageStore, StoreError
from tests.logs import damage
from tests.unit.broker_lite.builders import SMALL, STORED_MS, Clock, crash, fill, message

_COUNT = 40


class Stores:
    """Stores that were closed or killed, with one to three faults in their files."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
        self._originals = [
            _written(self._folder / "closed", MessageStore.close),
            _written(self._folder / "killed", crash),
        ]
        self._files = [
            [(path.relative_to(root), path.read_bytes()) for path in sorted(root.rglob("*")) if path.is_file()]
            for root in self._originals
        ]

    def try_one(self) -> None:
        """Open it and use it."""
        root, files = self._folder / "case", self._chance.choice(self._files)
        shutil.rmtree(root, ignore_errors=True)
        hurt = self._chance.choices(range(len(files)), k=1 + int(self._chance.random() * 3))
        for number, (path, data) in enumerate(files):
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(self._damaged(data) if number in hurt else data)
        try:
            store = MessageStore.open(root, SMALL, clock=Clock())
        except StoreError as error:
            assert "expected" in str(error)
            assert "found" in str(error)
            return
        with store:
            _use(store)

    def _damaged(self, data: bytes) -> bytes:
        worse = damage(data, self._chance)
        return worse if self._chance.random() < 0.5 else worse.ljust(len(data), b"\0")[: len(data)]

    def close(self) -> None:
        """Remove everything."""
        shutil.rmtree(self._folder)


def _written(root: Path, end: object) -> Path:
    """A store with something in every file."""
    store = MessageStore.open(root, SMALL, clock=Clock())
    fill(store, _COUNT)
    store.config.consumer_offsets.commit("orders", "mail", 0, 3)
    store.config.delay_offsets.set(3, 1)
    store.config.groups.create("mail")
    store.flush()
    store.config.save()
    assert callable(end)
    end(store)
    return root


def _use(store: MessageStore) -> None:
    for topic, queue_id in store.queues:
        try:
            for got in store.get(topic, queue_id, store.min_offset(topic, queue_id), 100).messages:
                assert got.body.startswith(b"body ")
        except StoreError:
            pass
        store.offset_by_time(topic, queue_id, STORED_MS)
    for number in range(0, _COUNT, 7):
        for got in store.get_by_key("orders", f"order-{number}"):
            assert f"order-{number}" in (got.keys or [])
    Delivery(store).deliver_due(STORED_MS)
    result = store.put(message(_COUNT))
    put = store.get_at(result.physical_offset)
    assert put is not None
    assert put.body == f"body {_COUNT}".encode()
