"""Shares of the stores in a micro-batch: fair, and cut where records begin."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitlake.connectors.formats.registry import COMMITLOGS
from commitlake.connectors.reading.snapshots import take_snapshot
from commitlake.connectors.reading.stores import Store, find_stores
from commitlake.connectors.sources.stream_offsets import StorePosition, read_known_record
from commitlake.connectors.sources.stream_size_shares import end_of_share, fair_shares
from tests.support.logs import closed_segment, messages, new_message, open_segment, records, write_store

SIZE = 16384
MIB = 1 << 20


@given(st.dictionaries(st.text(max_size=3), st.integers(1, 1 << 40), min_size=1, max_size=20), st.integers(1, 1 << 40))
def test_shares_are_fair_and_use_the_whole_limit(available: dict[str, int], limit: int) -> None:
    shares = fair_shares(available, limit)
    assert shares.keys() == available.keys()
    assert all(1 <= shares[name] <= available[name] for name in available)
    assert sum(shares.values()) <= max(limit, len(available))
    if limit >= len(available):
        assert sum(shares.values()) == min(limit, sum(available.values()))
    largest = max(shares.values())
    assert all(shares[name] >= min(available[name], largest - 1) for name in available)


def test_a_limit_below_the_number_of_stores_still_advances_every_store() -> None:
    assert fair_shares({"a": 500, "b": 500, "c": 500}, 2) == {"a": 1, "b": 1, "c": 1}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Two segments, a gap of one, and the segment that is being written."""
    root = write_store(
        tmp_path_factory.mktemp("cut") / "b",
        [
            (0, closed_segment(messages(30), SIZE)),
            (SIZE, closed_segment(messages(30, seed=2), SIZE, SIZE)),
            (3 * SIZE, open_segment(messages(10, seed=3), SIZE, 3 * SIZE)),
        ],
    )
    (found,) = find_stores(str(root), formats=COMMITLOGS)
    return found


def sizes(store: Store) -> dict[int, int]:
    """Return the sizes of the records, by their starts."""
    found: dict[int, int] = {}
    for base, seed, count in ((0, 1, 30), (SIZE, 2, 30), (3 * SIZE, 3, 10)):
        offset = base
        for record in records(messages(count, seed=seed), base):
            found[offset] = len(record)
            offset += len(record)
    return found


def record_starts(store: Store) -> list[int]:
    """Return the starts of records, and the log's end."""
    *starts, last = sizes(store)
    return [*starts, last, last + sizes(store)[last]]


@pytest.mark.parametrize("share", [1, 200, 700, SIZE - 1, SIZE, SIZE + 1, 2 * SIZE, 2 * SIZE + 5, 3 * SIZE, 1 << 40])
@pytest.mark.parametrize("place", [0, 7, 29])
def test_a_share_ends_after_the_first_record_that_reaches_it(store: Store, share: int, place: int) -> None:
    begins = record_starts(store)
    start, end = begins[place], begins[-1]
    found = end_of_share(store, StorePosition(start), StorePosition(end), share, MIB)
    if start + share >= end:
        assert found == StorePosition(end)
        return
    last = next(one for one in begins if one >= start + share - 1)
    following = found.offset == last + sizes(store)[last]
    assert following or found.offset in (SIZE, 2 * SIZE, 3 * SIZE)  # a segment's end, or a gap's, will do
    assert start < found.offset
    if found.record is not None:
        before = max(one for one in begins if one < found.offset)
        assert found.record == read_known_record(store, before)


def test_shares_of_any_size_together_equal_the_log(store: Store) -> None:
    end = take_snapshot([store]).ranges[store.broker].end
    for share in (1, 333, 5000, SIZE):
        position, seen = StorePosition(0), [0]
        while position.offset < end:
            position = end_of_share(store, position, StorePosition(end), share, MIB)
            seen.append(position.offset)
        assert seen == sorted(set(seen))
        ends = {start + size for start, size in sizes(store).items()}
        assert set(seen) <= {0, *ends, SIZE, 2 * SIZE, 3 * SIZE}


def test_a_body_that_holds_records_is_not_cut(tmp_path: Path) -> None:
    inner = b"".join(records(messages(20, seed=5), 300))
    sent = [new_message(0), new_message(1, body=inner), new_message(2)]
    root = write_store(tmp_path / "b", [(0, open_segment(sent, SIZE))])
    (found,) = find_stores(str(root), formats=COMMITLOGS)
    lengths = [len(record) for record in records(sent)]
    for share in range(lengths[0] + 2, lengths[0] + lengths[1], 50):
        cut = end_of_share(found, StorePosition(0), StorePosition(sum(lengths)), share, MIB)
        assert cut.offset == sum(lengths)


def test_a_cut_does_not_divide_a_bad_range(tmp_path: Path) -> None:
    sent = messages(20, seed=4)
    lengths = [len(record) for record in records(sent)]
    data = bytearray(open_segment(sent, SIZE))
    bad = sum(lengths[:5])
    data[bad : bad + 4] = b"\x7f\xff\xff\xff"  # a lying size
    root = write_store(tmp_path / "b", [(0, bytes(data))])
    (found,) = find_stores(str(root), formats=COMMITLOGS)
    cut = end_of_share(found, StorePosition(0), StorePosition(sum(lengths)), bad + 10, MIB)
    assert cut.offset == sum(lengths[:7])
