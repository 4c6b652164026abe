"""Tasks are done where one says; their results carry their numbers."""

from __future__ import annotations

import pytest

from commitlake.connectors.runtime.running import run_tasks


def squared(number: int) -> int:
    if number < 0:
        raise ValueError(f"{number} is negative")
    return number * number


@pytest.mark.parametrize("processes", [1, 2])
def test_every_task_is_done_once(processes: int) -> None:
    assert sorted(run_tasks(squared, [3, 1, 2], processes=processes)) == [(0, 9), (1, 1), (2, 4)]


@pytest.mark.parametrize("processes", [1, 2])
def test_an_error_of_a_task_ends_the_run(processes: int) -> None:
    with pytest.raises(ValueError, match="negative"):
        list(run_tasks(squared, [1, -1], processes=processes))


def test_no_task_is_no_result() -> None:
    assert list(run_tasks(squared, [])) == []
