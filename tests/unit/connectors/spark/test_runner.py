"""Division of a run on Spark into jobs, which needs no Spark."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from commitlake.connectors.runtime.runner import SharedValue
from commitlake.connectors.spark.runner import SparkRunner, divide_into_jobs, load_task, pickle_tasks


def test_no_tasks_need_no_spark() -> None:
    session = Mock()
    assert list(SparkRunner(session).run(abs, [])) == []
    session.range.assert_not_called()


@pytest.mark.parametrize("cores", [1, 2, 3, 8, 200])
@pytest.mark.parametrize("tasks", [1, 2, 7, 100, 5000])
def test_jobs_keep_all_cores_busy_and_give_results_early(tasks: int, cores: int) -> None:
    jobs = divide_into_jobs(tasks, cores)
    assert [number for job in jobs for number in job] == [*range(tasks)]
    first = sum(len(job) for job in jobs[:8])
    assert first >= min(tasks, 2 * cores * 2 // 3)  # all slots have a task before the first job is over
    assert max(len(job) for job in jobs) <= max(cores // 4 + 1, tasks // 16 + 1)
    assert len(jobs) <= 16


def test_a_value_that_tasks_share_is_sent_once_and_loaded_once() -> None:
    segments = SharedValue(tuple(f"/store/commitlog/{number:020d}" for number in range(10_000)))
    other = SharedValue("another store")
    tasks, shared = pickle_tasks([(number, segments if number else other) for number in range(100)])
    assert sum(map(len, tasks)) < 10_000
    assert len(shared) == 2
    loaded = [load_task(task, shared) for task in tasks]
    assert [number for number, _ in loaded] == [*range(100)]
    assert [value.value for _, value in loaded] == [other.value, *[segments.value] * 99]
    assert len({id(value) for _, value in loaded}) == 2
