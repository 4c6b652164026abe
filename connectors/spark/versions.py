"""Differences between the Spark versions that CommitLake supports: 4.1 and 4.2.

Spark 4.1, unlike 4.2, has no parameter `timezone` of `to_arrow_schema`, whose times are in UTC then; its streams
differ, too, see `limited_stream_reader`. Spark 4.0 does not work: it has no `DataSourceStreamArrowWriter` and no
predicates (`Filter`) for data sources. Delta's jars for each version are in `jars`. Other code does not ask for Spark's
version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.pandas import types
from pyspark.sql.types import StructType
from pyspark.version import __version__ as _VERSION

from commitlake.schemas.errors import CommitLakeError, ExitCode

TESTED = ("4.1", "4.2")
"""Versions of Spark that CommitLake works with."""


class SparkVersionError(CommitLakeError):
    """Error for a Spark version that is not supported, or that lacks what an option needs."""

    exit_code = ExitCode.USAGE


def spark_version() -> str:
    """Return the installed Spark's major and minor version, for example `4.2`.

    Raises:
        SparkVersionError: if CommitLake does not work with it.
    """
    version = ".".join(_VERSION.split(".")[:2])
    if version not in TESTED:
        raise SparkVersionError(
            f"Spark {_VERSION} is installed, expected {' or '.join(TESTED)}: "
            "pip install 'commitlake[spark]' installs one of these"
        )
    return version


HAS_READ_LIMITS = not _VERSION.startswith(("4.0.", "4.1."))
"""True if Spark can limit the size of a stream's micro-batches (4.2)."""


def to_arrow_schema(schema: StructType) -> pa.Schema:
    """Convert a Spark schema to an Arrow schema, with times in UTC."""
    if TYPE_CHECKING or HAS_READ_LIMITS:
        return types.to_arrow_schema(schema, timezone="UTC")
    return types.to_arrow_schema(schema)
