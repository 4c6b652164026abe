"""A function over many tasks: on threads of this process, or on Spark.

Threads do, as all that takes long is compiled code, numpy or the system's, and lets others run meanwhile; processes
would take longer to start than a gigabyte to read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from commitlake.connectors.runtime.running import cores, run_in_pool, run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Task = TypeVar("Task")
Result = TypeVar("Result")


def run_work(
    function: Callable[[Task], Result],
    tasks: Sequence[Task],
    *,
    spark: SparkSession | None = None,
    threads: int | None = None,
) -> Iterator[tuple[int, Result]]:
    """Each task's number and result, in the order in which they are done.

    Args:
        function: of a module's top level.
        tasks: its arguments.
        spark: the session whose workers do it; this process without one.
        threads: how many of this process; as many as there are cores where not given.
    """
    if spark is not None:
        yield from run_tasks(function, tasks, spark=spark)
        return
    count = min(len(tasks), cores() if threads is None else threads)
    if count <= 1:
        yield from run_tasks(function, tasks, processes=1)
        return
    with ThreadPoolExecutor(count) as pool:
        yield from run_in_pool(pool, function, tasks)
