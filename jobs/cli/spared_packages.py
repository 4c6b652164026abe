"""Packages that a command leaves out in a process of its own, where they would only cost time."""

from __future__ import annotations

import argparse

from commitlake.connectors.runtime.blocked_imports import leave_out_pandas
from commitlake.jobs.cli.process import is_own_process


def spare_packages(arguments: argparse.Namespace) -> None:
    """Leave out what would only cost time, if this process is a command's own and does not use Spark.

    That is pandas. A job without an option for Spark sets the default `spark=False`.
    """
    if is_own_process() and _is_without_spark(arguments):
        leave_out_pandas()


def _is_without_spark(arguments: argparse.Namespace) -> bool:
    is_chosen = getattr(arguments, "local", False) or not getattr(arguments, "spark", True)
    return is_chosen or getattr(arguments, "engine", "spark") != "spark"
