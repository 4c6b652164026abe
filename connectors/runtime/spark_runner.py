"""Tasks on Spark: a partition for each, in whatever process of whichever machine Spark gives it to.

A run is divided into jobs of a few tasks, several at a time, so that results come while others are still computed:
Spark gives the rows of a job all at once. `toLocalIterator` gives them one by one, but runs no more than two tasks at
a time, whatever the cluster.

What needs more of a session than its SQL is in this package, and nowhere else: the code is to run over Spark Connect
later.
"""

from __future__ import annotations

import pickle
import secrets
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.util import inheritable_thread_target

from commitlake.connectors.runtime.memory import use_system_memory
from commitlake.connectors.runtime.pool import run_in_pool
from commitlake.connectors.runtime.runner import CounterGoneError, Result, Runner, Task, TaskCounter, divided
from commitlake.connectors.runtime.settled import settle
from commitlake.connectors.worker_errors import carry_errors, raise_worker_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NUMBER, _RESULT = "number", "result"
_SCHEMA = f"{_NUMBER} int, {_RESULT} binary"
_MAX_JOBS = 8  # at a time: each takes up a thread here
_MAX_JOBS_OF_RUN = 16  # each takes some 50 ms besides its tasks
_TASKS_PER_CORE = 2  # of all jobs at a time: one runs, and one is there when it is done


class SparkRunner(Runner):
    """Runs tasks on the workers of a session, which must find this package.

    Attributes:
        session: the session.
    """

    def __init__(self, session: SparkSession) -> None:
        self.session = session

    @property
    def cores(self) -> int:
        """How many tasks run at a time."""
        return self.session.sparkContext.defaultParallelism

    def run(
        self,
        function: Callable[[Task], Result],
        tasks: Sequence[Task],
        *,
        is_waiting: bool = False,  # noqa: ARG002 (a session has as many slots as it has)
    ) -> Iterator[tuple[int, Result]]:
        """Run a function over tasks, as `Runner.run` says; Spark tries a task again as often as it was told to."""
        if not tasks:
            return
        tag = f"commitlake-{secrets.token_hex(8)}"
        jobs = [
            # What the caller has set for the jobs of its thread, as a scheduler's pool, is to hold for these, too. Each
            # has a copy of its own, in which Spark notes what its thread is at.
            inheritable_thread_target(self.session)(partial(self._run_job, tag, function, job, tasks))
            for job in divide_into_jobs(len(tasks), self.cores)
        ]
        workers = min(_MAX_JOBS, len(jobs))
        with ThreadPoolExecutor(workers) as pool:
            for _, results in run_in_pool(pool, workers, _call, jobs, cancel=partial(self._cancel, tag)):
                yield from results

    def _run_job(
        self, tag: str, function: Callable[[Task], Result], job: Sequence[int], tasks: Sequence[Task]
    ) -> list[tuple[int, Result]]:
        self.session.sparkContext.addJobTag(tag)
        numbers = self.session.range(0, len(job), 1, numPartitions=len(job))
        work = partial(_run_in_worker, function, tuple(tasks[number] for number in job))
        with raise_worker_errors():
            rows = numbers.mapInArrow(work, _SCHEMA).collect()
        return [
            (job[row[_NUMBER]], pickle.loads(bytes(row[_RESULT])))  # noqa: S301 (our own workers made it)
            for row in rows
        ]

    def _cancel(self, tag: str) -> None:
        # A session's own tags, which Spark Connect has, can be interrupted in classic Spark by their own thread only.
        with suppress(PySparkException, Py4JError, OSError):  # the JVM may be what has ended
            self.session.sparkContext.cancelJobsWithTag(tag)

    def task_counter(self) -> TaskCounter:
        """Return what counts the tasks of all of the session's stages from now on."""
        return _Stages(self.session).count


def divide_into_jobs(tasks: int, cores: int) -> list[Sequence[int]]:
    """Divide the numbers of tasks into jobs of about the same length.

    Eight jobs have two tasks for each core, or more where a run would have more than 16 jobs.

    >>> [len(job) for job in divide_into_jobs(5, cores=2)]
    [1, 1, 1, 1, 1]
    >>> [len(job) for job in divide_into_jobs(100, cores=64)]
    [14, 14, 14, 15, 14, 14, 15]
    """
    job_tasks = max(-(-_TASKS_PER_CORE * cores // _MAX_JOBS), -(-tasks // _MAX_JOBS_OF_RUN))
    return divided(range(tasks), -(-tasks // job_tasks))


def _call(job: Callable[[], Result]) -> Result:
    return job()


class _Stages:
    """Tasks done and known of all stages since the first look."""

    def __init__(self, session: SparkSession) -> None:
        self._tracker = session.sparkContext.statusTracker()
        self._seen: dict[int, tuple[int, int]] = {}

    def count(self) -> tuple[int, int]:
        """Return how many tasks are done, and how many are known.

        Raises:
            CounterGoneError: where the JVM has ended.
        """
        try:
            return self._count()
        except (Py4JError, OSError) as error:
            raise CounterGoneError(str(error)) from None

    def _count(self) -> tuple[int, int]:
        active = set(self._tracker.getActiveStageIds())
        for stage in active:
            info = self._tracker.getStageInfo(stage)
            if info is not None:
                self._seen[stage] = (info.numCompletedTasks, info.numTasks)
        done = sum(done if stage in active else known for stage, (done, known) in self._seen.items())
        return done, sum(known for _, known in self._seen.values())


def _run_in_worker(
    function: Callable[[Task], Result], tasks: Sequence[Task], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    use_system_memory()
    schema = pa.schema([(_NUMBER, pa.int32()), (_RESULT, pa.binary())])
    for batch in batches:
        for number in batch.column(0).to_pylist():
            with carry_errors():
                data = pickle.dumps(function(tasks[number]), pickle.HIGHEST_PROTOCOL)
            yield pa.RecordBatch.from_pylist([{_NUMBER: number, _RESULT: data}], schema)
    settle()
