"""Spark data source `journal`: JMQ's journal as rows of `messages`.

    from commitlake import register
    register(spark)
    df = spark.read.format("journal").option("topics", "orders").load("/data/jmq/store")
    df.where("array_contains(keys, 'order-4711')").select("queue_offset", "tags", "properties")

Options, modes, filters, splits and streams are those of `connectors.sources.commitlog`; a topic that is a small part of
the journal is read through its queue files. `connectors.formats.jmq.message_row` describes the columns.
"""

from __future__ import annotations

from commitlake.connectors.formats.registry import JOURNALS
from commitlake.connectors.sources.commitlog import LogDataSource, Pushdown


class JournalDataSource(LogDataSource):
    """Data source for JMQ's journal, and broker_lite's; see the module."""

    formats = JOURNALS

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "journal"


class PushdownJournalDataSource(Pushdown, JournalDataSource):
    """`JournalDataSource` with pushdown of Spark's predicates."""
