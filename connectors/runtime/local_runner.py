"""Tasks on this machine: in this thread, on several threads of this process, or in several processes.

Threads are for tasks whose time goes into compiled code, Arrow, numpy and the system, which let other threads run
meanwhile: processes would take longer to start than a gigabyte to read. Processes are for tasks of much Python.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

from commitlake.connectors.runtime.fork_server import end_with_parent, start_fork_server
from commitlake.connectors.runtime.pool import run_in_pool
from commitlake.connectors.runtime.runner import Result, Runner, Task, available_cores

_MAX_PROCESSES = 64


class ThreadRunner(Runner):
    """Runs tasks on threads of this process.

    Args:
        workers: how many; one for each core where not given. One is the thread that asks for the results.
    """

    def __init__(self, workers: int | None = None) -> None:
        self._workers = workers

    @property
    def cores(self) -> int:
        """How many tasks run at a time."""
        return self._workers or available_cores()

    def run(
        self, function: Callable[[Task], Result], tasks: Sequence[Task], *, is_waiting: bool = False
    ) -> Iterator[tuple[int, Result]]:
        """Run a function over tasks, as `Runner.run` says; function, tasks and results need not be pickled."""
        workers = self._workers or available_cores() * (2 if is_waiting else 1)
        count = min(len(tasks), workers)
        if count <= 1:
            yield from _run_in_turn(function, tasks)
            return
        with ThreadPoolExecutor(count) as pool:
            yield from run_in_pool(pool, count, function, tasks)


class ProcessRunner(Runner):
    """Runs tasks in processes of this machine, which end with this one.

    Args:
        workers: how many; one for each core where not given. One means this process, and no other is started.
    """

    def __init__(self, workers: int | None = None) -> None:
        self._workers = workers

    @property
    def cores(self) -> int:
        """How many tasks run at a time."""
        return min(_MAX_PROCESSES, self._workers or available_cores())

    def run(
        self, function: Callable[[Task], Result], tasks: Sequence[Task], *, is_waiting: bool = False
    ) -> Iterator[tuple[int, Result]]:
        """Run a function over tasks, as `Runner.run` says."""
        workers = self._workers or available_cores() * (2 if is_waiting else 1)
        count = min(len(tasks), _MAX_PROCESSES, workers)
        if count <= 1:
            yield from _run_in_turn(function, tasks)
            return
        # Not by fork: what this process has running (Arrow's threads, a JVM's sockets) does not survive it.
        start_fork_server()
        context = multiprocessing.get_context("forkserver")
        with ProcessPoolExecutor(count, mp_context=context, initializer=end_with_parent) as pool:
            yield from run_in_pool(pool, count, function, tasks)


HERE: Runner = ThreadRunner(1)
"""Runs tasks one after the other in the thread that asks for the results."""


def _run_in_turn(function: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[tuple[int, Result]]:
    for number, task in enumerate(tasks):
        yield number, function(task)
