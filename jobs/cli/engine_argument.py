"""The option `--spark`, for jobs that query tables: in this process by default, or on Spark."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from typing import ClassVar

from commitlake.connectors.lake.sql import Engine
from commitlake.jobs.cli.command import JobError
from commitlake.jobs.cli.options import Options, option, shorthand, variable_of


@dataclass(frozen=True, kw_only=True)
class EngineArguments(Options):
    """The option `--spark`, which sets `engine`, and its older form `--engine NAME`.

    A command declares `spark` again, with the purpose of Spark in it.
    """

    spark: ClassVar = shorthand("run on Spark", engine=str(Engine.SPARK))
    engine: str = option(argparse.SUPPRESS, choices=[str(engine) for engine in Engine], default=str(Engine.DELTALAKE))

    @property
    def is_on_spark(self) -> bool:
        """True if Spark is to answer."""
        return self.engine == Engine.SPARK


def is_spark_given(arguments: EngineArguments) -> bool:
    """Return True if `--spark` is given. If the environment sets it, it may be meant for other commands."""
    return arguments.is_on_spark and not {variable_of("spark"), variable_of("engine")} & os.environ.keys()


def add_engine_argument(parser: argparse.ArgumentParser, spark_help: str) -> None:
    """Add `--spark`, which sets `engine`, and its older form `--engine NAME`.

    Args:
        spark_help: purpose of Spark in this job.
    """
    default = str(Engine.DELTALAKE)
    parser.add_argument(
        "--spark", dest="engine", action="store_const", const=str(Engine.SPARK), default=default, help=spark_help
    )
    engines = [str(engine) for engine in Engine]
    parser.add_argument("--engine", choices=engines, default=default, help=argparse.SUPPRESS)


def refuse_spark(arguments: argparse.Namespace, reason: str, hint: str = "") -> None:
    """Refuse `--spark`. If the environment sets it, it may be meant for other jobs, and this process is used instead.

    Args:
        arguments: parsed arguments of a job that chose Spark.
        reason: reason for the refusal.
        hint: a hint on what to do.

    Raises:
        JobError: if the option is given.
    """
    if not {variable_of("spark"), variable_of("engine")} & os.environ.keys():
        raise JobError(reason, hint)
    arguments.engine = str(Engine.DELTALAKE)
