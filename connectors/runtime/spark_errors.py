"""Exceptions of Spark for queries that fail while they run."""

from __future__ import annotations

from pyspark.errors import PySparkException

EXECUTION_ERRORS: tuple[type[Exception], ...] = (PySparkException,)
"""Exceptions of a query; with a JVM of this process, also py4j's, which pyspark has not converted."""

try:
    from py4j.protocol import Py4JJavaError
except ImportError:  # a client of Spark Connect has no JVM
    pass
else:
    EXECUTION_ERRORS = (Py4JJavaError, PySparkException)
