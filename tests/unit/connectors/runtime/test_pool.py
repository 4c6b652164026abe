"""Tasks in a pool: results arrive as tasks finish, and a failed task ends the others."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from commitlake.connectors.runtime.pool import run_in_pool

PATIENCE_SECONDS = 60


class Blocked:
    """Tasks that are held until they are cancelled, but for the first."""

    def __init__(self) -> None:
        self.cancelled = threading.Event()
        self.begun: list[int] = []

    def work(self, number: int) -> int:
        """Fail in task 0, return from task 1, and hold the others."""
        self.begun.append(number)
        if number == 0:
            raise KeyError(number)
        if number > 1:
            assert self.cancelled.wait(PATIENCE_SECONDS)
        return number


def test_a_result_is_returned_while_other_tasks_run() -> None:
    blocked = Blocked()
    results = run_in_pool(ThreadPoolExecutor(2), 2, blocked.work, [1, 2])
    assert next(results) == (0, 1)
    blocked.cancelled.set()
    assert list(results) == [(1, 2)]


@pytest.mark.parametrize("ends_by", ["an error", "the caller"])
def test_other_tasks_are_cancelled_after_an_error_or_a_close(ends_by: str) -> None:
    blocked = Blocked()
    calls: list[None] = []

    def cancel() -> None:
        """End the tasks that run, at the second time: the first may come too early for one that is starting."""
        calls.append(None)
        if len(calls) > 1:
            blocked.cancelled.set()

    first = 0 if ends_by == "an error" else 1
    results = run_in_pool(ThreadPoolExecutor(2), 2, blocked.work, [first, *range(2, 20)], cancel=cancel)
    if ends_by == "an error":
        with pytest.raises(KeyError):
            list(results)
    else:
        assert next(results) == (0, 1)
        results.close()  # type: ignore[attr-defined]  # an iterator that is a generator
    assert len(calls) > 1
    assert len(blocked.begun) <= 2 + 4


def test_no_task_is_cancelled_if_all_are_done() -> None:
    calls: list[None] = []
    assert list(run_in_pool(ThreadPoolExecutor(1), 1, abs, [-1], cancel=lambda: calls.append(None))) == [(0, 1)]
    assert calls == []
