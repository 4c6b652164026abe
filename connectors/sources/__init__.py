"""Spark data sources over broker stores: a log as rows of `messages`, as a batch or as a stream, and its indexes.

commitlog     RocketMQ's CommitLog, and BoltMQ's      journal     JMQ's journal, by the same classes
consumequeue  the broker's own queues, batches only   indexfile     its IndexFiles, likewise
schema_choice the columns of a read
predicates    Spark's predicates as filters of a read
stream        the stream's side of Spark; stream_planner: what comes next, stream_ends, stream_offsets,
stream_shares, stream_start and stream_ranges: the parts of that; stream_checkpoint: what Spark has kept of offsets
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register_stores(spark: SparkSession, *, pushdown: bool = False) -> None:
    """Make the formats of a broker's stores known to a session; see `commitlake.register`."""
    from commitlake.connectors.sources import (  # noqa: PLC0415 (pyspark, only where wanted)
        commitlog,
        consumequeue,
        indexfile,
        journal,
    )

    if pushdown:
        spark.conf.set(commitlog.PUSHDOWN_SETTING, "true")
    for source in (
        commitlog.PushdownCommitLogDataSource if pushdown else commitlog.CommitLogDataSource,
        journal.PushdownJournalDataSource if pushdown else journal.JournalDataSource,
        consumequeue.PushdownConsumeQueueDataSource if pushdown else consumequeue.ConsumeQueueDataSource,
        indexfile.PushdownIndexFileDataSource if pushdown else indexfile.IndexFileDataSource,
    ):
        spark.dataSource.register(source)
