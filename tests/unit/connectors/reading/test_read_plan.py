"""A plan leaves out only records that are not wanted."""

from __future__ import annotations

import logging
import random
from pathlib import Path

import pytest

from commitlake.connectors.reading.errors import StoreError
from commitlake.connectors.reading.files import segment_files
from commitlake.connectors.reading.planning import ReadMethod
from commitlake.connectors.reading.splits import Split
from commitlake.schemas.layouts.segment_names import segment_name
from tests.support.indexed_stores import (
    RARE,
    SEGMENT_BYTES,
    STORED_MS,
    plan_of,
    read_by_plan,
    read_by_scan,
    read_splits,
    unique_key,
    write_indexed_store,
)

pytestmark = pytest.mark.usefixtures("nothing_to_seek")

MIDDLE_MS = STORED_MS + 300_000


@pytest.fixture
def store(plain: Path) -> Path:
    """A store of several segments; nothing here changes it."""
    return plain


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Count the bytes that are read of each opened segment, by its name."""
    found: dict[str, int] = {}

    class Watched(segment_files.LocalFile):
        def __init__(self, path: str) -> None:
            super().__init__(path)
            self._name = Path(path).name
            found.setdefault(self._name, 0)

        def read_into(self, window: segment_files.Window, position: int) -> int:
            length = super().read_into(window, position)
            found[self._name] += length
            return length

    monkeypatch.setattr(segment_files, "LocalFile", Watched)
    return found


def test_a_read_without_filters_skips_no_segment(store: Path) -> None:
    (plan,) = plan_of(store).stores
    assert plan.read_methods == [ReadMethod.SCAN]
    assert plan.planned_bytes == plan.store_range.size
    assert len(plan.planned_segments) == len(plan.segments)
    assert plan.record_count is None


def test_segments_outside_the_offsets_are_not_opened(store: Path, opened: dict[str, int]) -> None:
    (plan,) = plan_of(store, startingOffset=SEGMENT_BYTES + 10, endingOffset=2 * SEGMENT_BYTES).stores
    assert [split.base_offset for split in plan.splits] == [SEGMENT_BYTES]
    assert plan.count_segments(ReadMethod.SKIPPED_BY_OFFSET) == len(plan.segments) - 1
    newest = max(opened)
    assert opened.pop(newest) < SEGMENT_BYTES / 2  # its first record, to see that the log goes on
    assert opened == {}


def test_segments_outside_the_offsets_are_not_opened_to_find_cuts(store: Path, opened: dict[str, int]) -> None:
    plan = plan_of(store, startingOffset=SEGMENT_BYTES, endingOffset=SEGMENT_BYTES + 1000, maxPartitionBytes=500)
    assert set(opened) == {segment_name(SEGMENT_BYTES), max(opened)}
    assert plan.splits[-1].end < SEGMENT_BYTES + 2000
    assert plan.splits[0].start == SEGMENT_BYTES


@pytest.mark.parametrize(("low", "high"), [(0, 1), (5000, 40000), (30000, 10**9), (16384, 16385), (100, 100)])
@pytest.mark.parametrize("size", [300, 5000, 1 << 20])
def test_offset_filters_give_the_same_with_and_without_skipping(store: Path, low: int, high: int, size: int) -> None:
    options = {"startingOffset": low, "endingOffset": high}
    assert read_by_plan(store, **options, maxPartitionBytes=size) == read_by_scan(store, **options)


def test_segments_outside_the_times_are_only_probed(
    store: Path, opened: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("commitlake.connectors.reading.time_bounds.PROBES", 4)
    monkeypatch.setattr("commitlake.connectors.reading.time_bounds._PROBE_BYTES", 400)
    begin = MIDDLE_MS
    (plan,) = plan_of(store, startingTimestamp=begin, endingTimestamp=begin + 1000, clockTolerance=0).stores
    assert 1 <= len(plan.splits) <= 2
    assert plan.count_segments(ReadMethod.SKIPPED_BY_TIME) == len(plan.segments) - len(plan.splits)
    newest = max(opened)
    assert all(length < SEGMENT_BYTES * 3 // 4 for name, length in opened.items() if name != newest)


@pytest.mark.parametrize("tolerance", [0, 5000, 600_000])
def test_time_filters_give_the_same_with_and_without_skipping(store: Path, tolerance: int) -> None:
    for begin in range(STORED_MS - 50_000, STORED_MS + 700_000, 49_000):
        for end in (begin + 1, begin + 100_000):
            options = {"startingTimestamp": begin, "endingTimestamp": end}
            assert read_by_plan(store, **options, clockTolerance=tolerance) == read_by_scan(store, **options)


def test_a_larger_tolerance_reads_more(store: Path) -> None:
    sizes = [
        plan_of(store, startingTimestamp=MIDDLE_MS, endingTimestamp=MIDDLE_MS + 1, clockTolerance=tolerance)
        .stores[0]
        .planned_bytes
        for tolerance in (0, 100_000, 600_000)
    ]
    assert sizes == sorted(set(sizes))


def without(tmp_path: Path, *numbers: int) -> Path:
    """Return a store that has lost some segments."""
    root = write_indexed_store(tmp_path)
    for number in numbers:
        (root / "commitlog" / segment_name(number * SEGMENT_BYTES)).unlink()
    return root


def missing(splits: list[Split]) -> list[tuple[int, int]]:
    """Return the positions of missing segments, in segments."""
    return [(split.start // SEGMENT_BYTES, split.end // SEGMENT_BYTES) for split in splits if split.missing]


def test_a_gap_is_planned_if_it_may_hold_wanted_records(tmp_path: Path) -> None:
    root = without(tmp_path, 2, 3)
    times = [found.store_timestamp for found in read_splits(plan_of(root, endingOffset=2 * SEGMENT_BYTES).splits)]
    inside = times[-1] + 5000
    options = {"startingTimestamp": inside, "endingTimestamp": inside + 1, "clockTolerance": 0}
    assert missing(plan_of(root, **options).splits) == [(2, 4)]
    options = {"startingTimestamp": STORED_MS + 599_000, "clockTolerance": 0}
    assert missing(plan_of(root, **options).splits) == []
    assert missing(plan_of(root, startingOffset=3 * SEGMENT_BYTES).splits) == [(2, 4)]
    assert missing(plan_of(root, endingOffset=2 * SEGMENT_BYTES).splits) == []


def test_a_gap_is_planned_for_topics_and_keys_regardless_of_indexes(tmp_path: Path) -> None:
    root = without(tmp_path, 2)
    assert missing(plan_of(root, topics=RARE).splits) == [(2, 3)]
    assert missing(plan_of(root, topics=RARE, keys="order-0").splits) == [(2, 3)]


def test_a_plan_reports_its_counts(store: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        plan = plan_of(store, topics=RARE, startingTimestamp=MIDDLE_MS, clockTolerance=0)
    row = plan.stores[0].to_row()
    assert row["answered_by"] == ["ConsumeQueue"]
    assert row["segments_skipped_by_time"] == plan.stores[0].count_segments(ReadMethod.SKIPPED_BY_TIME)
    assert row["records"] == sum(split.record_count for split in plan.splits)  # type: ignore[attr-defined]
    assert row["bytes"] == row["bytes_planned"] + row["bytes_skipped"]  # type: ignore[operator]
    assert "by ConsumeQueue" in caplog.text
    assert f"{row['segments_skipped_by_time']} by time" in caplog.text


def test_a_plan_gives_the_reason_why_an_index_was_not_used(store: Path) -> None:
    (plan,) = plan_of(store, topics="topic-0,topic-1,topic-2").stores
    assert plan.read_methods == [ReadMethod.SCAN]
    assert list(plan.no_index_reasons) == [
        "ConsumeQueue: a scan is faster, because the wanted records are too many, or too close together"
    ]
    (plan,) = plan_of(store, topics=RARE, useIndexes="false").stores
    assert list(plan.no_index_reasons) == ["the option useIndexes is false"]
    assert plan.read_methods == [ReadMethod.SCAN]


def test_stores_given_by_uri_are_scanned(store: Path) -> None:
    (plan,) = plan_of(f"file://{store}", topics=RARE).stores
    assert plan.read_methods == [ReadMethod.SCAN]
    assert list(plan.no_index_reasons) == ["indexes are only read from local disks"]
    assert read_by_plan(f"file://{store}", topics=RARE) == read_by_scan(store, topics=RARE)


def test_a_snapshot_of_another_store_is_refused(store: Path) -> None:
    with pytest.raises(StoreError, match="the snapshot contains the store 'other'"):
        plan_of(store, snapshot='{"other": {"start": 0, "end": 1, "tail": "unwritten"}}')


def test_a_snapshot_bounds_the_records_that_indexes_list(store: Path) -> None:
    name = plan_of(store).stores[0].broker
    end = next(found.physical_offset for found in read_splits(plan_of(store).splits) if found.topic == RARE) + 20_000
    end = next(found.physical_offset for found in read_splits(plan_of(store).splits) if found.physical_offset > end)
    snapshot = f'{{"{name}": {{"start": 0, "end": {end}, "tail": "unwritten"}}}}'
    found = read_by_plan(store, topics=RARE, snapshot=snapshot)
    assert found == [each for each in read_by_scan(store, topics=RARE) if each.physical_offset < end]
    assert found


def test_any_filters_give_the_result_of_a_scan(tmp_path: Path) -> None:
    chance = random.Random(5)
    root = write_indexed_store(tmp_path, 700, seed=3)
    ways: set[ReadMethod] = set()
    for _ in range(60):
        options: dict[str, object] = {"topics": chance.choice([RARE, "topic-1", "rare,nothing", "nothing"])}
        if chance.random() < 0.3:
            options["queueIds"] = chance.choice(["0", "1,2", "9"])
        if chance.random() < 0.5:
            number = chance.randrange(800)
            options["keys"] = chance.choice([f"order-{number}", unique_key(number), f"group-{number % 50},order-3"])
        if chance.random() < 0.4:
            options["startingTimestamp"] = STORED_MS + 1000 * chance.randrange(700)
            options["clockTolerance"] = chance.choice([0, 10_000])
        if chance.random() < 0.4:
            options["endingOffset"] = chance.randrange(1, 15 * SEGMENT_BYTES)
        plan = plan_of(root, **options)
        ways.update(way for store in plan.stores for way in store.read_methods)
        assert read_by_plan(root, **options) == read_by_scan(root, **options), options
    assert ways == {ReadMethod.SCAN, ReadMethod.CONSUME_QUEUE, ReadMethod.INDEX_FILE}
