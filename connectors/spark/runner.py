"""Runner of tasks on Spark, which turns each task into a partition that any worker can run.

A run is divided into jobs of a few tasks, several at a time, so that results arrive while others are still computed:
Spark returns the rows of a job all at once. `toLocalIterator` would return them one by one, but runs at most two tasks
at a time. An exchange is a single job, whose results are therefore kept on the workers' disks until they are returned.

Code that needs more of a session than its SQL is only in this package: `classic_session` for a JVM of this machine, and
`connect_session` for Spark Connect.
"""

from __future__ import annotations

import io
import pickle
import secrets
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.util import inheritable_thread_target

from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.runtime.memory import freeze_loaded_objects, use_system_allocator
from commitlake.connectors.runtime.partition_files import divide_rows, pack_rows, unpack_rows
from commitlake.connectors.runtime.pool import run_in_pool
from commitlake.connectors.runtime.runner import (
    DividedRows,
    Result,
    Runner,
    SharedValue,
    Task,
    TaskCounter,
    divide_tasks,
)
from commitlake.connectors.spark.connect_session import ConnectSession, is_connect
from commitlake.connectors.worker_errors import forward_worker_errors, raise_worker_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from commitlake.connectors.spark.classic_session import ClassicSession

_NUMBER, _RESULT = "number", "result"
_SCHEMA = f"{_NUMBER} int, {_RESULT} binary"
_TASKS = "tasks"
_GROUPS = pa.schema([(_NUMBER, pa.int32()), (_TASKS, pa.binary())])
_PART, _ROWS = "part", "rows"
_PARTS = pa.schema([(_PART, pa.int32()), (_ROWS, pa.binary())])
_MAX_JOBS = 8  # concurrent jobs; each uses a thread of this process
_MAX_JOBS_OF_RUN = 16  # a job costs about 50 ms in addition to its tasks
_MAX_JOB_TASKS = 512  # every worker receives all tasks of a job
_MAX_LOADED = 4  # shared values that a worker keeps
_TASKS_PER_CORE = 2  # total of all concurrent jobs: one runs, and one waits
_RETURNED_PARTS = 64  # an exchange's results are returned in so many jobs, one after the other


