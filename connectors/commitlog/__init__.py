"""The Spark source `commitlog`: RocketMQ's CommitLog as rows.

stores    which stores a path names             plan      where the log ends, and its splits
files     bytes of segments                     walk      windows through the kernel
kernel/   compiled: records and columns         decoder   columns of a window
options   what a user can ask for               batches   a split as Arrow batches
filters   predicates that drop records early    source    the glue to Spark
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession, *, pushdown: bool = False) -> None:
    """Make `format("commitlog")` known to a session; see `connectors.commitlog.source`."""
    from connectors.commitlog.source import register as register_source  # noqa: PLC0415 (pyspark, only where wanted)

    register_source(spark, pushdown=pushdown)
