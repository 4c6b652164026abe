"""The option `--spark`, for jobs that query tables: in this process by default, or on Spark."""

from __future__ import annotations

import argparse

from commitlake.connectors.lake.sql import Engine


def add_engine_argument(parser: argparse.ArgumentParser, spark_help: str) -> None:
    """Add `--spark`, which sets `engine`, and its older form `--engine NAME`.

    Args:
        parser: parser of the job.
        spark_help: purpose of Spark in this job.
    """
    default = str(Engine.DELTALAKE)
    parser.add_argument(
        "--spark", dest="engine", action="store_const", const=str(Engine.SPARK), default=default, help=spark_help
    )
    engines = [str(engine) for engine in Engine]
    parser.add_argument("--engine", choices=engines, default=default, help=argparse.SUPPRESS)