class SparkRunner(Runner):
    """Runner of tasks on the workers of a session, where this package must be installed.

    Attributes:
        session: the session.
    """

    def __init__(self, session: SparkSession) -> None:
        self.session = session
        self._control = _classic_or_connect_session(session)

    @property
    def cores(self) -> int:
        """Number of tasks that run at a time."""
        return self._control.cores()

    def run(
        self,
        function: Callable[[Task], Result],
        tasks: Sequence[Task],
        *,
        is_io_bound: bool = False,  # noqa: ARG002 (the number of slots is fixed)
    ) -> Iterator[tuple[int, Result]]:
        """Run a function over tasks on Spark's workers, and yield the results; Spark retries tasks as configured."""
        if not tasks:
            return
        tag = f"commitlake-{secrets.token_hex(8)}"
        jobs = [
            # Properties that the caller has set for its thread's jobs, such as a scheduler pool, must apply to these,
            # too. Each job has its own copy of them, because Spark writes to it.
            inheritable_thread_target(self.session)(partial(self._run_job, tag, function, job, tasks))
            for job in divide_into_jobs(len(tasks), self.cores)
        ]
        workers = min(_MAX_JOBS, len(jobs))
        with ThreadPoolExecutor(workers) as pool:
            for _, results in run_in_pool(
                pool, workers, _call_pickled, jobs, cancel=partial(self._control.cancel_jobs, tag)
            ):
                yield from results

    def _run_job(
        self, tag: str, function: Callable[[Task], Result], task_numbers: Sequence[int], tasks: Sequence[Task]
    ) -> list[tuple[int, Result]]:
        self._control.add_tag(tag)
        numbers = self.session.range(0, len(task_numbers), 1, numPartitions=len(task_numbers))
        # Each worker loads the function of the job, but only its own task.
        work = partial(_run_in_worker, function, *pickle_tasks([tasks[number] for number in task_numbers]))
        with raise_worker_errors():
            rows = numbers.mapInArrow(work, _SCHEMA).collect()
        return [
            (task_numbers[row[_NUMBER]], pickle.loads(bytes(row[_RESULT])))  # noqa: S301 (data of our own workers)
            for row in rows
        ]

    def shuffle(
        self,
        divide: Callable[[Task], DividedRows],
        tasks: Sequence[Task],
        combine: Callable[[Sequence[pa.Table]], Result],
        part_count: int,
    ) -> Iterator[Result]:
        """Divide the rows of tasks into parts, and combine each part; Spark's shuffle moves the divided rows."""
        if not tasks:
            return
        tag = f"commitlake-{secrets.token_hex(8)}"
        results = self._result_table(divide, tasks, combine, part_count).persist(StorageLevel.DISK_ONLY)
        compute = inheritable_thread_target(self.session)(partial(self._call_tagged, tag, results.count))
        try:
            with ThreadPoolExecutor(1) as pool, raise_worker_errors():
                # Computed under a tag, so that it can be cancelled; the iterator below only reads the stored results.
                list(run_in_pool(pool, 1, _call_pickled, [compute], cancel=partial(self._control.cancel_jobs, tag)))
                for row in results.coalesce(min(part_count, _RETURNED_PARTS)).toLocalIterator():
                    yield pickle.loads(bytes(row[_RESULT]))  # noqa: S301 (data of our own workers)
        finally:
            results.unpersist()

    def _result_table(
        self,
        divide: Callable[[Task], DividedRows],
        tasks: Sequence[Task],
        combine: Callable[[Sequence[pa.Table]], Result],
        part_count: int,
    ) -> DataFrame:
        """Return a DataFrame with one row for each part: the result of combining the part's rows."""
        groups = divide_tasks(tasks, max(_MAX_JOB_TASKS, _TASKS_PER_CORE * self.cores))
        # As rows, because every worker would receive all tasks as arguments of the function.
        pickled = [
            {_NUMBER: number, _TASKS: pickle.dumps(list(group), pickle.HIGHEST_PROTOCOL)}
            for number, group in enumerate(groups)
        ]
        table = self.session.createDataFrame(pa.Table.from_pylist(pickled, _GROUPS))
        one_each = table.repartitionById(len(groups), _NUMBER)
        rows = one_each.mapInArrow(partial(_divide_in_worker, divide, part_count), f"{_PART} int, {_ROWS} binary")
        in_parts = rows.repartitionById(part_count, _PART)
        return in_parts.mapInArrow(partial(_combine_in_worker, combine), f"{_RESULT} binary")

    def run_concurrently(self, functions: Sequence[Callable[[], Any]]) -> list[Any]:
        """Call independent functions, each on a thread of its own, and return their results in order.

        A job of little data spends most of its time on planning and scheduling in the driver, on one core.
        """
        if len(functions) < 2:
            return super().run_concurrently(functions)
        tag = f"commitlake-{secrets.token_hex(8)}"
        calls = [
            inheritable_thread_target(self.session)(partial(self._call_tagged, tag, question)) for question in functions
        ]
        with ThreadPoolExecutor(len(calls)) as pool:
            results = dict(
                run_in_pool(pool, len(calls), _call_pickled, calls, cancel=partial(self._control.cancel_jobs, tag))
            )
        return [results[number] for number in range(len(calls))]

    def _call_tagged(self, tag: str, function: Callable[[], Any]) -> Any:
        self._control.add_tag(tag)
        return function()

    def task_counter(self) -> TaskCounter:
        """Return a counter of the tasks of all stages of the session from now on."""
        return self._control.task_counter()


def _classic_or_connect_session(session: SparkSession) -> ClassicSession | ConnectSession:
    if is_connect(session):
        return ConnectSession(session)
    from commitlake.connectors.spark.classic_session import ClassicSession  # noqa: PLC0415 (py4j, only with a JVM)

    return ClassicSession(session)


