"""Offsets and splits of a stream's batches, without Spark."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

import pytest

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.formats.registry import COMMITLOGS
from commitlake.connectors.formats.rocketmq.format import FORMAT as ROCKETMQ
from commitlake.connectors.reading.batches import read_split
from commitlake.connectors.reading.errors import StoreError
from commitlake.connectors.reading.options import ReadOptions
from commitlake.connectors.reading.read_request import Filters, Request
from commitlake.connectors.reading.splits import Split
from commitlake.connectors.reading.store_identity_check import StoreReplacedError
from commitlake.connectors.reading.stores import find_stores
from commitlake.connectors.sources.stream import TASK_BYTES, group_splits
from commitlake.connectors.sources.stream_offsets import Positions, from_checkpoint, to_checkpoint
from commitlake.connectors.sources.stream_planner import StreamPlanner
from commitlake.schemas.tables.messages import SOURCE
from tests.support.logs import START_MS, closed_segment, messages, open_segment, write_store

SIZE = 16384
COLUMNS = ("broker", "physical_offset", "size")


def write(root: Path, broker: str, closed: int, count: int) -> None:
    """Write a store of so many closed segments, and messages in the one that is being written."""
    segments = [(number * SIZE, closed_segment(messages(30, number), SIZE, number * SIZE)) for number in range(closed)]
    base = closed * SIZE
    write_store(root / broker, [*segments, (base, open_segment(messages(count, closed), SIZE, base))])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two brokers, of three segments and of one."""
    write(tmp_path, "a", 2, 10)
    write(tmp_path, "b", 0, 20)
    return tmp_path


def options(root: Path, **given: object) -> ReadOptions:
    values = {"path": str(root / "{broker}"), **{name: str(value) for name, value in given.items()}}
    return ReadOptions.parse(values, formats=COMMITLOGS).for_stream()


def read(root: Path, splits: list[Split], **given: object) -> list[tuple[Any, ...]]:
    chosen = options(root, **given)
    schema = arrow_schema(SOURCE.select_columns([*COLUMNS, "_corrupt_record"]))
    request = Request.of(chosen, Filters.of_stream(chosen), schema)
    return [
        tuple(row[name] for name in COLUMNS)
        for split in splits
        for batch in read_split(split, request)
        for row in batch.to_pylist()
    ]


def run(planner: StreamPlanner, start: Positions, limit: int | None = None) -> list[tuple[Positions, list[Split]]]:
    """Plan micro-batches through checkpoints, as Spark does, until nothing is new."""
    batches: list[tuple[Positions, list[Split]]] = []
    while True:
        end = from_checkpoint(to_checkpoint(planner.next_positions(start, limit)))
        if end == start:
            return batches
        batches.append((end, planner.splits(start, end)))
        start = end


@pytest.mark.parametrize("limit", [None, 1, 1000, 5000, SIZE, 10 * SIZE])
def test_micro_batches_of_any_size_give_the_rows_of_a_batch(root: Path, limit: int | None) -> None:
    planner = StreamPlanner(options(root))
    batches = run(planner, planner.first_positions(), limit)
    rows = [row for _, splits in batches for row in read(root, splits)]
    assert len(rows) == len(set(rows)) == 90
    if limit is not None:
        assert len(batches) > 1 or limit >= 4 * SIZE
        for _, splits in batches:
            taken = sum(size for _, _, size in read(root, splits))
            assert taken <= limit + 2 * 2 * 400  # two records of each store


def test_a_micro_batch_planned_again_elsewhere_has_the_same_splits(root: Path) -> None:
    planner = StreamPlanner(options(root))
    start = planner.first_positions()
    for end, splits in run(planner, start, 4000):
        write(root, "a", 2, 20)  # it goes on meanwhile
        again = StreamPlanner(options(root)).splits(start, end)
        assert read(root, again) == read(root, splits)
        start = end


def test_small_and_large_brokers_have_fair_shares(tmp_path: Path) -> None:
    for number in range(5):
        write(tmp_path, f"small-{number}", 0, 3)
    write(tmp_path, "large", 3, 10)
    planner = StreamPlanner(options(tmp_path))
    ((_, first), *_) = run(planner, planner.first_positions(), 2 * SIZE)
    assert {split.broker for split in first} == {"large", *(f"small-{number}" for number in range(5))}
    assert sum(split.size for split in first) > SIZE


