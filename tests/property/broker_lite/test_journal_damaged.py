"""The law of damaged stores in JMQ's layout: one opens and has whole messages only, or says what is wrong."""

from __future__ import annotations

import contextlib
import random
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitlake.broker_lite.stores.jmq import JournalStore
from commitlake.broker_lite.stores.rocketmq import StoreError, StoreFilesError
from commitlake.schemas.layouts.jmq.journal import JournalMessage
from commitlake.schemas.layouts.jmq.offsets import ConsumedQueue
from tests.support.hypothesis_profiles import load
from tests.support.journal_stores import SMALL, all_messages, crash, fill, journal_records, message
from tests.support.message_stores import STORED_MS, Clock
from tests.support.store_copies import clear_behind, copy_store, damage_file

load()

COUNT = 80
SEEDS = st.integers(0, 2**32)
MAIL = ConsumedQueue("orders", "mail", 0)


def written(root: Path, crashed: bool) -> Path:
    """A store with something in every file."""
    store = JournalStore.open(root, SMALL, clock=Clock())
    fill(store, COUNT)
    store.offsets.acknowledge(MAIL, 3)
    store.flush()
    store.offsets.save_changed()
    crash(store) if crashed else store.close()
    return root


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that was closed. Read only."""
    return written(tmp_path_factory.mktemp("closed") / "store", crashed=False)


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that was not. Read only."""
    return written(tmp_path_factory.mktemp("crashed") / "store", crashed=True)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Where the store of an example is."""
    return tmp_path / "store"


def check_use(store: JournalStore) -> dict[int, JournalMessage]:
    """Every look-up gives messages of this test, or a documented error; gives what the queues lead to."""
    found: dict[int, JournalMessage] = {}
    for topic, queue_id in store.queues:
        for number in range(store.max_offset(topic, queue_id)):
            try:
                got = store.get(topic, queue_id, number, 1).messages
            except StoreError:
                continue
            assert all(one.body.startswith(b"body ") for one in got)
            found |= {one.journal_offset: one for one in got}
        with contextlib.suppress(StoreFilesError):
            store.offset_by_time(topic, queue_id, STORED_MS)
    return found


@given(seed=SEEDS, clean=st.booleans(), faults=st.integers(1, 3), queues_too=st.booleans())
def test_damaged_journal_keeps_every_message_that_can_be_read(
    closed: Path, crashed: Path, root: Path, seed: int, clean: bool, faults: int, queues_too: bool
) -> None:
    chance = random.Random(seed)
    copy_store(closed if clean else crashed, root)
    files = sorted((root / "journal").iterdir())
    before = b"".join(path.read_bytes() for path in files)
    for _ in range(faults):
        damage_file(chance.choice(files), chance, keep_size=True)
    after = b"".join(path.read_bytes() for path in files)
    if queues_too:
        shutil.rmtree(root / "queue")
    intact = [
        record
        for record in journal_records(crashed)
        if before[record.journal_offset :][: record.size] == after[record.journal_offset :][: record.size]
    ]
    with JournalStore.open(root, SMALL, clock=Clock()) as store:
        found = check_use(store)
        assert [one for one in intact if found.get(one.journal_offset) != one] == []
        result = store.put(message(COUNT), 0)
        put = store.get_at(result.journal_offset)
        assert put is not None
        assert put.body == f"body {COUNT}".encode()
    with JournalStore.open(root, SMALL, clock=Clock()) as store:
        assert store.get("orders", 0, result.queue_offset).messages[-1].body == f"body {COUNT}".encode()


@given(seed=SEEDS, clean=st.booleans(), keep_size=st.booleans(), faults=st.integers(1, 3))
def test_damage_anywhere_else_loses_no_message(
    closed: Path, crashed: Path, root: Path, seed: int, clean: bool, keep_size: bool, faults: int
) -> None:
    chance = random.Random(seed)
    copy_store(closed if clean else crashed, root)
    files = sorted(path for path in root.rglob("*") if path.is_file() and path.parent.name != "journal")
    for path in chance.choices(files, k=faults):
        damage_file(path, chance, keep_size=keep_size)
    try:
        store = JournalStore.open(root, SMALL, clock=Clock())
    except StoreError as error:
        assert "expected" in str(error)
        assert "found" in str(error)
        return
    with store:
        store.put(message(COUNT), 0)
        assert store.max_offset("orders", 0) == COUNT // 2 + 1
        assert store.get_at(0) is not None
        check_use(store)


@given(cut=st.integers(0, 2 * SMALL.journal_file_size_bytes))
def test_journal_cut_at_any_byte_keeps_every_whole_message(crashed: Path, root: Path, cut: int) -> None:
    copy_store(crashed, root)
    clear_behind(root / "journal", cut)
    # Nothing covers a record's properties: one that has lost the end of them passes for whole.
    whole = [
        record
        for record in journal_records(crashed)
        if record.journal_offset + record.size - len(record.raw_properties) <= cut
    ]
    with JournalStore.open(root, SMALL, clock=Clock()) as store:
        found = {one.journal_offset: one.body for queue in all_messages(store).values() for one in queue}
        assert found == {record.journal_offset: record.body for record in whole}
        for queue_id in (0, 1):
            offsets = [one.queue_offset for one in store.get("orders", queue_id, 0, COUNT).messages]
            assert offsets == list(range(store.max_offset("orders", queue_id)))
