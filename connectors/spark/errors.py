"""Exceptions of Spark for queries that fail while they run."""

from __future__ import annotations

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

EXECUTION_ERRORS: tuple[type[Exception], ...] = (Py4JJavaError, PySparkException)
"""Both classes are needed: the first one is raised if this process has its own JVM."""
