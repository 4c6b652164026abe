"""The options `--spark` and `--local`, which choose where a job's tasks run: on Spark or on this machine.

No job starts a JVM unless `--spark` is given. With `spark-submit.sh`, in a cluster, on Databricks, and in a process
that has a session, the jobs that work on whole stores (`archive`, `audit`, `verify`, `rebuild`) run on Spark by
default, and `--local` is for this machine. The programs that start jobs there say so: see `jobs.cli.main.main`.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from commitlake.connectors.runtime.local_runner import HERE, ProcessRunner, ThreadRunner
from commitlake.connectors.runtime.runner import Runner
from commitlake.jobs.arguments.stores import positive
from commitlake.jobs.cli.command import JobError
from commitlake.jobs.cli.main import is_on_spark
from commitlake.jobs.cli.options import OneOf, Options, environment_variable_of, flag, option

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from commitlake.connectors.storage.s3_options import S3Options


WHERE = OneOf()
_WORKER_OPTIONS = ("threads", "processes")


@dataclass(frozen=True, kw_only=True)
class SparkArguments(Options):
    """The options `--spark` and `--local` of a command whose tasks run in this process by default."""

    local: bool = flag("in this process, without Spark (the default)", one_of=WHERE)
    spark: bool = flag("on Spark's workers, which need the same folders", one_of=WHERE)

    @property
    def is_on_spark(self) -> bool:
        """True if the command's tasks run on Spark."""
        return self.spark


@dataclass(frozen=True, kw_only=True)
class WorkerArguments(SparkArguments):
    """The options `--spark` and `--local` of a command that works on whole stores, with all cores or on Spark."""

    local: bool = flag(
        "run on this machine's cores, without Spark (the default, except with spark-submit.sh, in a cluster and on "
        "Databricks)",
        one_of=WHERE,
    )
    spark: bool = flag("run on Spark", one_of=WHERE)

    @property
    def is_on_spark(self) -> bool:
        """True if the command's tasks run on Spark."""
        return self.spark or (not self.local and (is_on_spark() or _has_spark_session()))


def _has_spark_session() -> bool:
    """Return True if this process has a session of Spark already."""
    sql = sys.modules.get("pyspark.sql")
    return sql is not None and sql.SparkSession.getActiveSession() is not None


def _declare_workers_option() -> int | None:
    return option(
        "without Spark: number of workers (default: one per core)",
        *(f"--{name}" for name in _WORKER_OPTIONS),  # each job accepts both, so that users need not distinguish them
        parse=positive,
        metavar="N",
    )


@dataclass(frozen=True, kw_only=True)
class ThreadArguments(WorkerArguments):
    """Options `--spark` and `--local` of a command that runs its tasks in threads."""

    threads: int | None = _declare_workers_option()


@dataclass(frozen=True, kw_only=True)
class ProcessArguments(WorkerArguments):
    """Options `--spark` and `--local` of a command that runs its tasks in processes."""

    processes: int | None = _declare_workers_option()


def make_runner(arguments: SparkArguments, job: str, s3: S3Options | None = None) -> Runner:
    """Return the runner that runs a job's tasks in this process, in a pool or on Spark, as the options choose.

    Args:
        job: name of the job, for a new session.
        s3: the object store that Spark itself reads and writes, if any.

    Raises:
        JobError: if a number of workers is given, and the tasks run on Spark.
    """
    kind, workers = _worker_kind_and_count(arguments)
    if arguments.is_on_spark:
        refuse_workers_on_spark(arguments)
        from commitlake.connectors.spark.runner import SparkRunner

        return SparkRunner(get_spark_session(job, s3))
    if kind:
        return ThreadRunner(workers) if kind == "threads" else ProcessRunner(workers)
    return HERE


def _worker_kind_and_count(arguments: SparkArguments) -> tuple[str, int | None]:
    match arguments:
        case ThreadArguments(threads=workers):
            return "threads", workers
        case ProcessArguments(processes=workers):
            return "processes", workers
        case _:
            return "", None


def refuse_workers_on_spark(arguments: SparkArguments) -> None:
    """Raise an error if the user sets a number of workers although the tasks run on Spark.

    Raises:
        JobError: if one is.
    """
    kind, workers = _worker_kind_and_count(arguments)
    # A variable may be meant for other commands.
    is_meant = not {environment_variable_of(name) for name in _WORKER_OPTIONS} & os.environ.keys()
    if arguments.is_on_spark and workers is not None and is_meant:
        raise JobError(f"--{kind} has no effect on Spark", "add --local, or leave it out")


def get_spark_session(job: str, s3: S3Options | None = None) -> SparkSession:
    """Return the current Spark session, or a new one, with the formats of broker stores registered.

    Args:
        job: see `make_runner`.
        s3: see `make_runner`.

    Raises:
        JarsError: if jars are needed and missing.
        JavaError: if a JVM is needed and Java is missing.
        UnavailableError: if no server of Spark Connect answers, or no task runs on workers of other machines.
        UsageError: if `SPARK_REMOTE` is wrong, a package is missing here or there, or the workers have another version
            of CommitLake.
    """
    from commitlake.connectors.sources import register_stores
    from commitlake.connectors.spark.session import get_session

    spark = get_session(job, s3)
    register_stores(spark)
    return spark
