"""The JVM and the session of an application master of YARN, in which the driver of a job runs."""

from __future__ import annotations

from typing import Any

from pyspark import SparkContext


def join_jvm() -> Any:
    """Connect to the JVM of the application master that has started this process, and return it."""
    SparkContext._ensure_initialized()  # noqa: SLF001 (no other way to ask)
    return SparkContext._jvm  # noqa: SLF001 (likewise)


def end_session(exit_code: int) -> None:
    """Stop the session; for YARN, an application that succeeds must have had one."""
    context = SparkContext._active_spark_context  # noqa: SLF001 (no other way to ask)
    if context is None and exit_code == 0:
        context = SparkContext(appName="commitlake")
    if context is not None:
        context.stop()
