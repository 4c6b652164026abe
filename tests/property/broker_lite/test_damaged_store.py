"""The law of damaged stores: a store opens with whole messages only, or fails with a documented error."""

from __future__ import annotations

import contextlib
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitlake.broker_lite.delivery import Delivery
from commitlake.broker_lite.stores.rocketmq import MessageStore, StoreError, StoreFilesError
from commitlake.schemas.layouts.errors import LayoutError
from tests.support.hypothesis_profiles import load
from tests.support.small_stores import STORED_MS, all_messages
from tests.support.store_copies import clear_last_pages, copy_store, damage_file
from tests.support.store_formats import BOLTMQ_DIALECT, FILE_SIZE, JMQ, ROCKETMQ, StoreFormat

load()

KINDS = {known.name: known for known in (ROCKETMQ, BOLTMQ_DIALECT, JMQ)}
COUNTS = {"rocketmq": 40, "boltmq": 40, "jmq": 80}
"""Messages that fill more than two files of the log."""
SEEDS = st.integers(0, 2**32)
each_format = pytest.mark.parametrize("name", ["rocketmq", "jmq"])


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Path]:
    """A store of each kind that was closed, and one that was not, with something in every file. Read only."""
    return {
        (name, end): KINDS[name].write(
            tmp_path_factory.mktemp(f"{name}-{end}") / "store", COUNTS[name], end, has_consumer=True
        )
        for name in KINDS
        for end in ("closed", "crashed")
    }


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The folder of an example's store."""
    return tmp_path / "store"


def end_of(clean: bool) -> str:
    return "closed" if clean else "crashed"


def check_use(known: StoreFormat, store: Any) -> dict[int, Any]:
    """Check that every look-up gives messages of this test, or a documented error.

    Returns:
        The messages that the queues lead to, by their offsets in the log.
    """
    found: dict[int, Any] = {}
    for topic, queue_id in store.queues:
        for number in range(store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)):
            try:
                got = store.get(topic, queue_id, number, 1).messages
            except StoreError:
                continue
            assert all(one.body.startswith(b"body ") for one in got)
            found |= {known.offset_of(one): one for one in got}
        with contextlib.suppress(*([StoreFilesError] if known is JMQ else [])):
            store.offset_by_time(topic, queue_id, STORED_MS)
    if isinstance(store, MessageStore) and store.options.has_index:
        for number in range(COUNTS[known.name]):
            for one in store.get_by_key("orders", f"order-{number}"):
                assert f"order-{number}" in (one.keys or [])
    return found


def check_put(known: StoreFormat, store: Any) -> Any:
    """Check that a message that is put now can be read."""
    number = COUNTS[known.name]
    result = known.put(store, number)
    put = store.get_at(known.offset_of(result))
    assert put is not None
    assert put.body == f"body {number}".encode()
    return result


def damage_log(log: Path, chance: random.Random, faults: int) -> tuple[bytes, bytes]:
    """Damage the files of a log, which keep their sizes; return their contents before and after."""
    files = sorted(log.iterdir())
    before = b"".join(path.read_bytes() for path in files)
    for _ in range(faults):
        damage_file(chance.choice(files), chance, keep_size=True)
    return before, b"".join(path.read_bytes() for path in files)


@pytest.mark.parametrize("name", ["rocketmq", "boltmq"])
@given(seed=SEEDS, clean=st.booleans(), faults=st.integers(1, 3))
def test_damaged_log_keeps_every_message_before_the_damage(
    originals: dict[tuple[str, str], Path], root: Path, name: str, seed: int, clean: bool, faults: int
) -> None:
    known, original = KINDS[name], originals[name, end_of(clean)]
    copy_store(original, root)
    before, after = damage_log(root / known.log, random.Random(seed), faults)
    damaged_from = next(
        (at for at, pair in enumerate(zip(before, after, strict=True)) if pair[0] != pair[1]), len(after)
    )
    with known.open(root) as store:
        check_use(known, store)
        for record in known.read_log(original):
            if record.physical_offset + record.size <= damaged_from:
                assert store.get_at(record.physical_offset) == record
        check_put(known, store)
    with known.open(root) as store:
        assert not store.options.has_index or store.get_by_key("orders", f"order-{COUNTS[name]}")


