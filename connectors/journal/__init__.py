"""The Spark source `journal`: JMQ's journal as rows, by the same machinery as RocketMQ's CommitLog.

What differs from `connectors.commitlog`, and nothing else
    source    the format's name            rules    what stands where, in plain Python (standard library only)
    rows      a message as a row           reading  the same, compiled, of `connectors.commitlog.kernel.journal`
    queues    topics by the queue files    decoder  columns that a journal has otherwise, or not at all
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession, *, pushdown: bool = False) -> None:
    """Make `format("journal")` known to a session; see `connectors.journal.source`."""
    from connectors.journal.source import register as register_source  # noqa: PLC0415 (pyspark, only where wanted)

    register_source(spark, pushdown=pushdown)