def test_a_broker_that_appears_is_read_from_its_first_record(root: Path) -> None:
    planner = StreamPlanner(options(root, startingOffset="latest"))
    start = planner.first_positions()
    write(root, "c", 1, 5)
    batches = run(planner, start)
    assert [len(read(root, splits)) for _, splits in batches] == [0, 35]
    assert batches[0][0]["c"].offset == 0


def test_a_stream_may_begin_before_its_broker_has_stored_a_message(tmp_path: Path) -> None:
    (tmp_path / "a" / "commitlog").mkdir(parents=True)
    planner = StreamPlanner(ReadOptions.parse({"path": str(tmp_path / "a")}, formats=COMMITLOGS))
    assert planner.first_positions() == {} == planner.next_positions({}, None)
    write(tmp_path, "a", 0, 4)
    assert [len(read(tmp_path, splits)) for _, splits in run(planner, {})] == [0, 4]


def test_a_path_without_a_store_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no store matches"):
        StreamPlanner(options(tmp_path)).first_positions()


def test_available_now_reads_only_the_records_present_at_its_start(root: Path) -> None:
    planner = StreamPlanner(options(root))
    start = planner.first_positions()
    planner.stop_at_current_ends()
    write(root, "b", 0, 25)
    write(root, "c", 0, 5)
    rows = [row for _, splits in run(planner, start, 3000) for row in read(root, splits)]
    assert len(rows) == 90
    assert {row[0] for row in rows} == {"a", "b"}


def test_available_now_reads_a_broker_missing_from_the_checkpoint(root: Path) -> None:
    start = StreamPlanner(options(root)).first_positions()
    write(root, "c", 0, 5)
    planner = StreamPlanner(options(root))
    planner.stop_at_current_ends()
    rows = [row for _, splits in run(planner, start) for row in read(root, splits)]
    assert len(rows) == 95


def delete_first_segment(root: Path) -> None:
    (root / "a" / "commitlog" / f"{0:020d}").unlink()


def test_segments_deleted_before_they_were_read_fail_the_stream(root: Path) -> None:
    start = StreamPlanner(options(root)).first_positions()
    delete_first_segment(root)
    planner = StreamPlanner(options(root))
    expected = rf"offsets 0 to {SIZE} \({SIZE} bytes\) were deleted before the stream read them.* failOnDataLoss=false"
    with pytest.raises(StoreError, match=expected):
        planner.next_positions(start, None)


def test_segments_deleted_between_two_plans_fail_the_stream(root: Path) -> None:
    planner = StreamPlanner(options(root))
    start = planner.first_positions()
    end = planner.next_positions(start, None)
    delete_first_segment(root)
    with pytest.raises(StoreError, match="store 'a'"):
        StreamPlanner(options(root)).splits(start, end)


@pytest.mark.parametrize(("mode", "gaps"), [("FAILFAST", 0), ("DROPMALFORMED", 0), ("PERMISSIVE", 1)])
def test_an_accepted_loss_is_logged(root: Path, mode: str, gaps: int, caplog: pytest.LogCaptureFixture) -> None:
    given = {"failOnDataLoss": "false", "mode": mode}
    start = StreamPlanner(options(root)).first_positions()
    delete_first_segment(root)
    planner = StreamPlanner(options(root, **given))
    with caplog.at_level(logging.WARNING):
        rows = [row for _, splits in run(planner, start) for row in read(root, splits, **given)]
    assert f"store 'a': physical offsets 0 to {SIZE}" in caplog.text
    assert len(rows) == 60 + gaps
    assert rows.count(("a", 0, None)) == gaps


def test_a_missing_store_fails_the_stream(root: Path) -> None:
    planner = StreamPlanner(options(root))
    start = planner.next_positions(planner.first_positions(), None)
    shutil.rmtree(root / "b")
    with pytest.raises(StoreError, match=f"store 'b', .* up to physical offset {start['b'].offset}, is not in"):
        planner.next_positions(start, None)