@given(seed=SEEDS, clean=st.booleans(), faults=st.integers(1, 3), queues_too=st.booleans())
def test_damaged_journal_keeps_every_message_that_can_be_read(
    originals: dict[tuple[str, str], Path], root: Path, seed: int, clean: bool, faults: int, queues_too: bool
) -> None:
    copy_store(originals["jmq", end_of(clean)], root)
    before, after = damage_log(root / "journal", random.Random(seed), faults)
    if queues_too:
        shutil.rmtree(root / "queue")
    intact = [
        record
        for record in JMQ.read_log(originals["jmq", "crashed"])
        if before[record.journal_offset :][: record.size] == after[record.journal_offset :][: record.size]
    ]
    with JMQ.open(root) as store:
        found = check_use(JMQ, store)
        assert [one for one in intact if found.get(one.journal_offset) != one] == []
        result = check_put(JMQ, store)
    with JMQ.open(root) as store:
        assert store.get("orders", 0, result.queue_offset).messages[-1].body == f"body {COUNTS['jmq']}".encode()


@each_format
@given(seed=SEEDS, clean=st.booleans(), keep_size=st.booleans(), faults=st.integers(1, 3))
def test_damage_anywhere_else_gives_a_store_or_a_documented_error(
    originals: dict[tuple[str, str], Path], root: Path, name: str, seed: int, clean: bool, keep_size: bool, faults: int
) -> None:
    known, chance = KINDS[name], random.Random(seed)
    copy_store(originals[name, end_of(clean)], root)
    files = sorted(path for path in root.rglob("*") if path.is_file() and path.parent.name != known.log)
    for path in chance.choices(files, k=faults):
        damage_file(path, chance, keep_size=keep_size)
    try:
        store = known.open(root)
    except StoreError as error:
        assert "expected" in str(error)
        assert "found" in str(error)
        return
    with store:
        check_use(known, store)
        if isinstance(store, MessageStore):
            Delivery(store).deliver_due(STORED_MS)
        check_put(known, store)
        assert store.get_at(0) is not None
        if known is JMQ:  # its entries have checksums, so no damaged one is accepted
            assert store.max_offset("orders", 0) == COUNTS[name] // 2 + 1


@each_format
@given(cut=st.integers(0, 2 * FILE_SIZE))
def test_log_cut_at_any_byte_keeps_every_whole_message(
    originals: dict[tuple[str, str], Path], root: Path, name: str, cut: int
) -> None:
    known, original = KINDS[name], originals[name, "crashed"]
    copy_store(original, root)
    clear_last_pages(root / known.log, cut)
    # No checksum covers properties: a record that has lost the end of them is accepted as whole, as by RocketMQ.
    whole = [
        record
        for record in known.read_log(original)
        if known.offset_of(record) + record.size - len(record.raw_properties) <= cut
    ]
    with known.open(root) as store:
        found = {known.offset_of(got): got.body for queue in all_messages(store).values() for got in queue}
        assert found == {known.offset_of(record): record.body for record in whole}
        for queue_id in (0, 1):
            offsets = [got.queue_offset for got in store.get("orders", queue_id, 0, COUNTS[name]).messages]
            assert offsets == list(range(store.max_offset("orders", queue_id)))


@given(text=st.text(max_size=60))
def test_any_text_is_an_id_or_a_layout_error(originals: dict[tuple[str, str], Path], text: str) -> None:
    with ROCKETMQ.open(originals["rocketmq", "closed"]) as store:
        try:
            assert store.get_by_id(text) is None
        except LayoutError as error:
            assert error.field == "msg_id"
