"""Runners of tasks on this machine: in this thread, on several threads, or in several processes.

Threads are for tasks that spend their time in compiled code, Arrow, numpy and the system, which let other threads run:
processes would take longer to start than it takes to read a gigabyte. Processes are for tasks with much Python code.
"""

from __future__ import annotations

import multiprocessing
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from commitlake.connectors.runtime.blocked_imports import disable_pandas_import
from commitlake.connectors.runtime.fork_server import prepare_child_process, start_fork_server
from commitlake.connectors.runtime.pool import run_in_pool
from commitlake.connectors.runtime.runner import DividedRows, Result, Runner, Task, available_cores

if TYPE_CHECKING:
    import pyarrow as pa

_MAX_PROCESSES = 64


class LocalRunner(Runner):
    """Base class of runners whose tasks share temporary files on this machine."""

    def shuffle(
        self,
        divide: Callable[[Task], DividedRows],
        tasks: Sequence[Task],
        combine: Callable[[Sequence[pa.Table]], Result],
        part_count: int,
    ) -> Iterator[Result]:
        """Divide the rows of tasks into parts, and combine each part; the divided rows are in temporary files."""
        with tempfile.TemporaryDirectory(prefix="commitlake-") as folder:
            paths: list[Path] = []
            for _, written in self.run(partial(_write_divided_rows, divide, part_count, Path(folder)), tasks):
                paths += written
            for _, results in self.run(partial(_combine_rows, combine, paths), range(part_count if paths else 0)):
                yield from results


class ThreadRunner(LocalRunner):
    """Runner of tasks on threads of this process.

    Args:
        workers: number of threads; one per core by default. A single one is the caller's thread.
    """

    def __init__(self, workers: int | None = None) -> None:
        self._workers = workers

    @property
    def cores(self) -> int:
        """Number of tasks that run at a time."""
        return self._workers or available_cores()

    def run(
        self, function: Callable[[Task], Result], tasks: Sequence[Task], *, is_io_bound: bool = False
    ) -> Iterator[tuple[int, Result]]:
        """Run a function over tasks on threads; function, tasks and results need not be picklable."""
        workers = self._workers or available_cores() * (2 if is_io_bound else 1)
        count = min(len(tasks), workers)
        if count <= 1:
            yield from _run_sequentially(function, tasks)
            return
        with ThreadPoolExecutor(count) as pool:
            yield from run_in_pool(pool, count, function, tasks)


class ProcessRunner(LocalRunner):
    """Runner of tasks in processes of this machine, which exit with this one.

    Args:
        workers: number of processes; one per core by default. A single one is this process, and no other is started.
    """

    def __init__(self, workers: int | None = None) -> None:
        self._workers = workers

    @property
    def cores(self) -> int:
        """Number of tasks that run at a time."""
        return min(_MAX_PROCESSES, self._workers or available_cores())

    def run(
        self, function: Callable[[Task], Result], tasks: Sequence[Task], *, is_io_bound: bool = False
    ) -> Iterator[tuple[int, Result]]:
        """Run a function over tasks in processes, and yield the results as they arrive."""
        workers = self._workers or available_cores() * (2 if is_io_bound else 1)
        count = min(len(tasks), _MAX_PROCESSES, workers)
        if count <= 1:
            yield from _run_sequentially(function, tasks)
            return
        # Not by fork, which breaks Arrow's threads and a JVM's sockets in this process.
        start_fork_server(function)
        context = multiprocessing.get_context("forkserver")
        with ProcessPoolExecutor(count, mp_context=context, initializer=_initialize_worker) as pool:
            yield from run_in_pool(pool, count, function, tasks)


HERE: Runner = ThreadRunner(1)
"""Runner of tasks one after the other in the caller's thread."""


def _initialize_worker() -> None:
    disable_pandas_import()
    prepare_child_process()


def _run_sequentially(function: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[tuple[int, Result]]:
    for number, task in enumerate(tasks):
        yield number, function(task)


def _write_divided_rows(divide: Callable[[Task], DividedRows], part_count: int, folder: Path, task: Task) -> list[Path]:
    from commitlake.connectors.runtime.partition_files import write_partitions  # noqa: PLC0415 (Arrow, where it is used)

    return [write_partitions(rows, numbers, part_count, folder) for rows, numbers in divide(task) if rows.num_rows]


def _combine_rows(
    combine: Callable[[Sequence[pa.Table]], Result], paths: Sequence[Path], part_number: int
) -> list[Result]:
    """Return the combined result of one part of the rows; nothing if the part has no rows."""
    from commitlake.connectors.runtime.partition_files import read_partition  # noqa: PLC0415 (Arrow, where it is used)

    tables = [rows for rows in read_partition(paths, part_number) if rows.num_rows]
    return [combine(tables)] if tables else []