def divide_into_jobs(task_count: int, cores: int) -> list[Sequence[int]]:
    """Divide tasks, given by number, among Spark jobs with about the same number of tasks each.

    Eight jobs together have two tasks per core, or more if a run would otherwise have more than 16 jobs. A job has at
    most 512 tasks.

    >>> [len(job) for job in divide_into_jobs(5, cores=2)]
    [1, 1, 1, 1, 1]
    >>> [len(job) for job in divide_into_jobs(100, cores=64)]
    [14, 14, 14, 15, 14, 14, 15]
    >>> len(divide_into_jobs(320_000, cores=64))
    625
    """
    job_tasks = max(-(-_TASKS_PER_CORE * cores // _MAX_JOBS), -(-task_count // _MAX_JOBS_OF_RUN))
    job_tasks = min(job_tasks, _MAX_JOB_TASKS)
    return divide_tasks(range(task_count), -(-task_count // job_tasks))


def pickle_tasks(tasks: Sequence[Any]) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
    """Return the pickled tasks, and the pickled values that tasks share, each value once."""
    places: dict[int, int] = {}
    shared: list[SharedValue[Any]] = []

    def shared_index(value: object) -> int | None:
        if not isinstance(value, SharedValue):
            return None
        if id(value) not in places:
            places[id(value)] = len(shared)
            shared.append(value)
        return places[id(value)]

    pickled = tuple(_pickle_task(task, shared_index) for task in tasks)
    return pickled, tuple(pickle.dumps(each.value, pickle.HIGHEST_PROTOCOL) for each in shared)


def _pickle_task(task: object, shared_index: Callable[[object], int | None]) -> bytes:
    data = io.BytesIO()
    pickler = pickle.Pickler(data, pickle.HIGHEST_PROTOCOL)
    pickler.persistent_id = shared_index  # type: ignore[method-assign]
    pickler.dump(task)
    return data.getvalue()


def load_task(task: bytes, shared_values: Sequence[bytes]) -> Any:
    """Load a task from `pickle_tasks`; a process loads each shared value only once."""
    unpickler = pickle.Unpickler(io.BytesIO(task))  # noqa: S301 (data of our own driver)
    unpickler.persistent_load = lambda place: _load_shared_value(shared_values[place])  # type: ignore[method-assign]
    return unpickler.load()


@lru_cache(maxsize=_MAX_LOADED)
def _load_shared_value(data: bytes) -> SharedValue[Any]:
    return SharedValue(pickle.loads(data))  # noqa: S301 (data of our own driver)


def _call_pickled(function: Callable[[], Result]) -> Result:
    return function()


def _run_in_worker(
    function: Callable[[Task], Result],
    tasks: Sequence[bytes],
    shared_values: Sequence[bytes],
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    use_system_allocator()
    schema = pa.schema([(_NUMBER, pa.int32()), (_RESULT, pa.binary())])
    for batch in batches:
        for number in batch.column(0).to_pylist():
            with forward_worker_errors():
                task: Task = load_task(tasks[number], shared_values)
                data = pickle.dumps(function(task), pickle.HIGHEST_PROTOCOL)
            yield pa.RecordBatch.from_pylist([{_NUMBER: number, _RESULT: data}], schema)
    freeze_loaded_objects()


def _divide_in_worker(
    divide: Callable[[Task], DividedRows], part_count: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a group of tasks, divided into parts, in a worker."""
    use_system_allocator()
    for batch in batches:
        for group in batch.column(_TASKS).to_pylist():
            with forward_worker_errors():
                tasks: list[Task] = pickle.loads(group)  # noqa: S301 (data of our own driver)
                for task in tasks:
                    for rows, numbers in divide(task):
                        yield _serialize_divided_rows(rows, numbers, part_count)
    freeze_loaded_objects()


def _serialize_divided_rows(rows: pa.Table, part_numbers: Array, part_count: int) -> pa.RecordBatch:
    divided_rows = enumerate(divide_rows(rows, part_numbers, part_count))
    packed = [{_PART: part, _ROWS: pack_rows(batch)} for part, batch in divided_rows if batch is not None]
    return pa.RecordBatch.from_pylist(packed, _PARTS)


def _combine_in_worker(
    combine: Callable[[Sequence[pa.Table]], Result], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the result of the part whose rows this worker has received, if there are any."""
    use_system_allocator()
    with forward_worker_errors():
        tables = [unpack_rows(rows) for batch in batches for rows in batch.column(_ROWS)]
        if tables:
            data = pickle.dumps(combine(tables), pickle.HIGHEST_PROTOCOL)
            yield pa.RecordBatch.from_pylist([{_RESULT: data}], pa.schema([(_RESULT, pa.binary())]))
    freeze_loaded_objects()
