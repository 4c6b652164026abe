"""The law of hostile journals: intact records are all found, bad ranges are named, and both readers agree.

The plain scanner (`schemas.layouts.jmq.scan`) and the compiled walk share no code beyond the declared layouts.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitlake.broker_lite.stores.jmq import JournalOptions, JournalStore
from commitlake.connectors.formats.jmq.format import FORMAT as JMQ
from commitlake.connectors.formats.registry import all_formats
from commitlake.connectors.reading.options import Mode
from commitlake.connectors.reading.snapshots import plan_splits, take_snapshot
from commitlake.connectors.reading.stores import find_stores
from commitlake.connectors.reading.uncompiled_records import walk_store
from commitlake.schemas.layouts.jmq.journal import NewJournalMessage
from commitlake.schemas.layouts.rocketmq.hosts import Host
from tests.support.hypothesis_profiles import load
from tests.support.journals import closed_file, messages, new_message, open_file, original_body, records, write_journal
from tests.support.logs import damage
from tests.support.plain_rows import check_reads, check_row, read_all

load()

SIZE = 4096
ROW_OF = JMQ.record_rules.row_of
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)
ODD = st.sampled_from(["a", "ü", "a=b", "a\\", "\n", "\\=", "jmq.app", "_jmq.app", "jmq.receive_timestamp", "=app"])
PAIRS = st.lists(st.tuples(ODD | NAMES, st.text("ab\\=\nü", max_size=70)), max_size=8)
MESSAGES = st.builds(
    NewJournalMessage,
    topic=st.sampled_from(["orders", "paid", "%RETRY%x"]),
    body=st.binary(max_size=100) | st.integers(0, 900).map(lambda size: b"x" * size),
    send_timestamp=st.integers(0, 4_000_000_000_000),
    client_address=st.builds(Host, st.binary(min_size=4, max_size=4), st.integers(0, 65535)),
    app=NAMES | st.just(""),
    business_id=NAMES | st.just(""),
    business_tag=st.integers(0, 65535),
    priority=st.integers(0, 255),
    is_ordered=st.booleans(),
    properties=PAIRS,
)


@given(
    seed=st.integers(0, 2**32), faults=st.integers(0, 4), window=st.integers(16, 4000), partition=st.integers(64, 8000)
)
def test_compiled_reader_agrees_with_the_plain_one(
    seed: int, faults: int, window: int, partition: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    chance = random.Random(seed)
    files = [(0, closed_file(messages(12, seed), SIZE)), (SIZE, open_file(messages(9, seed + 1), SIZE, SIZE))]
    for _ in range(faults):
        victim = chance.randrange(2)
        base, data = files[victim]
        files[victim] = (base, damage(data, chance)[:SIZE])
    check_store(write_journal(tmp_path_factory.mktemp("store"), files), window, partition)


@given(
    seed=st.integers(0, 2**32), faults=st.integers(0, 3), window=st.integers(16, 4000), partition=st.integers(64, 3000)
)
def test_compiled_reader_agrees_with_the_plain_one_on_hostile_bodies(
    seed: int, faults: int, window: int, partition: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    chance = random.Random(seed)
    data = b""
    while len(data) < SIZE - 1000:
        # A body that holds whole records, with the offsets that they have there.
        inner = b"".join(records(messages(chance.randrange(3), seed, 50), len(data) + 67))
        body = bytes(chance.randrange(2) * chance.randrange(40)) + inner
        data += records([new_message(chance.randrange(100), body=body)], len(data))[0]
    starts = read_starts(data)
    files = [(0, data.ljust(SIZE, b"\0")), (SIZE, open_file(messages(5, seed), SIZE, SIZE))]
    for _ in range(faults):
        files[0] = (0, damage(files[0][1], chance)[:SIZE])
    root = write_journal(tmp_path_factory.mktemp("store"), files)
    check_store(root, window, partition)
    if not faults:
        (store,) = find_stores(str(root), "b", formats=all_formats())
        rows = read_all(plan_splits(store, take_snapshot([store]).ranges["b"], partition), Mode.DROPMALFORMED)
        assert [row["physical_offset"] for row in rows][: len(starts)] == starts


def read_starts(data: bytes) -> list[int]:
    """Return the starts of records, found by hopping by their sizes."""
    starts, position = [], 0
    while position < len(data):
        starts.append(position)
        position += int.from_bytes(data[position : position + 4])
    return starts


@given(raw=st.lists(st.binary(max_size=60), min_size=3, max_size=3), seed=st.integers(0, 2**32))
def test_texts_of_any_bytes_are_decoded_as_by_the_plain_reader(
    raw: list[bytes], seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    app, key, properties = raw
    chance = random.Random(seed)
    properties = bytes(chance.choice(b"ab\\=\n") if value < 200 else value for value in properties)
    lengths = [(b"\x01A", app), (b"\x01B", key), (b"\x00\x03C=C", properties)]
    record = records([new_message(0, app="A", business_id="B", properties=(("C", "C"),))])[0]
    head, tail = record[: -len(b"".join(old for old, _ in lengths))], b""
    for old, new in lengths:
        tail += len(new).to_bytes(1 if len(old) == 2 else 2) + new
    data = (len(head + tail)).to_bytes(4) + (head + tail)[4:]
    data += records([new_message(1)], len(data))[0]
    check_store(write_journal(tmp_path_factory.mktemp("store"), [(0, data.ljust(SIZE, b"\0"))]), 4000, SIZE)


@given(new=st.lists(MESSAGES, max_size=30), partition=st.integers(64, 8000))
def test_stored_messages_read_back_equal_through_the_source(
    new: list[NewJournalMessage], partition: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("store")
    options = JournalOptions(
        journal_file_size_bytes=SIZE, max_body_size_bytes=1000, queue_count=2, broker_name="broker-a"
    )
    stored = []
    with JournalStore.open(root, options, clock=lambda: 1_700_000_000_000) as broker:
        # The last message has no NUL in its texts, because it could otherwise be one that is still being written.
        for message in [*filter(_is_accepted, new), new_message()]:
            result = broker.put(message)
            found = broker.get(message.topic, result.queue_id, result.queue_offset, 1).messages[0]
            assert original_body(found) == message.body
            stored.append((ROW_OF(found, "broker-a"), found.body, message))
    (store,) = find_stores(str(root), "broker-a", formats=all_formats())
    rows = read_all(plan_splits(store, take_snapshot([store]).ranges["broker-a"], partition), Mode.FAILFAST)
    assert len(rows) == len(stored)
    for row, (plain, body, message) in zip(rows, stored, strict=True):
        check_row(row, plain, body)
        assert row["keys"] == ([message.business_id] if message.business_id else None)
        assert row["unique_key"] == f"{row['topic']}/{row['queue_id']}/{row['queue_offset']}@broker-a"
        assert (row["tags"], row["priority"]) == (str(message.business_tag), message.priority)
        shown = dict(row["properties"])  # type: ignore[call-overload]
        own = {"jmq.receive_timestamp"} | ({"jmq.app"} if message.app else set())
        assert shown.get("jmq.app", "") == message.app
        assert sorted(shown[name] for name in shown.keys() - own) == sorted(dict(message.properties).values())


def _is_accepted(message: NewJournalMessage) -> bool:
    """Return whether the broker takes it: an ordered message has a business id, and all of them fit a file."""
    if message.is_ordered and not message.business_id:
        return False
    texts = [message.app, message.business_id, *(text for pair in message.properties for text in pair)]
    return sum(2 * len(text.encode()) + 1 for text in texts) + len(message.body) < SIZE - 200 and all(
        len(text.encode()) <= 255 for text in texts[:2]
    )


def check_store(root: Path, window: int, partition: int) -> None:
    """Compare the two readers on one store."""
    (store,) = find_stores(str(root), "b", formats=all_formats())
    store_range = take_snapshot([store]).ranges["b"]
    plain = list(walk_store(store, SIZE))
    read = [found for found in plain if found.message is not None]
    expected = [found for found in read if found.span.start < store_range.end]
    for found in read[len(expected) :]:  # the last ones, whose texts may not be written yet
        texts = (found.message.topic, found.message.app, found.message.business_id, found.message.raw_properties)
        assert any("\0" in text if isinstance(text, str) else 0 in text for text in texts)
    check_reads(plan_splits(store, store_range, partition), plain, store_range.end, ROW_OF, window)
