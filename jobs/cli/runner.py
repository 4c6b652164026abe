"""The options `--local` and `--spark`, which choose where a job's tasks run: on this machine or on Spark."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from commitlake.connectors.runtime.local_runner import HERE, ProcessRunner, ThreadRunner
from commitlake.connectors.runtime.runner import Runner
from commitlake.jobs.cli.combinations import check_has_effect
from commitlake.jobs.cli.store_arguments import positive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from commitlake.connectors.storage.options import S3Options

_LOCAL_RUNNERS = {"threads": ThreadRunner, "processes": ProcessRunner}


def add_local_arguments(parser: argparse.ArgumentParser, workers: str = "threads") -> None:
    """Add `--local`, and an option for the number of workers.

    Args:
        workers: kind of the workers: threads or processes.
    """
    parser.add_argument("--local", action="store_true", help="run on this machine's cores, without Spark")
    number_help = "with --local: number of workers (default: one per core)"
    names = (f"--{name}" for name in _LOCAL_RUNNERS)  # each job accepts both, so that users need not distinguish them
    parser.add_argument(*names, dest=workers, type=positive, metavar="N", help=number_help)


def add_spark_argument(parser: argparse.ArgumentParser) -> None:
    """Add `--spark` to a job that runs on this machine by default, and `--local`, which states the default."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--local", action="store_true", help="in this process, without Spark (the default)")
    where.add_argument("--spark", action="store_true", help="on Spark's workers, which need the same folders")


def check_local_arguments(arguments: argparse.Namespace) -> None:
    """Refuse a number of workers without `--local`.

    Raises:
        JobError: for such an option.
    """
    check_has_effect(arguments, [name for name in _LOCAL_RUNNERS if hasattr(arguments, name)], "local")


def make_runner(arguments: argparse.Namespace, job: str, s3: S3Options | None = None) -> Runner:
    """Return the runner of a job's tasks.

    Args:
        arguments: parsed arguments of a parser with `add_local_arguments` or `add_spark_argument`.
        job: name of the job, for a new session.
        s3: the object store that Spark itself reads and writes, if any.
    """
    if not getattr(arguments, "spark", True):
        return HERE
    if arguments.local:
        (name,) = (name for name in _LOCAL_RUNNERS if hasattr(arguments, name))
        return _LOCAL_RUNNERS[name](getattr(arguments, name))
    from commitlake.connectors.runtime.spark_runner import SparkRunner

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
    from commitlake.connectors.runtime.spark_session import get_session
    from commitlake.connectors.sources import register_stores

    spark = get_session(job, s3)
    register_stores(spark)
    return spark
