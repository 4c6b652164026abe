"""Division of a log: at true records, found near the cut, and never inside a body without an error."""

from __future__ import annotations

import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.formats.registry import COMMITLOGS
from commitlake.connectors.reading import segment_walk, snapshots
from commitlake.connectors.reading.batches import read_split
from commitlake.connectors.reading.errors import CommitLogError
from commitlake.connectors.reading.files.segment_files import LocalFile, OpenSegment, Window
from commitlake.connectors.reading.options import Mode, ReadOptions
from commitlake.connectors.reading.planning import plan_read
from commitlake.connectors.reading.read_request import Filters, Request
from commitlake.connectors.reading.segment_walk import find_last_split_point, find_split_points
from commitlake.connectors.reading.snapshots import StoreRange, plan_splits, segment_ranges, take_snapshot
from commitlake.connectors.reading.splits import Split
from commitlake.connectors.reading.stores import find_stores
from commitlake.schemas.layouts.rocketmq.commitlog import serialize_blank
from commitlake.schemas.layouts.rocketmq.scan import DEFAULT_MAX_RECORD_BYTES
from commitlake.schemas.tables.messages import SOURCE
from tests.support.hostile import BEFORE_BODY, BEHIND_BODY, HostileLog, fake_record, store_record
from tests.support.logs import closed_segment, damage, messages, open_segment, records, write_store

SIZE = 1 << 20
PARTITION = 64 << 10
LOOK_BACK = 8 << 10
REQUEST = Request(arrow_schema(SOURCE.select_columns(["physical_offset"])))
MARKED = Request(
    arrow_schema(SOURCE.select_columns(["physical_offset", "_corrupt_record"])),
    Mode.PERMISSIVE,
)


@pytest.fixture(autouse=True)
def short_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks back that fit the logs of these tests."""
    monkeypatch.setattr(segment_walk, "LOOK_BACK_BYTES", LOOK_BACK)


def whole_of(root: Path) -> Split:
    """Return the whole range of a store's only segment."""
    (store,) = find_stores(str(root), "b", formats=COMMITLOGS)
    (whole,) = segment_ranges(store, take_snapshot([store]).ranges["b"])
    return whole


def cuts_of(whole: Split, *, near: bool = True) -> list[int]:
    """Return the cuts of a segment, searched near their positions or found by hopping."""
    with OpenSegment(whole.path) as file, pytest.MonkeyPatch.context() as patch:
        if not near:
            patch.setattr(segment_walk, "_WORTH_A_LOOK", SIZE)
        return list(find_split_points(file, whole, PARTITION, DEFAULT_MAX_RECORD_BYTES, whole.end))


@pytest.mark.parametrize("seed", range(4))
def test_looking_up_and_hopping_find_the_same_cuts(tmp_path: Path, seed: int) -> None:
    for make in (open_segment, closed_segment):
        sent = messages(2500, seed)
        end = sum(map(len, records(sent)))
        whole = whole_of(write_store(tmp_path / make.__name__, [(0, make(sent, SIZE))]))
        found = cuts_of(whole)
        assert found == cuts_of(whole, near=False)
        assert len(found) == end // PARTITION
        assert all(PARTITION * number <= cut < PARTITION * number + 1000 for number, cut in enumerate(found, 1))


@pytest.mark.parametrize("written", [40, 700, 2500])
def test_the_last_cut_is_found_from_the_end_of_a_mostly_empty_segment(tmp_path: Path, written: int) -> None:
    whole = whole_of(write_store(tmp_path, [(0, open_segment(messages(written), SIZE))]))
    whole = replace(whole, end=whole.file_end)  # as before it is known where the log ends
    with OpenSegment(whole.path) as file:
        found = find_last_split_point(file, whole, PARTITION, DEFAULT_MAX_RECORD_BYTES)
    near = [cut for cut in cuts_of(whole) if cut >= 2 * LOOK_BACK]
    assert found == (near[-1] if near else None)


