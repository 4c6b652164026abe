"""The Spark data source `hbase` where happybase is not installed: each use is an error that names the extra."""

from __future__ import annotations

from typing import NoReturn

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from commitlake.connectors.worker_errors import forward_worker_errors
from commitlake.schemas.errors import UsageError


class MissingHBaseDataSource(DataSource):
    """Substitute for `connectors.hbase.source`, whose errors say which package to install."""

    @classmethod
    def name(cls) -> str:
        """Return the source's name, which Spark's `format` takes."""
        return "hbase"

    @forward_worker_errors()
    def schema(self) -> StructType:
        """Raise the error that names the missing package."""
        _raise_missing_package()

    @forward_worker_errors()
    def writer(self, schema: StructType, overwrite: bool) -> NoReturn:  # noqa: ARG002 (Spark's)
        """Raise the error that names the missing package."""
        _raise_missing_package()

    @forward_worker_errors()
    def streamWriter(self, schema: StructType, overwrite: bool) -> NoReturn:  # noqa: ARG002, N802 (Spark's)
        """Raise the error that names the missing package."""
        _raise_missing_package()


def _raise_missing_package() -> NoReturn:
    raise UsageError(
        "format hbase needs the package happybase, which is not installed: pip install 'commitlake[hbase]' installs it"
    )
