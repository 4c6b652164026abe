"""Access to the Spark context of a session in this process: cores, job tags, progress, and YARN's JVM."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkException

from commitlake.connectors.runtime.runner import CounterGoneError, TaskCounter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXECUTION_ERRORS: tuple[type[Exception], ...] = (Py4JJavaError, PySparkException)
"""Exceptions for queries that fail while they run; the first one is raised if this process has its own JVM."""


class ClassicSession:
    """Cores, job tags and task progress of a session, through its Spark context."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session

    def cores(self) -> int:
        """Return the number of tasks that run at a time."""
        return self._session.sparkContext.defaultParallelism

    def add_tag(self, tag: str) -> None:
        """Add a tag to the jobs that this thread starts from now on."""
        self._session.sparkContext.addJobTag(tag)

    def cancel_jobs(self, tag: str) -> None:
        """Cancel the running jobs with a tag."""
        # Tags of a session, which Spark Connect has, can in classic Spark only be interrupted by their own thread.
        with suppress(PySparkException, Py4JError, OSError):  # the JVM may have exited
            self._session.sparkContext.cancelJobsWithTag(tag)

    def task_counter(self) -> TaskCounter:
        """Return a counter of the tasks of all stages from now on."""
        return _StageCounter(self._session).count


class _StageCounter:
    """Counter of finished and known tasks in all Spark stages since its creation."""

    def __init__(self, session: SparkSession) -> None:
        self._tracker = session.sparkContext.statusTracker()
        self._seen: dict[int, tuple[int, int]] = {}

    def count(self) -> tuple[int, int]:
        """Return the number of finished tasks, and the number of all tasks known so far."""
        try:
            return self._count_tasks()
        except (Py4JError, OSError) as error:
            raise CounterGoneError(str(error)) from None

    def _count_tasks(self) -> tuple[int, int]:
        active = set(self._tracker.getActiveStageIds())
        for stage in active:
            info = self._tracker.getStageInfo(stage)
            if info is not None:
                self._seen[stage] = (info.numCompletedTasks, info.numTasks)
        done = sum(done if stage in active else known for stage, (done, known) in self._seen.items())
        return done, sum(known for _, known in self._seen.values())


def connect_to_driver_jvm() -> Any:
    """Connect to the JVM of the application master on YARN that started this process, and return the connection."""
    SparkContext._ensure_initialized()  # noqa: SLF001 (no other way to ask)
    return SparkContext._jvm  # noqa: SLF001 (likewise)


def end_session(exit_code: int) -> None:
    """Stop the session; create one first if there was none and the job succeeded, because YARN requires it."""
    context = SparkContext._active_spark_context  # noqa: SLF001 (no other way to ask)
    if context is None and exit_code == 0:
        context = SparkContext(appName="commitlake")
    if context is not None:
        context.stop()
