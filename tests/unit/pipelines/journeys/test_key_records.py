"""Records of keys in slices, on lakes that are larger than what may be in memory."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from commitlake.connectors.lake.lake import Lake
from commitlake.pipelines.analysis.arrow_tables import ArrowTables
from commitlake.pipelines.journeys import key_records
from commitlake.pipelines.journeys.journeys_query import JourneysQuestion
from commitlake.pipelines.journeys.key_records import KEY_HASH, KeySlice, RowLimits, slices_of_sorted_batches
from commitlake.pipelines.journeys.sql_statements import JourneyStatements
from tests.support.lineage_lakes import START, Row, edge, make_lake, record

HOUR = datetime.timedelta(hours=1)
QUESTION = JourneysQuestion(START, START + HOUR)


def sent(number: int, key: str, seconds: float = 0) -> Row:
    """Return a row of a message with a key."""
    return record(1000 * number, seconds, "orders", keys=[key], unique_key=f"U{number}")


def keys_of(found: KeySlice) -> list[str]:
    """Return the keys of a slice, sorted, without repetitions."""
    return sorted(set(found.rows.column("key").to_pylist()))


def slices_of(
    root: str, limits: RowLimits, monkeypatch: pytest.MonkeyPatch, question: JourneysQuestion = QUESTION
) -> list[KeySlice]:
    """Return the slices of a lake."""
    monkeypatch.setattr(key_records, "LIMITS", limits)
    with ArrowTables(Lake(root)).key_records(question) as records:
        first = list(records.iterate_slices())
        assert [each.rows for each in records.iterate_slices()] == [each.rows for each in first]
    return first


def test_few_records_are_one_slice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_lake(tmp_path, [sent(0, "b"), sent(1, "a"), sent(2, "a")], []).root
    (found,) = slices_of(root, RowLimits(), monkeypatch)
    assert (keys_of(found), found.texts) == (["a", "b"], {"topic": ["orders"], "broker": ["broker-a"]})


def test_slices_have_ranges_of_whole_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [f"k{number * 7 % 10}" for number in range(40)]
    root = make_lake(tmp_path, [sent(number, key) for number, key in enumerate(keys)], []).root
    found = slices_of(root, RowLimits(slice_rows=8, chunk_rows=3), monkeypatch)
    assert [keys_of(each) for each in found] == [[f"k{n}", f"k{n + 1}"] for n in range(0, 10, 2)]
    assert [each.rows.num_rows for each in found] == [8] * 5


def test_a_key_with_more_records_than_a_slice_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_lake(tmp_path, [sent(number, "hub" if number % 4 else f"k{number}") for number in range(40)], []).root
    found = slices_of(root, RowLimits(slice_rows=5, chunk_rows=4), monkeypatch)
    assert sorted(key for each in found for key in keys_of(each)) == ["hub", *sorted(f"k{n}" for n in range(0, 40, 4))]
    assert sum(each.rows.num_rows for each in found) == 40


def test_only_records_near_a_small_window_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_lake(tmp_path, [sent(0, "before", -60), sent(1, "in", -30), sent(2, "in", 5)], []).root
    assert [keys_of(each) for each in slices_of(root, RowLimits(), monkeypatch)] == [["in"]]
    assert [keys_of(each) for each in slices_of(root, RowLimits(window_rows=0), monkeypatch)] == [["before", "in"]]


def test_steps_are_joined_in_parts_of_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records, edges = [], []
    for number in range(10):
        half, copy = (sent(2 * number + each, f"k{number}", 100 * number + 50 * each) for each in (0, 1))
        records += [half, copy]
        edges += edge("committed", half, copy, outcome="committed")
    root = make_lake(tmp_path, records, edges).root
    asked: list[tuple[int, int]] = []
    write = JourneyStatements.records_sql

    def records_sql(self: JourneyStatements, first_us: int, end_us: int, *, only_window_keys: bool) -> str:
        asked.append((first_us, end_us))
        return write(self, first_us, end_us, only_window_keys=only_window_keys)

    monkeypatch.setattr(JourneyStatements, "records_sql", records_sql)
    (found,) = slices_of(root, RowLimits(part_steps=3), monkeypatch)
    assert len(asked) == 4
    assert [end for _, end in asked[:-1]] == [first for first, _ in asked[1:]]
    assert (asked[0][0], asked[-1][1]) == (QUESTION.begin_us, QUESTION.end_us)
    assert sorted(found.rows.column("has_first").to_pylist()) == [0] * 10 + [1] * 10
    assert set(found.rows.column("lacks_origin").to_pylist()) == {0}


def test_files_are_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    root = make_lake(tmp_path, [sent(number, f"k{number}") for number in range(9)], []).root
    monkeypatch.setattr(key_records, "LIMITS", RowLimits(slice_rows=2, chunk_rows=2))
    with ArrowTables(Lake(root)).key_records(QUESTION):
        assert len(list(folder.glob("*/*.arrow"))) > 1
    assert list(folder.iterdir()) == []


def sorted_batches(hashes: Sequence[int], batch_rows: int) -> Iterator[pa.RecordBatch]:
    """Yield records of keys that are named by their hash, in batches of some rows."""
    keys = pa.array([f"k{number}" for number in hashes])
    topics, brokers = pa.repeat("orders", len(hashes)), pa.repeat("broker-a", len(hashes))
    rows = pa.table({"key": keys, "topic": topics, "broker": brokers, KEY_HASH: pa.array(hashes, pa.int64())})
    yield from rows.to_batches(max_chunksize=batch_rows)
    yield from rows.slice(0, 0).to_batches()


@pytest.mark.parametrize("batch_rows", [1, 2, 3, 100])
def test_slices_of_sorted_batches_have_whole_keys(batch_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_records, "LIMITS", RowLimits(task_rows=3))
    hashes = [-9, -9, -3, -3, -3, -3, -3, 0, 1, 2, 2, 7]
    found = list(slices_of_sorted_batches(sorted_batches(hashes, batch_rows)))
    assert [key for each in found for key in each.rows.column("key").to_pylist()] == [f"k{each}" for each in hashes]
    owners = [(key, number) for number, each in enumerate(found) for key in keys_of(each)]
    assert len(owners) == len(dict(owners)) == len(set(hashes))
    assert len(found) > 1
    assert all(each.texts == {"topic": ["orders"], "broker": ["broker-a"]} for each in found)
    assert found[0].rows.column_names == ["key", "topic", "broker"]


def test_no_batches_have_no_slices() -> None:
    assert list(slices_of_sorted_batches(iter(()))) == []
    assert list(slices_of_sorted_batches(sorted_batches([], 1))) == []
