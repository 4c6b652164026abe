"""A function over many tasks: the interface of what runs them in this process, in a pool of processes, or on Spark.

Function, tasks and results are values that can be pickled: a function of a module's top level, or a `functools.partial`
of one, without open files or connections in it. The results are the same wherever the tasks run.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")

TaskCounter = Callable[[], tuple[int, int]]
"""Gives how many tasks are done, and how many are known so far; raises `CounterGoneError`."""


class CounterGoneError(Exception):
    """What runs the tasks can no longer be asked how many are done; the run itself tells why."""


class Runner(ABC):
    """What runs tasks. `HERE` and others are in `local_runner`, and Spark's is in `spark_runner`."""

    @property
    @abstractmethod
    def cores(self) -> int:
        """How many tasks run at a time."""

    @abstractmethod
    def run(
        self, function: Callable[[Task], Result], tasks: Sequence[Task], *, is_waiting: bool = False
    ) -> Iterator[tuple[int, Result]]:
        """Run a function over tasks.

        Args:
            function: what is run; see above for what it may be.
            tasks: its arguments.
            is_waiting: the tasks wait, for a disk say, about as long as they compute. Two are started for each core
                where the number was not given.

        Yields:
            Each task's number and result, in the order in which tasks are done, as far as the runner knows it.

        Raises:
            Exception: the first error of a task, as it was raised there. Tasks that have not begun are left out.
        """

    def task_counter(self) -> TaskCounter | None:
        """Return what counts tasks of this and other kinds while they run; None where nothing does."""
        return None


def available_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def divided(tasks: Sequence[Task], count: int) -> list[Sequence[Task]]:
    """Divide tasks, in their order, into groups of about the same length; no group is empty.

    >>> divided([1, 2, 3, 4, 5], 2)
    [[1, 2], [3, 4, 5]]
    >>> divided([1], 4)
    [[1]]
    """
    groups = min(count, len(tasks))
    ends = [number * len(tasks) // groups for number in range(groups + 1)]
    return [tasks[start:end] for start, end in pairwise(ends)]
