"""The tasks of a search: packs, and rows of messages."""

from __future__ import annotations

from pathlib import Path

from commitlake.connectors.runtime.local_runner import HERE, ThreadRunner
from commitlake.pipelines.grep.pattern import parse_pattern
from commitlake.pipelines.grep.planning import MAX_TASK_PACKS, TASK_BYTES, PackPart, pack_conditions_sql, plan_search
from commitlake.pipelines.grep.planning import _group_into_tasks as tasks_of
from commitlake.pipelines.grep.search import SearchParameters, SearchProgress, run_search
from tests.support.erased_lakes import write_lake


def part(number: int, size: int = 1) -> PackPart:
    """Return bodies of one pack."""
    return PackPart(f"pack-{number}", "b", number, number, 1, size)


def test_small_packs_share_a_task_up_to_a_size() -> None:
    assert [len(task) for task in tasks_of([part(number) for number in range(MAX_TASK_PACKS + 1)])] == [
        MAX_TASK_PACKS,
        1,
    ]
    half = TASK_BYTES // 2
    parts = [part(1, half), part(2, half), part(3, half), part(4, 2 * TASK_BYTES)]
    assert [len(task) for task in tasks_of(parts)] == [2, 1, 1]
    assert list(tasks_of([])) == []


def test_rows_of_packs_are_also_selected_by_offsets() -> None:
    conditions = pack_conditions_sql([PackPart("it's", "b'", 5, 9, 2, 7), PackPart("p", "b'", 11, 12, 1, 1)])
    assert conditions == [
        "((broker = 'b''' AND physical_offset BETWEEN 5 AND 12))",
        "body_ref['pack'] IN ('it''s', 'p')",
    ]


def test_a_plan_counts_messages_and_packs(tmp_path: Path) -> None:
    growing = write_lake(tmp_path)
    plan = plan_search(growing.lake.table("messages"), [])
    packs = {part.pack for task in plan.tasks for part in task}
    assert (plan.message_count, len(packs), plan.without_body) == (100, 2, 0)
    assert plan_search(growing.lake.table("messages"), ["false"]).tasks == []


def test_matches_are_in_the_same_order_with_any_runner(tmp_path: Path) -> None:
    growing = write_lake(tmp_path)
    table = growing.lake.table("messages")
    columns = ["broker", "physical_offset"]
    search = SearchParameters(growing.lake, table.version(), growing.lake.packs, parse_pattern("customer"), [], columns)
    plan = plan_search(table, [])
    one_by_one = type(plan)([[each] for task in plan.tasks for each in task], 0)
    answers = []
    for runner, tasks in ((HERE, plan), (HERE, one_by_one), (ThreadRunner(2), one_by_one)):
        read = SearchProgress()
        rows = [row for batch in run_search(search, tasks, runner, read) for row in batch.to_pylist()]
        assert (read.messages, read.packs, read.is_cut) == (100, 2, False)
        answers.append(rows)
    assert answers[0] == answers[1] == answers[2]
    assert [row["physical_offset"] for row in answers[0]] == sorted(row["physical_offset"] for row in answers[0])