def test_other_stores_are_read_while_an_accepted_store_is_missing(root: Path) -> None:
    planner = StreamPlanner(options(root, failOnDataLoss="false"))
    start = planner.next_positions(planner.first_positions(), None)
    kept = shutil.move(root / "b", root.parent / f"{root.name}-away")
    write(root, "a", 2, 12)
    ((end, splits),) = run(planner, start)
    assert (len(read(root, splits)), end["b"]) == (2, start["b"])
    shutil.move(kept, root / "b")
    write(root, "b", 0, 21)
    ((_, splits),) = run(planner, end)
    assert [row[0] for row in read(root, splits)] == ["b"]


def test_the_error_for_no_remaining_store_has_the_reason(root: Path) -> None:
    planner = StreamPlanner(options(root))
    start = planner.first_positions()
    shutil.rmtree(root / "a")
    shutil.rmtree(root / "b")
    with pytest.raises(StoreError, match="no store matches"):
        planner.next_positions(start, None)


@pytest.mark.parametrize("fail", [True, False])
def test_a_store_that_was_set_up_again_is_refused(root: Path, fail: bool) -> None:
    planner = StreamPlanner(options(root, failOnDataLoss=str(fail).lower()))
    start = planner.next_positions(planner.first_positions(), None)
    shutil.rmtree(root / "b")
    write_store(root / "b", [(0, open_segment(messages(20, seed=9), SIZE))])
    with pytest.raises(StoreReplacedError, match="store 'b'"):
        planner.next_positions(start, None)
    with pytest.raises(StoreReplacedError, match="store 'b'"):
        StreamPlanner(options(root)).splits(
            {"a": start["a"], "b": from_checkpoint({"version": 1, "stores": {"b": {"offset": 0}}})["b"]}, start
        )


def test_a_store_set_up_again_with_a_record_around_the_offset_is_refused(root: Path) -> None:
    first = StreamPlanner(options(root)).first_positions()
    start = from_checkpoint({"version": 1, "stores": {"a": {"offset": first["a"].offset}, "b": {"offset": 7}}})
    with pytest.raises(StoreReplacedError, match="a record begins at physical offset 7"):
        StreamPlanner(options(root)).next_positions(start, None)


def test_the_starting_time_does_not_filter_later_segments(root: Path) -> None:
    chosen = {"startingTimestamp": START_MS + 1000 + 15}
    planner = StreamPlanner(options(root, **chosen))
    rows = [row for _, splits in run(planner, planner.first_positions()) for row in read(root, splits, **chosen)]
    assert len([row for row in rows if row[0] == "b"]) == 5
    assert len([row for row in rows if row[0] == "a"]) == 15 + 30 + 10  # older ones in later segments are new


def test_filters_are_those_of_a_batch(root: Path) -> None:
    planner = StreamPlanner(options(root, topics="topic-1"))
    rows = [
        row for _, splits in run(planner, planner.first_positions()) for row in read(root, splits, topics="topic-1")
    ]
    assert len(rows) == 10 + 10 + 3 + 7


def test_the_ends_of_logs_are_known_despite_the_limit(root: Path) -> None:
    planner = StreamPlanner(options(root))
    end = planner.next_positions(planner.first_positions(), 100)
    ends = {
        store.broker: store.segments[-1].base_offset
        for store in find_stores(str(root / "{broker}"), formats=COMMITLOGS)
    }
    assert planner.latest_positions["a"].offset >= ends["a"] > end["a"].offset


def test_small_splits_share_a_task_and_large_ones_do_not() -> None:
    def split(size: int) -> Split:
        return Split("b", "/s", 0, 0, size, 1 << 30, 1 << 30, ROCKETMQ)

    sizes = [1, 2, TASK_BYTES, TASK_BYTES + 1, 5, TASK_BYTES - 5, 1]
    groups = list(group_splits([split(size) for size in sizes]))
    assert [[one.size for one in group.splits] for group in groups] == [
        [1, 2], [TASK_BYTES], [TASK_BYTES + 1], [5, TASK_BYTES - 5], [1],
    ]  # fmt: skip
