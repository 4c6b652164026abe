"""The option `--spark`, for jobs that query tables: in this process by default, or on Spark."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from typing import ClassVar

from commitlake.connectors.lake.sql import Engine
from commitlake.jobs.cli.options import Options, environment_variable_of, option, shorthand_option


@dataclass(frozen=True, kw_only=True)
class EngineArguments(Options):
    """The option `--spark`, which sets `engine`, and its older form `--engine NAME`.

    A command declares `spark` again, with the purpose of Spark in it.
    """

    spark: ClassVar = shorthand_option("run on Spark", engine=str(Engine.SPARK))
    engine: str = option(argparse.SUPPRESS, choices=[str(engine) for engine in Engine], default=str(Engine.DELTALAKE))

    @property
    def is_on_spark(self) -> bool:
        """True if the query runs on Spark."""
        return self.engine == Engine.SPARK


def is_spark_option_given(arguments: EngineArguments) -> bool:
    """Return True if `--spark` is given on the command line, not only by the environment."""
    return (
        arguments.is_on_spark
        and not {environment_variable_of("spark"), environment_variable_of("engine")} & os.environ.keys()
    )
