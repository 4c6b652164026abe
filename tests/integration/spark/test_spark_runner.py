"""Tasks on Spark: results come while other tasks run, and an error ends the others."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from commitlake.connectors.spark.runner import SparkRunner
from commitlake.schemas.layouts.integer_parsing import NumberError, require_int
from tests.support.exchanged import PARTS, SUMS, TASKS, divide, fail_to_combine, fail_to_divide, sum_part
from tests.support.waiting import wait_until


def squared(number: int) -> int:
    return number * number


def is_first(folder: Path) -> bool:
    """Return whether a task is the first to begin; tasks begin in any order."""
    try:
        (folder / "begun").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def wait_for_first(folder: Path, number: int) -> int:
    """Return at once from the first task that begins; from the others, once the driver has its result."""
    if not is_first(folder):
        wait_until((folder / "received").exists)
    return number


def fail_or_wait(folder: Path, _: int) -> int:
    """Fail in the first task that begins; wait in the others for an event that never happens."""
    if not is_first(folder):
        wait_until((folder / "never").exists)
    return require_int("x", "number", 0, 9)


def test_every_task_is_done_once(spark: SparkSession) -> None:
    numbers = [*range(20)]
    assert sorted(SparkRunner(spark).run(squared, numbers)) == [(number, number * number) for number in numbers]


def test_a_result_is_returned_while_other_tasks_run(spark: SparkSession, tmp_path: Path) -> None:
    results = SparkRunner(spark).run(partial(wait_for_first, tmp_path), [0, 1])
    first = next(results)
    (tmp_path / "received").touch()
    assert sorted([first, *results]) == [(0, 0), (1, 1)]


def test_an_error_ends_the_other_tasks(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(NumberError, match="number: expected a whole number"):
        list(SparkRunner(spark).run(partial(fail_or_wait, tmp_path), [*range(12)]))
    assert list(spark.sparkContext.statusTracker().getActiveJobsIds()) == []


def test_closing_the_results_ends_the_other_tasks(spark: SparkSession, tmp_path: Path) -> None:
    results = SparkRunner(spark).run(partial(wait_for_first, tmp_path), [0, 1])
    next(results)
    results.close()  # type: ignore[attr-defined]  # an iterator that is a generator
    assert list(spark.sparkContext.statusTracker().getActiveJobsIds()) == []


def test_tasks_run_in_the_job_group_of_the_caller(spark: SparkSession) -> None:
    spark.sparkContext.setJobGroup("asked", "by a test")
    try:
        assert list(SparkRunner(spark).run(squared, [3])) == [(0, 9)]
        assert spark.sparkContext.statusTracker().getJobIdsForGroup("asked")
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]


def persisted(spark: SparkSession) -> set[int]:
    """Return the ids of the RDDs that a session keeps, also those of other tests."""
    return set(spark.sparkContext._jsc.getPersistentRDDs())


def test_rows_of_all_tasks_are_combined_by_their_part(spark: SparkSession) -> None:
    runner, before = SparkRunner(spark), persisted(spark)
    assert sorted(runner.shuffle(divide, TASKS, sum_part, PARTS)) == SUMS
    assert list(runner.shuffle(divide, [], sum_part, PARTS)) == []
    assert persisted(spark) == before


def test_an_error_of_an_exchange_keeps_its_class(spark: SparkSession) -> None:
    runner, before = SparkRunner(spark), persisted(spark)
    with pytest.raises(NumberError, match="number: expected a whole number"):
        list(runner.shuffle(fail_to_divide, TASKS, sum_part, PARTS))
    with pytest.raises(NumberError, match="number: expected a whole number"):
        list(runner.shuffle(divide, TASKS, fail_to_combine, PARTS))
    assert persisted(spark) == before


def test_an_exchange_that_nobody_reads_on_keeps_nothing(spark: SparkSession) -> None:
    before = persisted(spark)
    results = SparkRunner(spark).shuffle(divide, TASKS, sum_part, PARTS)
    next(results)
    results.close()  # type: ignore[attr-defined]  # an iterator that is a generator
    assert persisted(spark) == before


def test_questions_are_asked_at_once_and_answered_in_order(spark: SparkSession) -> None:
    both = threading.Barrier(2)

    def ask(rows: int) -> int:
        both.wait(timeout=60)  # fails unless the other question is being asked
        return spark.range(rows).count()

    assert SparkRunner(spark).run_concurrently([partial(ask, 3), partial(ask, 5)]) == [3, 5]
    assert SparkRunner(spark).run_concurrently([]) == []


def test_an_error_of_a_question_ends_the_jobs_of_the_others(spark: SparkSession, tmp_path: Path) -> None:
    runner = SparkRunner(spark)

    def ask(number: int) -> list[tuple[int, int]]:
        return list(runner.run(partial(fail_or_wait, tmp_path), [number]))

    with pytest.raises(NumberError, match="number: expected a whole number"):
        runner.run_concurrently([partial(ask, number) for number in range(3)])
    assert list(spark.sparkContext.statusTracker().getActiveJobsIds()) == []
