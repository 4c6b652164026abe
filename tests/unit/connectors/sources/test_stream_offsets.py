"""A stream's offsets: they round-trip through a checkpoint, and anything else is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from commitlake.connectors.formats.registry import COMMITLOGS
from commitlake.connectors.reading.store_identity_check import StoreReplacedError
from commitlake.connectors.reading.stores import Store, find_stores
from commitlake.connectors.sources.stream_offsets import (
    KnownRecord,
    StorePosition,
    batch_positions,
    check_same_store,
    from_checkpoint,
    initial_checkpoint,
    next_checkpoint,
    read_known_record,
    to_checkpoint,
)
from commitlake.schemas.errors import UsageError
from tests.support.logs import closed_segment, messages, open_segment, records, write_store

SIZE = 16384


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store of two segments."""
    first = closed_segment(messages(30), SIZE)
    return write_store(tmp_path / "b", [(0, first), (SIZE, open_segment(messages(10, seed=2), SIZE, SIZE))])


def store_at(root: Path) -> Store:
    (store,) = find_stores(str(root), formats=COMMITLOGS)
    return store


def second_record() -> int:
    return len(records(messages(30))[0])


@pytest.mark.parametrize(
    "positions",
    [
        {},
        {"b": StorePosition(0)},
        {"b": StorePosition(1 << 50, KnownRecord((1 << 50) - 100, 100, "ab")), "a": StorePosition(7)},
    ],
)
def test_positions_round_trip_through_a_checkpoint(positions: dict[str, StorePosition]) -> None:
    kept = json.dumps(to_checkpoint(positions))
    assert from_checkpoint(json.loads(kept)) == positions
    assert json.dumps(to_checkpoint(from_checkpoint(json.loads(kept)))) == kept


def test_a_first_batch_begins_at_the_streams_start_after_a_restart() -> None:
    began, end = {"b": StorePosition(100)}, {"b": StorePosition(300), "c": StorePosition(0)}
    first = next_checkpoint(initial_checkpoint(began), end)
    later = initial_checkpoint({"b": StorePosition(200), "c": StorePosition(50)})
    assert batch_positions(later, first) == (began, end)
    second = next_checkpoint(first, {"b": StorePosition(400)})
    assert batch_positions(first, second) == (end, {"b": StorePosition(400)})


def test_a_checkpoint_is_unchanged_without_new_records() -> None:
    for start in (initial_checkpoint({"b": StorePosition(7)}), to_checkpoint({"b": StorePosition(7)})):
        assert json.dumps(next_checkpoint(start, {"b": StorePosition(7)})) == json.dumps(start)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({}, "version None, expected version 1"),
        ({"version": 2, "stores": {}}, "version 2, expected version 1"),
        ({"logOffset": 4}, "another source"),
        ({"version": 1}, "KeyError"),
        ({"version": 1, "stores": [1]}, "damaged"),
        ({"version": 1, "stores": {"b": {"offset": "many"}}}, "many"),
        ({"version": 1, "stores": {"b": {"offset": -1}}}, "found -1"),
        ({"version": 1, "stores": {"b": {"offset": 1, "record": {"offset": 2, "size": 1, "digest": ""}}}}, "offset 1"),
        ({"version": 1, "stores": {"b": {"offset": 1, "record": {"offset": 0}}}}, "size"),
    ],
)
def test_an_invalid_checkpoint_is_refused(value: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        from_checkpoint(value)


def test_a_store_is_recognised_by_a_record(root: Path) -> None:
    store, offset = store_at(root), second_record()
    record = read_known_record(store, offset)
    assert record is not None
    assert (record.offset, record.size) == (offset, len(records(messages(30))[1]))
    check_same_store(store, StorePosition(offset + record.size, record))


def test_a_store_with_another_record_at_that_place_is_refused(root: Path) -> None:
    offset = second_record()
    record = read_known_record(store_at(root), offset)
    other = [*messages(1), *messages(29, seed=7)]  # as long, up to here
    write_store(root, [(0, closed_segment(other, SIZE))])
    with pytest.raises(StoreReplacedError, match=f"physical offset {offset} expected the record of .*option broker"):
        check_same_store(store_at(root), StorePosition(SIZE, record))


def test_a_log_that_ends_before_the_position_is_refused(root: Path) -> None:
    with pytest.raises(StoreReplacedError, match=f"at least {2 * SIZE + 1} bytes, found one that ends at {2 * SIZE}"):
        check_same_store(store_at(root), StorePosition(2 * SIZE + 1))


def test_a_record_that_the_broker_has_deleted_is_not_checked(root: Path) -> None:
    record = read_known_record(store_at(root), 0)
    (root / "commitlog" / f"{0:020d}").unlink()
    check_same_store(store_at(root), StorePosition(SIZE, record))


def test_incomplete_properties_do_not_change_the_known_record(root: Path) -> None:
    path = root / "commitlog" / f"{SIZE:020d}"
    whole = path.read_bytes()
    record = read_known_record(store_at(root), SIZE)
    size = len(records(messages(1, seed=2), SIZE)[0])
    path.write_bytes(whole[: size - 8] + bytes(8) + whole[size:])
    assert read_known_record(store_at(root), SIZE) == record


@pytest.mark.parametrize("offset", [2 * SIZE - 40, 2 * SIZE, 5 * SIZE])
def test_a_position_without_a_record_has_no_known_record(root: Path, offset: int) -> None:
    assert read_known_record(store_at(root), offset) is None
