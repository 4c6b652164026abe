"""A function over many tasks: in this process, in several, or on Spark.

Function, tasks and results are values that can be pickled. Results come as they are done where the order is not asked
for; a task that fails ends the run with its error, wherever it ran.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from functools import partial
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import wait as wait_for
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from commitlake.connectors.worker_errors import carry_errors, raise_worker_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Task = TypeVar("Task")
Result = TypeVar("Result")

_NUMBER, _RESULT = "number", "result"
_SCHEMA = f"{_NUMBER} int, {_RESULT} binary"
_MOST_PROCESSES = 64


def run_tasks(
    function: Callable[[Task], Result],
    tasks: Sequence[Task],
    *,
    spark: SparkSession | None = None,
    processes: int | None = None,
) -> Iterator[tuple[int, Result]]:
    """Each task's number and result, in the order in which they are done.

    Args:
        function: of a module's top level, or a `functools.partial` of one.
        tasks: its arguments.
        spark: the session whose workers do it; this machine without one.
        processes: how many, where this machine does it; as many as there are cores where not given. One means this
            process, and no other is started.
    """
    if spark is not None:
        yield from _run_on_spark(function, tasks, spark)
        return
    count = min(len(tasks), _MOST_PROCESSES, cores() if processes is None else processes)
    if count <= 1:
        for number, task in enumerate(tasks):
            yield number, function(task)
        return
    # Not by fork: what this process has running (Arrow's threads, a JVM's sockets) does not survive it.
    _start_fork_server()
    context = multiprocessing.get_context("forkserver")
    with ProcessPoolExecutor(count, mp_context=context, initializer=_end_with_parent) as pool:
        yield from run_in_pool(pool, function, tasks)


def _start_fork_server() -> None:
    """Start it with SIGINT blocked, and so its processes: a terminal's Ctrl-C is for this process alone to answer."""
    resource_tracker.ensure_running()  # which unblocks signals that it finds blocked
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_with_parent() -> None:
    """Let a process of a pool end when the one that has started the pool is killed; it would wait for tasks forever."""
    parent = multiprocessing.parent_process()
    assert parent is not None  # it is called in processes that multiprocessing has started
    threading.Thread(target=_wait_and_end, args=(parent.sentinel,), daemon=True).start()


def _wait_and_end(sentinel: int) -> None:
    wait_for([sentinel])
    os._exit(1)


def run_in_pool(
    pool: Executor, function: Callable[[Task], Result], tasks: Sequence[Task]
) -> Iterator[tuple[int, Result]]:
    """Each task's number and result, as they are done; the pool is of no use behind that."""
    numbers = {pool.submit(function, task): number for number, task in enumerate(tasks)}
    try:
        for done in as_completed(numbers):
            yield numbers[done], done.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _run_on_spark(
    function: Callable[[Task], Result], tasks: Sequence[Task], spark: SparkSession
) -> Iterator[tuple[int, Result]]:
    if not tasks:
        return
    numbers = spark.range(0, len(tasks), 1, numPartitions=len(tasks))
    with raise_worker_errors():
        rows = numbers.mapInArrow(partial(_run_in_worker, function, tuple(tasks)), _SCHEMA).collect()
    for row in rows:
        yield row[_NUMBER], pickle.loads(bytes(row[_RESULT]))  # noqa: S301 (our own workers made it)


def _run_in_worker(
    function: Callable[[Task], Result], tasks: Sequence[Task], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    schema = pa.schema([(_NUMBER, pa.int32()), (_RESULT, pa.binary())])
    for batch in batches:
        for number in batch.column(0).to_pylist():
            with carry_errors():
                data = pickle.dumps(function(tasks[number]), pickle.HIGHEST_PROTOCOL)
            yield pa.RecordBatch.from_pylist([{_NUMBER: number, _RESULT: data}], schema)
