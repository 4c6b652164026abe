"""Reads of journals: stores of a path, look-ups by queue files, files skipped by times and offsets."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.formats.jmq.format import FORMAT as JMQ
from commitlake.connectors.formats.registry import COMMITLOGS, all_formats
from commitlake.connectors.formats.rocketmq.format import FORMAT as ROCKETMQ
from commitlake.connectors.reading.batches import read_split
from commitlake.connectors.reading.errors import IndexMismatchError, StoreError
from commitlake.connectors.reading.options import ReadOptions
from commitlake.connectors.reading.planning import ReadMethod, ReadPlan, plan_read
from commitlake.connectors.reading.read_request import Filters, Request
from commitlake.connectors.reading.splits import ListedSplit
from commitlake.connectors.reading.stores import find_stores
from commitlake.schemas.layouts.jmq.queue_file import ENTRY, JmqQueueEntry, parse_entry, serialize_entry
from commitlake.schemas.tables.messages import SOURCE
from tests.support.indexed_stores import STEP_MS, STORED_MS, without_seeks
from tests.support.journal_plans import COUNT, FILE_BYTES, RARE
from tests.support.journals import new_message, open_file, write_journal
from tests.support.logs import messages, open_segment, write_store

SCHEMA = arrow_schema(SOURCE)
Row = dict[str, object]


@pytest.fixture(autouse=True)
def _nothing_to_seek(monkeypatch: pytest.MonkeyPatch) -> None:
    without_seeks(monkeypatch)


@pytest.fixture
def store(plain: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    return shutil.copytree(plain, tmp_path / "store")


def plan_of(root: Path, **given: object) -> tuple[ReadPlan, ReadOptions]:
    """Return the plan of a read with these options."""
    texts = {"path": str(root), **{name: str(value) for name, value in given.items()}}
    options = ReadOptions.parse(texts, formats=all_formats().select_only(JMQ))
    return plan_read(options, Filters.of_batch(options)), options


def rows_of(root: Path, **given: object) -> list[Row]:
    """Return the rows of a read."""
    plan, options = plan_of(root, **given)
    request = Request.of(options, Filters.of_batch(options), SCHEMA)
    batches = [batch for split in plan.splits for batch in read_split(split, request)]
    rows: list[Row] = pa.Table.from_batches(batches, schema=SCHEMA).to_pylist()
    return rows


def test_the_layout_is_recognised_by_the_folder(plain: Path, tmp_path: Path) -> None:
    log = write_store(tmp_path / "rocketmq", [(0, open_segment(messages(3), 4096))])
    found = {store.broker: store.format for store in find_stores(f"{plain},{log}", formats=all_formats())}
    assert found == {plain.name: JMQ, "rocketmq": ROCKETMQ}
    assert find_stores(str(plain / "journal"), formats=all_formats())[0].format is JMQ


def test_a_glob_finds_stores_of_the_requested_layouts(tmp_path: Path) -> None:
    write_store(tmp_path / "a" / "store", [(0, open_segment(messages(3), 4096))])
    write_journal(tmp_path / "b" / "store", [(0, open_file([new_message()], 4096))])
    pattern = f"{tmp_path}/{{broker}}/store"
    assert [store.broker for store in find_stores(pattern, formats=COMMITLOGS)] == ["a"]
    assert [store.broker for store in find_stores(pattern, formats=all_formats().select_only(JMQ))] == ["b"]
    assert [store.broker for store in find_stores(pattern, formats=all_formats())] == ["a", "b"]
    assert [store.broker for store in find_stores(f"{pattern}/journal", formats=all_formats())] == ["b"]


@pytest.mark.parametrize("pattern", ["{root}/both", "{root}/*"])
def test_a_folder_with_both_layouts_is_refused_until_one_is_named(tmp_path: Path, pattern: str) -> None:
    write_store(tmp_path / "both", [(0, open_segment(messages(3), 4096))])
    write_journal(tmp_path / "both", [(0, open_file([new_message()], 4096))])
    path = pattern.format(root=tmp_path)
    with pytest.raises(StoreError, match="--layout journal"):
        find_stores(path, formats=all_formats())
    assert find_stores(path, formats=all_formats().select_only(JMQ))[0].format is JMQ


def test_a_store_of_another_layout_is_an_error_that_names_its_folder(plain: Path) -> None:
    with pytest.raises(StoreError, match="holds 'journal', but 'commitlog' was asked for"):
        find_stores(str(plain), formats=COMMITLOGS)


def test_queue_files_find_exactly_the_topics_records(plain: Path) -> None:
    plan, _ = plan_of(plain, topics=RARE)
    assert plan.stores[0].read_methods == [ReadMethod.QUEUE_FILE]
    assert {type(split) for split in plan.splits} == {ListedSplit}
    found = rows_of(plain, topics=RARE)
    assert found == rows_of(plain, topics=RARE, useIndexes=False)
    assert plan.stores[0].record_count == len(found) == COUNT // 20


def test_queue_ids_narrow_the_listed_records(plain: Path) -> None:
    found = rows_of(plain, topics=RARE, queueIds="1,2")
    assert found == rows_of(plain, topics=RARE, queueIds="1,2", useIndexes=False)
    assert {row["queue_id"] for row in found} == {1, 2}


def test_records_of_a_lost_queue_are_scanned(store: Path) -> None:
    expected = rows_of(store, topics=RARE)
    shutil.rmtree(store / "queue" / RARE / "1")
    assert rows_of(store, topics=RARE) == expected
    shutil.rmtree(store / "queue")
    assert rows_of(store, topics=RARE) == expected
    assert plan_of(store, topics=RARE)[0].stores[0].read_methods == [ReadMethod.SCAN]


def test_a_damaged_entry_hides_no_later_record(store: Path) -> None:
    expected = rows_of(store, topics=RARE)
    path = min((store / "queue" / RARE / "0").iterdir())
    data = bytearray(path.read_bytes())
    data[ENTRY.size + 20] ^= 1
    path.write_bytes(bytes(data))
    assert rows_of(store, topics=RARE) == expected


def test_an_entry_that_points_to_another_queues_record_is_an_error(store: Path) -> None:
    paths = [min((store / "queue" / RARE / queue).iterdir()) for queue in ("0", "1")]
    first, second = (parse_entry(path.read_bytes()) for path in paths)
    assert first is not None
    assert second is not None
    for path, entry in zip(paths, (second, first), strict=True):
        data = serialize_entry(JmqQueueEntry(entry.journal_offset, entry.size))
        path.write_bytes(data + path.read_bytes()[ENTRY.size :])
    with pytest.raises(IndexMismatchError, match="queue file rare/"):
        rows_of(store, topics=RARE)


def test_keys_filter_the_records_of_the_topic(plain: Path) -> None:
    (row,) = rows_of(plain, topics=RARE, keys="order-40")
    assert row["keys"] == ["order-40"]
    (again,) = rows_of(plain, topics=RARE, keys=row["unique_key"])
    assert again == row


def test_times_and_offsets_skip_files(plain: Path) -> None:
    rows = rows_of(plain)
    assert len(rows) == COUNT
    begin, end = STORED_MS + 300 * STEP_MS, STORED_MS + 500 * STEP_MS
    options = {"startingTimestamp": begin, "endingTimestamp": end, "clockTolerance": 0}
    plan, _ = plan_of(plain, **options)
    assert plan.stores[0].count_segments(ReadMethod.SKIPPED_BY_TIME) > 0
    times = [round(row["store_timestamp"].timestamp() * 1000) for row in rows]  # type: ignore[attr-defined]
    assert rows_of(plain, **options) == [row for row, time in zip(rows, times, strict=True) if begin <= time < end]
    middle = 2 * FILE_BYTES
    assert plan_of(plain, startingOffset=middle)[0].stores[0].count_segments(ReadMethod.SKIPPED_BY_OFFSET) == 2
    assert rows_of(plain, startingOffset=middle) == [
        row
        for row in rows
        if row["physical_offset"] >= middle  # type: ignore[operator]
    ]


def test_the_plan_reports_that_a_journal_has_no_index_of_keys(plain: Path) -> None:
    reason = "IndexFile: a journal has no index of keys"
    (by_key,) = plan_of(plain, topics=RARE, keys="order-40")[0].stores
    (by_topic,) = plan_of(plain, topics=RARE)[0].stores
    assert reason in by_key.no_index_reasons
    assert reason not in by_topic.no_index_reasons
    assert [row["keys"] for row in rows_of(plain, topics=RARE, keys="order-40")] == [["order-40"]]
