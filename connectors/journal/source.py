"""The Spark data source `journal`: JMQ's journal as rows of `messages`.

    from connectors.journal import register
    register(spark)
    df = spark.read.format("journal").option("topics", "orders").load("/data/jmq/store")
    df.where("array_contains(keys, 'order-4711')").select("queue_offset", "tags", "properties")

Options, modes, filters, splits and streams are those of `connectors.commitlog.source`; a topic that is a small part of
the journal is read by its queue files. What the columns hold is told in `connectors.journal.rows`.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from connectors.commitlog.layouts import LayoutChoice
from connectors.commitlog.source import LogDataSource, Pushdown, register_source


class JournalDataSource(LogDataSource):
    """Reads JMQ's journal, and broker_lite's; see the module."""

    layout = LayoutChoice.JOURNAL

    @classmethod
    def name(cls) -> str:
        """The name for `format`."""
        return "journal"


class PushdownJournalDataSource(Pushdown, JournalDataSource):
    """`JournalDataSource`, taking Spark's predicates."""


def register(spark: SparkSession, *, pushdown: bool = False) -> None:
    """Make `format("journal")` known to a session.

    Args:
        spark: the session.
        pushdown: also let Spark push predicates; read the warning of `connectors.commitlog.source` first.
    """
    register_source(spark, PushdownJournalDataSource if pushdown else JournalDataSource, pushdown=pushdown)