def read_all(root: Path, *, near: bool, partition: int = PARTITION) -> tuple[list[int], int]:
    """Return the offsets of the records that a divided read gives, and the number of bytes that it could not read."""
    (store,) = find_stores(str(root), "b", formats=COMMITLOGS)
    with pytest.MonkeyPatch.context() as patch:
        if not near:
            patch.setattr(segment_walk, "_WORTH_A_LOOK", SIZE)
        splits = plan_splits(store, take_snapshot([store]).ranges["b"], partition)
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
def test_damage_around_the_cuts_loses_no_record(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    data = open_segment(messages(2500, seed), SIZE)
    for number in range(1, 7):
        start = PARTITION * number - 2000
        damaged = damage(data[start : start + 4000], chance)[:4000].ljust(4000, b"\0")
        data = data[:start] + damaged + data[start + 4000 :]
    root = write_store(tmp_path, [(0, data)])
    assert read_all(root, near=True) == read_all(root, near=False)


def test_planning_reads_a_small_part_of_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = whole_of(write_store(tmp_path, [(0, open_segment(messages(2500), SIZE))]))
    read = []
    original = LocalFile.read_into

    def counting(self: LocalFile, window: Window, position: int) -> int:
        read.append(len(window))
        return original(self, window, position)

    monkeypatch.setattr(LocalFile, "read_into", counting)
    found = cuts_of(whole)
    assert len(found) > 6
    assert sum(read) <= len(found) * 5 * LOOK_BACK


def range_found(root: Path, *, from_cut: bool) -> StoreRange:
    """Return the range of a store with one segment, its end looked for from a cut or from the first byte."""
    (store,) = find_stores(str(root), "b", formats=COMMITLOGS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(snapshots, "END_STEP_BYTES", PARTITION if from_cut else SIZE)
        return take_snapshot([store], max_record_bytes=4 * LOOK_BACK).ranges["b"]


@pytest.mark.some_cases(4)
@pytest.mark.parametrize("seed", range(12))
def test_end_of_log_is_the_same_from_a_cut_and_from_the_first_byte(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    log = HostileLog(chance, SIZE, LOOK_BACK - 200, share=chance.choice([0.0, 0.3, 0.9]))
    for data in (log.open(), log.closed(), open_segment(messages(2500, seed), SIZE)):
        for _ in range(6):
            kept = chance.choice([SIZE, chance.randrange(SIZE), chance.randrange(log.end)])
            damaged = bytearray(data[:kept].ljust(SIZE, b"\0"))
            for _ in range(chance.choice([0, 0, 1, 8])):
                at, length = chance.randrange(kept + 1), chance.choice([1, 100, 30_000])
                damaged[at : at + length] = bytes(len(damaged[at : at + length]))
            root = write_store(tmp_path / "store", [(0, bytes(damaged))])
            assert range_found(root, from_cut=True) == range_found(root, from_cut=False)
            shutil.rmtree(root)


def test_end_of_log_is_found_after_a_last_record_longer_than_a_look_back(tmp_path: Path) -> None:
    root, _, end = holding(tmp_path, 2 * LOOK_BACK, LOOK_BACK + 1000)
    segment = tmp_path / "commitlog" / f"{0:020d}"
    kept = segment.read_bytes()[: end + BEHIND_BODY]
    segment.write_bytes(kept.ljust(SIZE, b"\0"))
    assert range_found(root, from_cut=True) == range_found(root, from_cut=False)
    assert range_found(root, from_cut=True).end == len(kept)


def test_end_of_log_is_found_without_reading_all_of_a_segment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_store(tmp_path, [(0, closed_segment(messages(3500), SIZE))])
    read = []
    original = LocalFile.read_into

    def counting(self: LocalFile, window: Window, position: int) -> int:
        read.append(len(window))
        return original(self, window, position)

    monkeypatch.setattr(LocalFile, "read_into", counting)
    assert range_found(root, from_cut=True).end > SIZE // 2
    assert sum(read) < SIZE // 2


def holding(root: Path, inner_bytes: int, distance: int) -> tuple[Path, int, int]:
    """Make a store whose body at the first cut holds valid records; return it, with the range of these.

    Args:
        root: folder of the store.
        inner_bytes: minimum size of the records in the body.
        distance: from the outer record's start to the first of them.
    """
    first = PARTITION + 100
    before, start = [], 0
    while start < first - distance:
        left = first - distance - start - BEFORE_BODY - BEHIND_BODY
        length = left if left < 2000 else 500
        before.append(store_record(lambda _, length=length: b"x" * length, start))  # type: ignore[misc]
        start += len(before[-1])
    assert start == first - distance
    inner = b""
    while len(inner) < inner_bytes:
        inner += fake_record(first + len(inner), 0)
    outer = store_record(lambda at: b"y" * (first - at) + inner, start)
    after = records(messages(1200, seed=3), start + len(outer))
    data = b"".join([*before, outer, *after])
    assert data[first : first + len(inner)] == inner
    return write_store(root, [(0, data.ljust(SIZE, b"\0"))]), first, first + len(inner)


def offsets_of(splits: list[Split]) -> list[int]:
    """Return the offsets of the records that a read of these splits returns."""
    return [row for split in splits for batch in read_split(split, REQUEST) for row in batch.column(0).to_pylist()]


def test_records_in_a_body_are_not_cuts(tmp_path: Path) -> None:
    root, first, end = holding(tmp_path, LOOK_BACK // 2, 1000)
    (cut, *_) = cuts_of(whole_of(root))
    assert cut >= end
    (store,) = find_stores(str(root), "b", formats=COMMITLOGS)
    rows = offsets_of(plan_splits(store, take_snapshot([store]).ranges["b"], PARTITION))
    assert not any(first <= row < end for row in rows)


def test_a_body_longer_than_a_look_back_fails_a_divided_read_only(tmp_path: Path) -> None:
    root, first, end = holding(tmp_path, LOOK_BACK, LOOK_BACK + 1000)
    assert cuts_of(whole_of(root))[0] == first
    (store,) = find_stores(str(root), "b", formats=COMMITLOGS)
    ranges = take_snapshot([store]).ranges["b"]
    splits = plan_splits(store, ranges, PARTITION)
    with pytest.raises(
        CommitLogError, match=r"extends to .*maxPartitionBytes; commitlake archive: --partition-mib 1\)"
    ):
        list(read_split(splits[0], REQUEST))
    (whole,) = plan_splits(store, ranges, SIZE)
    rows = offsets_of([whole])
    assert not any(first <= row < end for row in rows)


def test_a_record_that_ends_with_its_outer_record_is_not_a_cut(tmp_path: Path) -> None:
    before, start = [], 0
    while start < PARTITION - 300:
        before.append(store_record(lambda _: bytes(200), start))
        start += len(before[-1])
    outer = store_record(lambda at: bytes(PARTITION + 50 - at) + fake_record(PARTITION + 50, BEHIND_BODY), start)
    after = records(messages(1200), start + len(outer))
    root = write_store(tmp_path, [(0, b"".join([*before, outer, *after]).ljust(SIZE, b"\0"))])
    assert cuts_of(whole_of(root)) == cuts_of(whole_of(root), near=False)
    assert cuts_of(whole_of(root))[0] == start + len(outer)


@pytest.mark.parametrize("seed", range(12))
def test_hostile_bodies_are_read_the_same_however_the_log_is_divided(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    log = HostileLog(chance, SIZE, LOOK_BACK - 200, share=chance.choice([0.3, 0.9]))
    data = chance.choice([log.open, log.closed])()
    root = write_store(tmp_path, [(0, data)])
    (store,) = find_stores(str(root), "b", formats=COMMITLOGS)
    found = take_snapshot([store]).ranges["b"]
    splits = plan_splits(store, found, PARTITION)
    assert len(splits) > 8
    assert offsets_of(splits) == log.starts
    for _ in range(8):
        at = chance.randrange(log.end)
        data = data[:at] + damage(data[at : at + 100], chance).ljust(100, b"\0")[:100] + data[at + 100 :]
    (tmp_path / "commitlog" / f"{0:020d}").write_bytes(data)
    undivided = read_all(root, near=True, partition=SIZE)
    assert read_all(root, near=True) == undivided
    assert read_all(root, near=False) == undivided


@pytest.mark.parametrize("seed", range(3))
def test_a_starting_offset_inside_a_body_gives_no_record_of_it(tmp_path: Path, seed: int) -> None:
    log = HostileLog(random.Random(seed), SIZE, LOOK_BACK - 200)
    root = write_store(tmp_path, [(0, log.open())])
    for fake in random.Random(seed).sample(log.fakes, 5):
        given = {"path": str(root), "startingOffset": str(fake), "maxPartitionBytes": str(PARTITION)}
        options = ReadOptions.parse(given, formats=COMMITLOGS)
        narrowed = Filters.of_batch(options)
        request = replace(REQUEST, filters=narrowed)
        rows = [
            row
            for split in plan_read(options, narrowed).splits
            for batch in read_split(split, request)
            for row in batch.column(0).to_pylist()
        ]
        assert rows == [start for start in log.starts if start >= fake]


def test_bodies_full_of_blanks_do_not_change_the_cuts(tmp_path: Path) -> None:
    before, start = [], 0
    while start < SIZE - 3000:
        before.append(store_record(lambda at: serialize_blank(SIZE - at)[:8] + bytes(992), start))
        start += len(before[-1])
    whole = whole_of(write_store(tmp_path, [(0, b"".join(before).ljust(SIZE, b"\0"))]))
    assert cuts_of(whole) == cuts_of(whole, near=False)
