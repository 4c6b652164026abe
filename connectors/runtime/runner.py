"""Interface of runners: they run a function over many tasks in this process, in several, or on Spark.

Function, tasks and results must be picklable: a function at a module's top level, or a `functools.partial` of one,
without open files or connections. The results do not depend on where the tasks run.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from commitlake.connectors.reading.partition_sizes import group_by_size

if TYPE_CHECKING:
    import pyarrow as pa

    from commitlake.connectors.numpy_arrays import Array

Task = TypeVar("Task")
Result = TypeVar("Result")
Value = TypeVar("Value")

_GROUP_BYTES, _GROUP_TASKS = 32 << 20, 64
_GROUPS_PER_CORE = 4

DividedRows = Iterable[tuple["pa.Table", "Array"]]
"""Rows in any number of tables, each with the number of each row's part."""
TaskCounter = Callable[[], tuple[int, int]]
"""Function that returns the numbers of finished and of known tasks; raises `CounterGoneError`."""


@dataclass(frozen=True, slots=True, eq=False)
class SharedValue(Generic[Value]):
    """Wrapper of a value that many tasks share, such as the list of a store's segments.

    Spark gets it once for all tasks of a job that have the same object, and a worker loads it once. So memory and time
    do not grow with the number of tasks times the size of the value. No task may change it.
    """

    value: Value


class CounterGoneError(Exception):
    """Error for a counter of tasks that no longer works, because Spark, or what it counts, has ended."""


class Runner(ABC):
    """Interface for running tasks; implemented in `local_runner` and, on Spark, in `connectors.spark.runner`."""

    @property
    @abstractmethod
    def cores(self) -> int:
        """Number of tasks that run at a time."""

    @abstractmethod
    def run(
        self, function: Callable[[Task], Result], tasks: Sequence[Task], *, is_io_bound: bool = False
    ) -> Iterator[tuple[int, Result]]:
        """Run a function over tasks, and yield the results as they arrive.

        Args:
            function: function to run; see the module's docstring.
            tasks: arguments of the function.
            is_io_bound: whether tasks wait, for example for a disk, about as long as they compute. Then two are started
                per core, unless the number of workers was given.

        Yields:
            Number and result of each task, about in the order in which they finish.

        Raises:
            Exception: the first error of a task, as it was raised. Tasks that have not started are skipped.
        """

    @abstractmethod
    def shuffle(
        self,
        divide: Callable[[Task], DividedRows],
        tasks: Sequence[Task],
        combine: Callable[[Sequence[pa.Table]], Result],
        part_count: int,
    ) -> Iterator[Result]:
        """Divide the rows of many tasks into parts, and call a function with the rows of each part.

        The rows between the two functions are on disk. A part must fit into a worker's memory.

        Args:
            divide: returns the rows of a task, and the number of each row's part. Columns have one chunk each and no
                dictionaries, and are the same in all tables.
            tasks: arguments of `divide`.
            combine: function of all rows of one part, in no particular order.
            part_count: number of parts.

        Yields:
            The result of each part that has rows, in no particular order.

        Raises:
            Exception: the first error of a function, as it was raised.
        """

    def run_concurrently(self, functions: Sequence[Callable[[], Any]]) -> list[Any]:
        """Call independent functions, possibly in parallel, and return their results in order.

        Each of them may use this runner. A runner that mostly waits for other processes, as for Spark, calls them on
        several threads; others call them one after the other.

        Raises:
            Exception: the first error of a function, as it was raised.
        """
        return [question() for question in functions]

    def task_counter(self) -> TaskCounter | None:
        """Return a counter of finished and of all tasks; None if this runner cannot count tasks."""
        return None


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def results_in_order(results: Iterable[tuple[int, Result]]) -> Iterator[Result]:
    """Yield the results of `Runner.run` in the order of the tasks, each as soon as all before it have ended.

    >>> list(results_in_order([(1, "b"), (0, "a"), (2, "c")]))
    ['a', 'b', 'c']

    Args:
        results: number of each task and its result, in any order.
    """
    waiting: dict[int, Result] = {}
    following = 0
    for number, result in results:
        waiting[number] = result
        while following in waiting:
            yield waiting.pop(following)
            following += 1


def divide_tasks(tasks: Sequence[Task], count: int) -> list[Sequence[Task]]:
    """Divide tasks, in order, into at most `count` non-empty groups of about the same length.

    >>> divide_tasks([1, 2, 3, 4, 5], 2)
    [[1, 2], [3, 4, 5]]
    >>> divide_tasks([1], 4)
    [[1]]
    >>> divide_tasks([], 4)
    []
    """
    groups = min(count, len(tasks))
    ends = [number * len(tasks) // max(groups, 1) for number in range(groups + 1)]
    return [tasks[start:end] for start, end in pairwise(ends)]


def group_small_tasks(tasks: Sequence[Task], sizes: Sequence[int], cores: int) -> list[Sequence[Task]]:
    """Divide tasks, in order, into groups, so that several small tasks run together as one.

    A group has at most 32 MiB and 64 tasks, or a single larger task. If there are enough tasks, there are at least four
    groups for each core.

    >>> group_small_tasks(["a", "b", "c", "d"], [5, 5, 20, 2], cores=1)
    [['a'], ['b'], ['c'], ['d']]
    >>> group_small_tasks(["a", "b", "c", "d"] * 2, [1, 1, 20, 2] * 2, cores=1)
    [['a', 'b'], ['c'], ['d', 'a', 'b'], ['c'], ['d']]

    Args:
        sizes: size of each task in bytes.
        cores: number of tasks that run at a time.
    """
    limit = min(_GROUP_BYTES, sum(sizes) // (_GROUPS_PER_CORE * cores))
    return list(group_by_size(tasks, sizes, limit, _GROUP_TASKS))
