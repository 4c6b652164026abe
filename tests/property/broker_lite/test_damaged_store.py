"""The law of damaged stores: a store opens and has whole messages only, or says what is wrong; nothing else happens."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitlake.broker_lite.delivery import Delivery
from commitlake.broker_lite.stores.rocketmq import MessageStore, StoreError, StoreOptions
from commitlake.schemas.layouts.boltmq.dialect import BOLTMQ
from commitlake.schemas.layouts.errors import LayoutError
from tests.support.hypothesis_profiles import load
from tests.support.message_stores import SMALL, STORED_MS, Clock, all_messages, crash, fill, log_records, message
from tests.support.store_copies import clear_behind, copy_store, damage_file

load()

COUNT = 40
BOLTMQ_OPTIONS = replace(SMALL, dialect=BOLTMQ)
SEEDS = st.integers(0, 2**32)


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that was closed. Read only."""
    return written(tmp_path_factory.mktemp("closed") / "store", MessageStore.close)


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that was not. Read only."""
    return written(tmp_path_factory.mktemp("crashed") / "store", crash)


@pytest.fixture(scope="module")
def boltmq(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store in BoltMQ's dialect that was not closed. Read only."""
    return written(tmp_path_factory.mktemp("boltmq") / "store", crash, BOLTMQ_OPTIONS)


def written(root: Path, end: Callable[[MessageStore], None], options: StoreOptions = SMALL) -> Path:
    """A store with something in every file."""
    store = MessageStore.open(root, options, clock=Clock())
    fill(store, COUNT)
    store.config.consumer_offsets.commit("orders", "mail", 0, 3)
    store.config.delay_offsets.set(3, 1)
    store.config.groups.create("mail")
    store.flush()
    store.config.save()
    end(store)
    return root


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Where the store of an example is."""
    return tmp_path / "store"


def check_use(store: MessageStore) -> None:
    """Every look-up gives messages of this test, or a documented error."""
    for topic, queue_id in store.queues:
        try:
            for got in store.get(topic, queue_id, store.min_offset(topic, queue_id), 100).messages:
                assert got.body.startswith(b"body ")
        except StoreError:
            pass
        store.offset_by_time(topic, queue_id, STORED_MS)
    for number in range(COUNT if store.options.has_index else 0):
        for got in store.get_by_key("orders", f"order-{number}"):
            assert f"order-{number}" in (got.keys or [])


@given(seed=SEEDS, clean=st.booleans(), faults=st.integers(1, 3))
def test_damaged_log_keeps_every_message_before_the_damage(
    closed: Path, crashed: Path, root: Path, seed: int, clean: bool, faults: int
) -> None:
    check_damaged_log(closed if clean else crashed, root, SMALL, random.Random(seed), faults)
    with MessageStore.open(root, SMALL, clock=Clock()) as store:
        assert store.get_by_key("orders", f"order-{COUNT}")


@given(seed=SEEDS, faults=st.integers(1, 3))
def test_damaged_log_of_boltmqs_keeps_every_message_before_the_damage(
    boltmq: Path, root: Path, seed: int, faults: int
) -> None:
    check_damaged_log(boltmq, root, BOLTMQ_OPTIONS, random.Random(seed), faults)


def check_damaged_log(original: Path, root: Path, options: StoreOptions, chance: random.Random, faults: int) -> None:
    """Damage a copy of a store's log, and open it."""
    copy_store(original, root)
    segments = sorted((root / "commitlog").iterdir())
    before = b"".join(path.read_bytes() for path in segments)
    for _ in range(faults):
        damage_file(chance.choice(segments), chance, keep_size=True)
    after = b"".join(path.read_bytes() for path in segments)
    damaged_from = next(
        (at for at, pair in enumerate(zip(before, after, strict=True)) if pair[0] != pair[1]), len(after)
    )
    with MessageStore.open(root, options, clock=Clock()) as store:
        check_use(store)
        for record in log_records(original):
            if record.physical_offset + record.size <= damaged_from:
                assert store.get_at(record.physical_offset) == record
        result = store.put(message(COUNT))
        put = store.get_at(result.physical_offset)
        assert put is not None
        assert put.body == f"body {COUNT}".encode()


@given(seed=SEEDS, clean=st.booleans(), keep_size=st.booleans(), faults=st.integers(1, 3))
def test_damage_anywhere_else_gives_a_store_or_a_documented_error(
    closed: Path, crashed: Path, root: Path, seed: int, clean: bool, keep_size: bool, faults: int
) -> None:
    chance = random.Random(seed)
    copy_store(closed if clean else crashed, root)
    files = sorted(path for path in root.rglob("*") if path.is_file() and path.parent.name != "commitlog")
    for path in chance.choices(files, k=faults):
        damage_file(path, chance, keep_size=keep_size)
    try:
        store = MessageStore.open(root, SMALL, clock=Clock())
    except StoreError as error:
        assert "expected" in str(error)
        assert "found" in str(error)
        return
    with store:
        check_use(store)
        Delivery(store).deliver_due(STORED_MS)
        store.put(message(COUNT))
        assert store.get_at(0) is not None


@given(cut=st.integers(0, 2 * SMALL.segment_size_bytes))
def test_log_cut_at_any_byte_keeps_every_whole_message(crashed: Path, root: Path, cut: int) -> None:
    copy_store(crashed, root)
    clear_behind(root / "commitlog", cut)
    # Nothing covers a record's properties: one that has lost the end of them passes for whole, as it does for RocketMQ.
    whole = [
        record
        for record in log_records(crashed)
        if record.physical_offset + record.size - len(record.raw_properties) <= cut
    ]
    with MessageStore.open(root, SMALL, clock=Clock()) as store:
        found = {got.physical_offset: got.body for queue in all_messages(store).values() for got in queue}
        assert found == {record.physical_offset: record.body for record in whole}
        for queue_id in (0, 1):
            offsets = [got.queue_offset for got in store.get("orders", queue_id, 0, COUNT).messages]
            assert offsets == list(range(store.max_offset("orders", queue_id)))


@given(text=st.text(max_size=60))
def test_any_text_is_an_id_or_a_layout_error(closed: Path, text: str) -> None:
    with MessageStore.open(closed, SMALL, clock=Clock()) as store:
        try:
            assert store.get_by_id(text) is None
        except LayoutError as error:
            assert error.field == "msg_id"
