"""The options `--local` and `--spark`, which choose where a job's tasks run: on this machine or on Spark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from commitlake.connectors.runtime.local_runner import HERE, ProcessRunner, ThreadRunner
from commitlake.connectors.runtime.runner import Runner
from commitlake.jobs.cli.options import OneOf, Options, flag, only_with, option
from commitlake.jobs.cli.store_arguments import positive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from commitlake.connectors.storage.s3_options import S3Options


def _workers(kind: str) -> int | None:
    return option(
        "with --local: number of workers (default: one per core)",
        "--threads",
        "--processes",  # each job accepts both, so that users need not distinguish them
        parse=positive,
        metavar="N",
        rules=only_with("local", this=f"--{kind}"),
    )


@dataclass(frozen=True, kw_only=True)
class LocalArguments(Options):
    """The option `--local` of a command that otherwise runs on Spark."""

    local: bool = flag("run on this machine's cores, without Spark")


@dataclass(frozen=True, kw_only=True)
class ThreadArguments(LocalArguments):
    """`--local` of a command whose workers are threads."""

    threads: int | None = _workers("threads")


@dataclass(frozen=True, kw_only=True)
class ProcessArguments(LocalArguments):
    """`--local` of a command whose workers are processes."""

    processes: int | None = _workers("processes")


_WHERE = OneOf()


@dataclass(frozen=True, kw_only=True)
class SparkArguments(Options):
    """The option `--spark` of a command that otherwise runs here, and `--local`, which states the default."""

    local: bool = flag("in this process, without Spark (the default)", one_of=_WHERE)
    spark: bool = flag("on Spark's workers, which need the same folders", one_of=_WHERE)


def make_runner(
    arguments: ThreadArguments | ProcessArguments | SparkArguments, job: str, s3: S3Options | None = None
) -> Runner:
    """Return the runner of a job's tasks.

    Args:
        job: name of the job, for a new session.
        s3: the object store that Spark itself reads and writes, if any.
    """
    match arguments:
        case SparkArguments(spark=False):
            return HERE
        case ThreadArguments(local=True, threads=threads):
            return ThreadRunner(threads)
        case ProcessArguments(local=True, processes=processes):
            return ProcessRunner(processes)
    from commitlake.connectors.spark.runner import SparkRunner

    return SparkRunner(open_session(job, s3))


def open_session(job: str, s3: S3Options | None = None) -> SparkSession:
    """Return the current Spark session, or a new one, with the formats of broker stores registered.

    Args:
        job: see `make_runner`.
        s3: see `make_runner`.

    Raises:
        ConnectError: if `SPARK_REMOTE` is wrong, or a package is missing.
        ConnectUnavailableError: if no server of Spark Connect answers.
        JarsError: if jars are needed and missing.
        JavaError: if a JVM is needed and Java is missing.
        NoWorkersError: if no task runs on workers of other machines.
        WorkersLackError: if they lack packages, or have another version of CommitLake.
    """
    from commitlake.connectors.sources import register_stores
    from commitlake.connectors.spark.session import get_session

    spark = get_session(job, s3)
    register_stores(spark)
    return spark
