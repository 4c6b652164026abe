"""BoltMQ's indexes: its ConsumeQueues answer topics as RocketMQ's do, its IndexFiles answer nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from commitlake.connectors.formats.registry import COMMITLOGS
from commitlake.connectors.formats.rocketmq.format import FORMAT as COMMITLOG
from commitlake.connectors.reading.planning import ReadMethod
from commitlake.connectors.reading.stores import find_stores
from commitlake.schemas.layouts.boltmq.dialect import BOLTMQ, ROCKETMQ, Dialect
from commitlake.schemas.layouts.rocketmq.indexfile import (
    Geometry,
    Header,
    IndexFileEntry,
    serialize_entry,
    serialize_header,
)
from tests.support.indexed_stores import OPTIONS, RARE, plan_of, read_by_plan, read_by_scan, write_indexed_store
from tests.support.logs import closed_segment, messages, open_segment, write_store

pytestmark = pytest.mark.usefixtures("nothing_to_seek")

GEOMETRY = Geometry(OPTIONS.index_slots, OPTIONS.index_entries)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A BoltMQ store with an index as its brokers leave it: no slot is used, a key's hash is the entry's number."""
    root = write_indexed_store(tmp_path / "store", options=replace(OPTIONS, dialect=BOLTMQ))
    (found,) = find_stores(str(root), formats=COMMITLOGS)
    header = Header(1, 2, 0, found.segments[-1].base_offset, 0, 11)
    entries = b"".join(serialize_entry(IndexFileEntry(number, 100 * number, 0, 0)) for number in range(11))
    slots = bytes(GEOMETRY.entry_position(0) - len(serialize_header(header)))
    data = serialize_header(header) + slots + entries
    (root / "index" / "20180220120000000").write_bytes(data.ljust(GEOMETRY.file_size, b"\0"))
    return root


def test_a_topic_is_read_through_its_queues(store: Path) -> None:
    (plan,) = plan_of(store, topics=RARE).stores
    assert ReadMethod.CONSUME_QUEUE in plan.read_methods
    assert plan.planned_bytes < plan.store_range.size / 4
    assert read_by_plan(store, topics=RARE) == read_by_scan(store, topics=RARE) != []


def test_a_key_is_not_looked_up_in_an_index_without_chains(store: Path) -> None:
    (plan,) = plan_of(store, topics=RARE, keys="order-40").stores
    assert ReadMethod.INDEX_FILE not in plan.read_methods
    assert "IndexFile: BoltMQ writes no chains of keys into its own" in plan.no_index_reasons
    found = read_by_plan(store, topics=RARE, keys="order-40")
    assert [message.keys for message in found] == [["order-40", "group-40"]]
    assert found == read_by_scan(store, topics=RARE, keys="order-40")


def test_the_dialect_of_a_store_is_read_from_its_segments(store: Path, tmp_path: Path) -> None:
    assert COMMITLOG.dialects.detect_dialects(find_stores(str(store), formats=COMMITLOGS)[0].segments) == {BOLTMQ}
    mixed = [(0, closed_segment(messages(3), 4096)), (4096, open_segment(messages(3), 4096, 4096, dialect=BOLTMQ))]
    write_store(tmp_path / "mixed", mixed)
    found = find_stores(str(tmp_path / "mixed"), formats=COMMITLOGS)[0]
    assert found.format.dialects.detect_dialects(found.segments) == {ROCKETMQ, BOLTMQ}
    assert found.format.dialects.dialect_of(found.segments) is ROCKETMQ
    mixed = [(0, closed_segment(messages(3), 4096, dialect=BOLTMQ)), (4096, open_segment(messages(3), 4096, 4096))]
    write_store(tmp_path / "later", mixed)
    found = find_stores(str(tmp_path / "later"), formats=COMMITLOGS)[0]
    assert found.format.dialects.dialect_of(found.segments) is ROCKETMQ


@pytest.mark.parametrize("dialect", [ROCKETMQ, BOLTMQ])
@pytest.mark.parametrize("damaged_bytes", [1, 8, 100, 4096, 5000])
def test_the_dialect_is_read_from_later_records_if_the_first_are_damaged(
    dialect: Dialect, damaged_bytes: int, tmp_path: Path
) -> None:
    segments = [closed_segment(messages(20), 4096, 0, dialect=dialect)]
    segments.append(open_segment(messages(20), 4096, 4096, dialect=dialect))
    log = bytearray(b"".join(segments))
    for start in (0, 4096):
        log[start : start + min(damaged_bytes, 1000)] = bytes(min(damaged_bytes, 1000))
    log[:damaged_bytes] = bytes(damaged_bytes)
    write_store(tmp_path, [(0, bytes(log[:4096])), (4096, bytes(log[4096:]))])
    (store,) = find_stores(str(tmp_path), formats=COMMITLOGS)
    assert store.format.dialects.detect_dialects(store.segments) == {dialect}
    assert store.format.dialects.dialect_of(store.segments) is dialect


@pytest.mark.parametrize("first", [bytes(4096), b"x" * 4096, b"", b"\xff" * 5])
def test_a_store_without_records_at_its_beginning_has_no_dialect(first: bytes, tmp_path: Path) -> None:
    write_store(tmp_path, [(0, first)])
    found = find_stores(str(tmp_path), formats=COMMITLOGS)[0]
    assert found.format.dialects.detect_dialects(found.segments) == frozenset()
    assert found.format.dialects.dialect_of(found.segments) is ROCKETMQ
