"""Tasks on this machine run exactly once, in any kind of worker; their results carry their numbers."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from commitlake.connectors.runtime.local_runner import HERE, ProcessRunner, ThreadRunner
from commitlake.connectors.runtime.runner import Runner, available_cores, group_small_tasks
from commitlake.schemas.layouts.integer_parsing import NumberError
from tests.support.exchanged import PARTS, SUMS, TASKS, divide, fail_to_combine, fail_to_divide, sum_part

RUNNERS = [HERE, ThreadRunner(), ThreadRunner(3), ProcessRunner(1), ProcessRunner(2)]
NAMES = ["here", "threads", "three threads", "one process", "two processes"]


def squared(number: int) -> int:
    if number < 0:
        raise NumberError("number", 0, 9, str(number))
    return number * number


@pytest.mark.parametrize("runner", RUNNERS, ids=NAMES)
def test_every_task_is_done_once(runner: Runner) -> None:
    numbers = [*range(20)]
    assert sorted(runner.run(squared, numbers)) == [(number, number * number) for number in numbers]


@pytest.mark.parametrize("runner", RUNNERS, ids=NAMES)
def test_an_error_of_a_task_keeps_its_class(runner: Runner) -> None:
    with pytest.raises(NumberError, match=r"found '?-1"):
        list(runner.run(squared, [1, -1, 2]))


@pytest.mark.parametrize("runner", RUNNERS, ids=NAMES)
def test_no_tasks_give_no_results(runner: Runner) -> None:
    assert list(runner.run(squared, [])) == []


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("runner", RUNNERS, ids=NAMES)
def test_rows_of_all_tasks_are_combined_by_their_part(runner: Runner, temporary: Path) -> None:
    assert sorted(runner.shuffle(divide, TASKS, sum_part, PARTS)) == SUMS
    assert list(runner.shuffle(divide, [], sum_part, PARTS)) == []
    assert list(temporary.glob("commitlake-*")) == []


@pytest.mark.parametrize("runner", RUNNERS, ids=NAMES)
def test_an_error_of_an_exchange_keeps_its_class_and_leaves_no_files(runner: Runner, temporary: Path) -> None:
    with pytest.raises(NumberError, match="number: expected a whole number"):
        list(runner.shuffle(fail_to_divide, TASKS, sum_part, PARTS))
    with pytest.raises(NumberError, match="number: expected a whole number"):
        list(runner.shuffle(divide, TASKS, fail_to_combine, PARTS))
    assert list(temporary.glob("commitlake-*")) == []


def test_an_exchange_that_nobody_reads_on_leaves_no_files(temporary: Path) -> None:
    results = HERE.shuffle(divide, TASKS, sum_part, PARTS)
    next(results)
    results.close()  # type: ignore[attr-defined]
    assert list(temporary.iterdir()) == []


def test_as_many_tasks_run_at_a_time_as_cores_or_as_given() -> None:
    assert [runner.cores for runner in (HERE, ThreadRunner(3), ProcessRunner(2))] == [1, 3, 2]
    assert ThreadRunner().cores == ProcessRunner().cores == available_cores()


@pytest.mark.parametrize(("given", "is_waiting", "expected"), [(None, True, 4), (None, False, 2), (3, True, 3)])
def test_tasks_that_wait_have_two_threads_for_each_core(
    given: int | None, is_waiting: bool, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("commitlake.connectors.runtime.local_runner.available_cores", lambda: 2)
    together = threading.Barrier(expected)

    def wait(_: int) -> int:
        return together.wait(timeout=60)  # fails where fewer threads run at the same time

    assert len(list(ThreadRunner(given).run(wait, range(expected), is_io_bound=is_waiting))) == expected


class Counted(Sequence[int]):
    """Many tasks, and a count of those that were taken."""

    def __init__(self) -> None:
        self.taken = 0

    def __len__(self) -> int:
        return 10_000

    def __getitem__(self, number: int) -> int:  # type: ignore[override]
        return number

    def __iter__(self) -> Iterator[int]:
        for number in range(len(self)):
            self.taken += 1
            yield number


def test_tasks_are_started_as_results_are_consumed() -> None:
    tasks = Counted()
    results = ThreadRunner(2).run(squared, tasks)
    for _ in range(10):
        next(results)
    results.close()  # type: ignore[attr-defined]
    assert tasks.taken <= 10 + 2 * 2


def test_tasks_after_an_error_are_not_started() -> None:
    tasks = Counted()

    def fail(number: int) -> None:
        raise ValueError(f"task {number}")

    with pytest.raises(ValueError, match="task"):
        list(ThreadRunner(2).run(fail, tasks))
    assert tasks.taken <= 2 * 2


@pytest.mark.parametrize("runner", RUNNERS, ids=NAMES)
def test_questions_are_answered_in_order_and_end_at_an_error(runner: Runner) -> None:
    asked: list[int] = []

    def ask(number: int) -> int:
        asked.append(number)
        return squared(number)

    assert runner.run_concurrently([lambda: ask(2), lambda: ask(3)]) == [4, 9]
    with pytest.raises(NumberError, match=r"found '?-1"):
        runner.run_concurrently([lambda: ask(1), lambda: ask(-1), lambda: ask(5)])
    assert asked == [2, 3, 1, -1]


@pytest.mark.parametrize("cores", [1, 2, 64])
@pytest.mark.parametrize("sizes", [[], [5], [1 << 30] * 3, [1] * 10_000, [1 << 20] * 1000, [0, 40 << 20, 0, 0, 3]])
def test_small_tasks_are_in_groups_and_large_ones_are_not(sizes: list[int], cores: int) -> None:
    groups = group_small_tasks(range(len(sizes)), sizes, cores)
    assert [task for group in groups for task in group] == [*range(len(sizes))]
    assert all(len(group) == 1 or sum(sizes[task] for task in group) <= 32 << 20 for group in groups)
    assert all(0 < len(group) <= 64 for group in groups)
    assert len(groups) >= min(len(sizes), 4 * cores) * bool(sum(sizes) and len(set(sizes)) == 1)
