"""Stories of many keys are those that each key has alone, although the tables are read once for all."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.runtime.local_runner import ThreadRunner
from commitlake.connectors.runtime.runner import Result, Task
from commitlake.pipelines.lineage import group_offsets, history_reader, prefetched_tables, table_lookups
from commitlake.pipelines.lineage.history_reader import read_stories, read_story_and_rows
from commitlake.pipelines.lineage.message_history import Question
from commitlake.pipelines.lineage.prefetched_tables import PrefetchedTables
from commitlake.pipelines.message_keys.table_update import catch_up_keys
from tests.support.journeyed_lakes import SHAPES, TOPICS, JourneyedLake, Sent
from tests.support.lineage_lakes import BROKER, KEY, at, edge, make_lake, order_lake, record, snapshot

MISSING = "no such key"


def check_stories(lake: Lake, keys: Sequence[str], question: Question) -> None:
    """Check that the stories of keys are those of each key alone, with the same rows."""
    found = list(read_stories(lake, keys, question))
    assert len(found) == len(keys)
    for key, (story, rows) in zip(keys, found, strict=True):
        expected, expected_rows = read_story_and_rows(lake, replace(question, key=key))
        assert story == expected
        assert sorted(rows, key=_place) == sorted(expected_rows, key=_place)


def _place(row: Any) -> tuple[str, int]:
    return row["broker"], row["physical_offset"]


class EagerRunner(ThreadRunner):
    """A runner that returns results only when it has all of them, as Spark does for the tasks of a job."""

    def __init__(self) -> None:
        super().__init__(2)
        self.task_counts: list[int] = []

    def run(
        self, function: Callable[[Task], Result], tasks: Sequence[Task], *, is_io_bound: bool = False
    ) -> Iterator[tuple[int, Result]]:
        """Run a function over tasks, and note how many there are."""
        self.task_counts.append(len(tasks))
        return iter(list(super().run(function, tasks, is_io_bound=is_io_bound)))


@pytest.fixture(scope="module")
def journeyed() -> Iterator[JourneyedLake]:
    """A lake of two stores with messages of every shape, and keys of several messages."""
    with tempfile.TemporaryDirectory() as folder:
        yield JourneyedLake(Path(folder), random_plan(7, 90))


def random_plan(seed: int, count: int) -> list[Sent]:
    """Return messages of random shapes, several for most keys, of which some have two."""
    chance = random.Random(seed)
    keys = [f"o{number}" for number in range(count // 3)]
    return [
        Sent(
            " ".join(chance.sample(keys, chance.choice((1, 1, 2)))),
            chance.choice(TOPICS),
            chance.choice(list(SHAPES)),
            chance.randrange(600),
            chance.choice(("broker-a", "broker-b")),
        )
        for _ in range(count)
    ]


KEYS = [f"o{number}" for number in range(30)] + [MISSING]


@pytest.mark.some_cases(2)
@pytest.mark.parametrize("others", [
    {}, {"limit": 1}, {"start": at(0).replace(year=2023), "end": at(0).replace(year=2024)}, {"depth": 1},
    {"related_by": "UNIQ_KEY"},
], ids=["all", "limit", "times", "depth", "related"])  # fmt: skip
def test_stories_of_many_keys_are_those_of_each(journeyed: JourneyedLake, others: dict[str, Any]) -> None:
    check_stories(Lake(journeyed.root), KEYS, Question(key="", **others))


@pytest.mark.some_cases(1)
@pytest.mark.parametrize("is_indexed", [False, True], ids=["no message_keys", "message_keys"])
@pytest.mark.parametrize("max_rows", [1_000_000, 3], ids=["all edges", "few edges"])
def test_scans_and_small_batches_give_the_same_stories(
    journeyed: JourneyedLake, monkeypatch: pytest.MonkeyPatch, *, is_indexed: bool, max_rows: int
) -> None:
    monkeypatch.setattr(prefetched_tables, "_MIN_SCANNED", 0)
    monkeypatch.setattr(prefetched_tables, "_MAX_ROWS", max_rows)
    monkeypatch.setattr(history_reader, "KEYS_AT_ONCE", 7)
    monkeypatch.setattr(group_offsets, "_MAX_VALUES", 2)
    if is_indexed:
        catch_up_keys(Lake(journeyed.root))
    check_stories(Lake(journeyed.root), KEYS, Question(key="", limit=3))


def test_outcomes_by_offsets_of_groups_are_those_of_each_key(tmp_path: Path) -> None:
    lake = order_lake(tmp_path / "one")
    check_stories(lake, [KEY, "order-9", MISSING], Question(key=""))
    records = [
        record(100 * number, number, topic, unique_key=f"U{number}", keys=[f"k{number}"], queue_offset=number)
        for number, topic in enumerate(["orders", "payments", "orders", "shipments"], 1)
    ]
    offsets = [
        *snapshot(2, {("audit", "orders", 0): 2, ("late", "payments", 0): 1}),
        *snapshot(60, {("audit", "orders", 0): 3, ("late", "payments", 0): 9, ("mail", "shipments", 1): 5}),
    ]
    many = make_lake(tmp_path / "many", records, [], offsets)
    check_stories(many, ["k1", "k2", "k3", "k4"], Question(key=""))
    check_stories(make_lake(tmp_path / "bare", records, None), ["k4", "k1"], Question(key=""))


def test_the_number_of_queries_does_not_grow_with_the_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count = 50
    sent = [
        record(1000 * n, n, "orders", unique_key=f"U{n}", keys=[f"k{n}"], queue_offset=n) for n in range(1, count + 1)
    ]
    waits = [
        record(1000 * n + 500, n + 1, "SCHEDULE_TOPIC_XXXX", unique_key=f"U{n}", keys=[f"k{n}"], reconsume_times=1)
        for n in range(1, count + 1)
    ]
    edges = [
        row
        for first, second in zip(sent, waits, strict=True)
        for row in edge("retried", first, second, consumer_group="billing", attempt=1)
    ]
    lake = make_lake(tmp_path, [*sent, *waits], edges, snapshot(60, {("audit", "orders", 0): 9}))
    asked: list[str] = []
    for module in (table_lookups, prefetched_tables, group_offsets):
        original = module.run_sql

        def run_sql(table: Any, name: str, sql: str, original: Any = original) -> Any:
            asked.append(sql)
            return original(table, name, sql)

        monkeypatch.setattr(module, "run_sql", run_sql)
    list(read_stories(lake, ["k1"], Question(key="")))
    of_one = len(asked)
    asked.clear()
    list(read_stories(lake, [f"k{n}" for n in range(1, count + 1)], Question(key="")))
    assert len(asked) <= of_one + 1
    assert BROKER in {row["broker"] for row in sent}


@pytest.mark.long("takes seconds, and changes only with how tasks return their results")
def test_results_of_tasks_do_not_pile_up(journeyed: JourneyedLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_reader, "KEYS_AT_ONCE", 1)
    monkeypatch.setattr(history_reader, "_PACKED_STORIES", 2)
    lake, keys, runner = Lake(journeyed.root), [f"o{number}" for number in range(30)], EagerRunner()
    stories = read_stories(lake, keys, Question(key=""), runner)
    first, _ = next(stories)
    assert len(runner.task_counts) == 1  # at most four tasks for each of two cores
    expected = [story for story, _ in read_stories(lake, keys, Question(key=""))]
    assert [first, *(story for story, _ in stories)] == expected
    assert sum(runner.task_counts) == len(keys)
    assert max(runner.task_counts) <= 8


HOT = "hot"


def retried_lake(folder: Path, counts: dict[str, int], repeats: int = 1) -> Lake:
    """Write a lake with some messages for each key; each message has a record that was sent, and one that waits."""
    sent: list[dict[str, Any]] = []
    waits: list[dict[str, Any]] = []
    for key, count in counts.items():
        for _ in range(count):
            n = len(sent) + 1
            sent.append(record(1000 * n, n, "orders", unique_key=f"U{n}", keys=[key] * repeats, queue_offset=n))
            waits.append(record(1000 * n + 500, n + 1, "SCHEDULE_TOPIC_XXXX", unique_key=f"U{n}", keys=[]))
    edges = [
        row
        for first, second in zip(sent, waits, strict=True)
        for row in edge("retried", first, second, consumer_group="billing", attempt=1)
    ]
    return make_lake(folder, [*sent, *waits], edges, snapshot(60, {("audit", "orders", 0): 9}))


@pytest.mark.some_cases(1)
@pytest.mark.parametrize("is_indexed", [False, True], ids=["no message_keys", "message_keys"])
def test_keys_are_divided_by_their_messages_and_a_hot_key_is_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_indexed: bool
) -> None:
    monkeypatch.setattr(prefetched_tables, "_MAX_PLACES", 6)
    counts = {"a": 1, "b": 3, "c": 2, "d": 1, HOT: 9, "e": 4, "f": 2, "g": 1}
    lake = retried_lake(tmp_path, counts, repeats=1 if is_indexed else 2)
    if is_indexed:
        catch_up_keys(lake)
    keys = ["a", "b", MISSING, "c", "d", HOT, "e", "f", "a", "g"]
    tables = PrefetchedTables(lake.pin_versions(), keys, Question(key=""))
    parts = []
    for part in tables.prefetch_in_parts():
        parts.append(part)
        assert len(tables._rows) == (0 if len(part) == 1 else 2 * sum(map(tables._places.count, part)))
    assert parts == [["a", "b", MISSING, "c"], ["d"], [HOT], ["e", "f"], ["a", "g"]]
    check_stories(lake, keys, Question(key=""))
    check_stories(lake, keys, Question(key="", limit=2))


def test_rows_in_memory_are_limited_however_many_keys_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefetched_tables, "_MAX_PLACES", 20)
    monkeypatch.setattr(prefetched_tables, "_MAX_ROWS", 50)
    monkeypatch.setattr(history_reader, "_MAX_GATHERED", 20)
    lake = retried_lake(tmp_path, {f"k{number}": 5 for number in range(40)})

    class CountedRow(dict[str, Any]):
        alive = most = 0

        def __init__(self, row: Any) -> None:
            super().__init__(row)
            CountedRow.alive += 1
            CountedRow.most = max(CountedRow.most, CountedRow.alive)

        def __del__(self) -> None:
            CountedRow.alive -= 1

    for module in (table_lookups, prefetched_tables):
        original = module.to_row_dicts
        monkeypatch.setattr(
            module, "to_row_dicts", lambda batches, original=original: map(CountedRow, original(batches))
        )
    steps = sum(len(story.steps) for story, _ in read_stories(lake, [f"k{n}" for n in range(40)], Question(key="")))
    assert steps >= 400
    assert CountedRow.most <= 50 + 2 * 15  # also the story that was yielded last, and the one that is read


def test_nothing_more_is_read_ahead_after_edges_without_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = retried_lake(tmp_path, {f"k{number}": 2 for number in range(8)})
    keys = [f"k{number}" for number in range(8)]
    monkeypatch.setattr(prefetched_tables, "_MAX_ROWS", 20)
    asked: list[str] = []

    def run_counted(table: Any, name: str, sql: str) -> Any:
        asked.append(name)
        return run_sql(table, name, sql)

    monkeypatch.setattr(table_lookups, "run_sql", run_counted)
    monkeypatch.setattr(prefetched_tables, "_MAX_HALVINGS", 0)
    tables = PrefetchedTables(lake.pin_versions(), keys, Question(key=""))
    assert list(tables.prefetch_in_parts()) == [keys]
    assert asked == ["messages", "edges"]
    assert not tables._edges_of
    monkeypatch.setattr(prefetched_tables, "_MAX_HALVINGS", 1)
    assert list(tables.prefetch_in_parts()) == [keys[:4], keys[4:]]
    assert len(tables._edges_of) == 8
    check_stories(lake, keys, Question(key=""))
