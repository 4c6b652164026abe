"""Packages that a command leaves out in a process of its own, where they would only cost time."""

from __future__ import annotations

from commitlake.connectors.runtime.blocked_imports import leave_out_linear_algebra, leave_out_pandas
from commitlake.jobs.cli.process import is_own_process


def spare_linear_algebra() -> None:
    """Let numba load without scipy's linear algebra if this process is a command's own."""
    if is_own_process():
        leave_out_linear_algebra()


def spare_pandas() -> None:
    """Let Arrow work without pandas if this process is a command's own; for commands without Spark."""
    if is_own_process():
        leave_out_pandas()
