"""Spark data sources for broker stores: logs as rows of `messages`, as a batch or as a stream, and their indexes.

commitlog     RocketMQ's and BoltMQ's CommitLog  journal    JMQ's journal, with the same classes
consumequeue  the broker's queues, batches only  indexfile  its IndexFiles, batches only
schema_choice  the columns of a read
predicates     Spark's predicates as filters of a read
stream         Spark's interface of a stream; stream_planner: the next micro-batch; stream_log_ends, stream_offsets,
               stream_size_shares, stream_start_positions, stream_ranges: its parts; stream_checkpoint: Spark's offsets
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register_stores(spark: SparkSession, *, pushdown: bool = False) -> None:
    """Register the data sources for broker stores, such as `commitlog`, with a session."""
    from commitlake.connectors.sources import commitlog, consumequeue, indexfile  # noqa: PLC0415 (loads pyspark)

    if pushdown:
        warnings.warn(
            "with pushdown, Spark loses rows without an error where a DataFrame of these sources is used by more than "
            "one query, or twice in one: call load() again for each, see docs/how-to/spark.md, Filters",
            stacklevel=3,
        )
        spark.conf.set(commitlog.PUSHDOWN_SETTING, "true")
    for source in (
        commitlog.PushdownCommitLogDataSource if pushdown else commitlog.CommitLogDataSource,
        commitlog.PushdownJournalDataSource if pushdown else commitlog.JournalDataSource,
        consumequeue.PushdownConsumeQueueDataSource if pushdown else consumequeue.ConsumeQueueDataSource,
        indexfile.PushdownIndexFileDataSource if pushdown else indexfile.IndexFileDataSource,
    ):
        spark.dataSource.register(source)
