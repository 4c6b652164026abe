"""Where a log is divided: at true records, found near the cut, and never inside a body without an error."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from connectors.commitlog import cuts
from connectors.commitlog.batches import read_split
from connectors.commitlog.cuts import find_cuts
from connectors.commitlog.errors import SplitError
from connectors.commitlog.files import LocalFile, OpenSegment, Window
from connectors.commitlog.options import Mode
from connectors.commitlog.plan import plan_splits, segment_ranges, take_snapshot
from connectors.commitlog.request import Request
from connectors.commitlog.splits import Split
from connectors.commitlog.stores import find_stores
from schemas.layouts.commitlog import NewMessage, serialize_message
from schemas.layouts.scan import DEFAULT_MAX_RECORD_BYTES
from schemas.tables.messages import SOURCE
from tests.logs import BROKER_HOST, closed_segment, damage, messages, new_message, open_segment, records, write_store

SIZE = 1 << 20
PARTITION = 64 << 10
CHAIN = 8 << 10
COLUMNS = {field.name: field for field in SOURCE}
REQUEST = Request(to_arrow_schema(StructType([COLUMNS["physical_offset"]]), timezone="UTC"))
MARKED = Request(
    to_arrow_schema(StructType([COLUMNS["physical_offset"], COLUMNS["_corrupt_record"]]), timezone="UTC"),
    Mode.PERMISSIVE,
)


@pytest.fixture(autouse=True)
def short_chains(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chains that fit the logs of these tests."""
    monkeypatch.setattr(cuts, "CHAIN_BYTES", CHAIN)


def whole_of(root: Path) -> Split:
    """All of a store's only segment."""
    (store,) = find_stores(str(root), "b")
    (whole,) = segment_ranges(store, take_snapshot([store]).ranges["b"])
    return whole


def cuts_of(whole: Split, *, chains: bool = True) -> list[int]:
    """The cuts of a segment, by chains or by hopping."""
    with OpenSegment(whole.path) as file, pytest.MonkeyPatch.context() as patch:
        if not chains:
            patch.setattr(cuts, "_WORTH_A_CHAIN", SIZE)
        return find_cuts(file, whole, PARTITION, DEFAULT_MAX_RECORD_BYTES, whole.end)


@pytest.mark.parametrize("seed", range(4))
def test_chains_and_hopping_find_the_same_cuts(tmp_path: Path, seed: int) -> None:
    for make in (open_segment, closed_segment):
        sent = messages(2500, seed)
        end = sum(map(len, records(sent)))
        whole = whole_of(write_store(tmp_path / make.__name__, [(0, make(sent, SIZE))]))
        found = cuts_of(whole)
        assert found == cuts_of(whole, chains=False)
        assert len(found) == end // PARTITION
        assert all(PARTITION * number <= cut < PARTITION * number + 1000 for number, cut in enumerate(found, 1))


def read_all(root: Path, *, chains: bool) -> tuple[list[int], int]:
    """Offsets of the records that a divided read gives, and the bytes that it could not read."""
    (store,) = find_stores(str(root), "b")
    with pytest.MonkeyPatch.context() as patch:
        if not chains:
            patch.setattr(cuts, "_WORTH_A_CHAIN", SIZE)
        splits = plan_splits(store, take_snapshot([store]).ranges["b"], PARTITION)
    offsets, bad = [], 0
    for split in splits:
        for batch in read_split(split, MARKED):
            for row in batch.to_pylist():
                note = row["_corrupt_record"]
                if note is None:
                    offsets.append(row["physical_offset"])
                else:
                    bad += note["end"] - note["start"]
    return offsets, bad


@pytest.mark.parametrize("seed", range(8))
def test_damage_around_the_cuts_loses_nothing(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    data = open_segment(messages(2500, seed), SIZE)
    for number in range(1, 7):
        start = PARTITION * number - 2000
        damaged = damage(data[start : start + 4000], chance)[:4000].ljust(4000, b"\0")
        data = data[:start] + damaged + data[start + 4000 :]
    root = write_store(tmp_path, [(0, data)])
    assert read_all(root, chains=True) == read_all(root, chains=False)


def test_planning_looks_at_little_of_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = whole_of(write_store(tmp_path, [(0, open_segment(messages(2500), SIZE))]))
    read = []
    original = LocalFile.read_into

    def counting(self: LocalFile, window: Window, position: int) -> int:
        read.append(len(window))
        return original(self, window, position)

    monkeypatch.setattr(LocalFile, "read_into", counting)
    found = cuts_of(whole)
    assert len(found) > 6
    assert sum(read) <= len(found) * 5 * CHAIN


def holding(root: Path, inner_bytes: int) -> tuple[Path, int, int]:
    """A store with a body, at the first cut, that holds a chain of provable records; where these begin and end."""
    before = records(messages(250))
    start = sum(map(len, before))
    assert start < PARTITION
    first = PARTITION + 100
    inner, offset = b"", first
    while len(inner) < inner_bytes:
        message = NewMessage("fake", b"x" * 50, 0, BROKER_HOST)
        inner += serialize_message(
            message, queue_offset=0, physical_offset=offset, store_timestamp=0, store_host=BROKER_HOST
        )
        offset = first + len(inner)
    pad = (
        first
        - start
        - (
            len(
                serialize_message(
                    new_message(0, body=b""),
                    queue_offset=0,
                    physical_offset=0,
                    store_timestamp=0,
                    store_host=BROKER_HOST,
                )
            )
            - _behind_body()
        )
    )
    outer = serialize_message(
        new_message(0, body=b"y" * pad + inner), queue_offset=0, physical_offset=start, store_timestamp=0,
        store_host=BROKER_HOST,
    )  # fmt: skip
    after = records(messages(1200, seed=3), start + len(outer))
    data = b"".join([*before, outer, *after])
    assert data[first : first + len(inner)] == inner
    return write_store(root, [(0, data.ljust(SIZE, b"\0"))]), first, first + len(inner)


def _behind_body() -> int:
    """Bytes of `new_message(0)` behind its body: topic and properties."""
    return 1 + len("orders") + 2 + len("KEYS\x01order-0\x02TAGS\x01Tag0\x02")


def test_records_in_a_body_are_no_cut(tmp_path: Path) -> None:
    root, first, end = holding(tmp_path, CHAIN // 2)
    (cut, *_) = cuts_of(whole_of(root))
    assert cut >= end
    (store,) = find_stores(str(root), "b")
    splits = plan_splits(store, take_snapshot([store]).ranges["b"], PARTITION)
    rows = [row for split in splits for batch in read_split(split, REQUEST) for row in batch.column(0).to_pylist()]
    assert not any(first <= row < end for row in rows)
    assert len(rows) == 250 + 1 + 1200


def test_a_body_longer_than_a_chain_is_an_error_and_an_undivided_read_is_not(tmp_path: Path) -> None:
    root, first, end = holding(tmp_path, 3 * CHAIN)
    assert cuts_of(whole_of(root))[0] == first
    (store,) = find_stores(str(root), "b")
    ranges = take_snapshot([store]).ranges["b"]
    splits = plan_splits(store, ranges, PARTITION)
    with pytest.raises(SplitError, match=r"goes on to .*maxPartitionBytes"):
        list(read_split(splits[0], REQUEST))
    (whole,) = plan_splits(store, ranges, SIZE)
    rows = [row for batch in read_split(whole, REQUEST) for row in batch.column(0).to_pylist()]
    assert not any(first <= row < end for row in rows)
    assert len(rows) == 250 + 1 + 1200
