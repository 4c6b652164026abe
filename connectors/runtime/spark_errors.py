"""How Spark tells that a query has failed while it ran."""

from __future__ import annotations

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

EXECUTION_ERRORS: tuple[type[Exception], ...] = (Py4JJavaError, PySparkException)
"""The first where this process has a JVM of its own beside it."""
