"""Tasks on Spark: a partition for each, in whatever process of whichever machine Spark gives it to.

What needs more of a session than its SQL is in this package, and nowhere else: the code is to run over Spark Connect
later.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from py4j.protocol import Py4JError

from commitlake.connectors.runtime.memory import use_system_memory
from commitlake.connectors.runtime.runner import CounterGoneError, Result, Runner, Task, TaskCounter
from commitlake.connectors.runtime.settled import settle
from commitlake.connectors.worker_errors import carry_errors, raise_worker_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NUMBER, _RESULT = "number", "result"
_SCHEMA = f"{_NUMBER} int, {_RESULT} binary"


class SparkRunner(Runner):
    """Runs tasks on the workers of a session, which must find this package.

    The results of a run are in this process all at once, when the last task is done.

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
        numbers = self.session.range(0, len(tasks), 1, numPartitions=len(tasks))
        with raise_worker_errors():
            rows = numbers.mapInArrow(partial(_run_in_worker, function, tuple(tasks)), _SCHEMA).collect()
        for row in rows:
            yield row[_NUMBER], pickle.loads(bytes(row[_RESULT]))  # noqa: S301 (our own workers made it)

    def task_counter(self) -> TaskCounter:
        """Return what counts the tasks of all of the session's stages from now on."""
        return _Stages(self.session).count


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
