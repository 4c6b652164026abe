"""The table `messages` as Spark reads it: executors count the messages, and this process adds up their counts."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from functools import partial, reduce

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.packs.location import PackLocation, pack_location
from commitlake.connectors.lake.spark_reader import rows_of_answer, select_at_version
from commitlake.connectors.lake.sql import Engine
from commitlake.connectors.spark.worker_check import choose_python
from commitlake.connectors.storage.uris import absolute_path_or_uri
from commitlake.connectors.worker_errors import forward_worker_errors, raise_worker_errors
from commitlake.pipelines.lag.messages_table import prepare_batches
from commitlake.pipelines.lag.queue_offset_spans import MessageCounter

_COUNTS = pa.schema([("counter", pa.int32()), ("counts", pa.binary())])


class SparkMessagesTable:
    """The table `messages` of a lake, read by a Spark session; implements `MessagesTable`. Executors need CommitLake.

    Args:
        lake: The lake. The table stays at the version that it has now.
        spark: The session.
    """

    engine = Engine.SPARK

    def __init__(self, lake: Lake, spark: SparkSession) -> None:
        choose_python(spark)
        self._spark, self._uri, self._version = spark, lake.uri("messages"), lake.table("messages").version()
        # Workers have other working folders.
        self._packs = pack_location(absolute_path_or_uri(lake.packs.root), lake.packs.s3)

    def query(self, sql: str) -> pa.Table:
        """Return the rows of a SELECT; see `MessagesTable.query`."""
        return rows_of_answer(self._select(sql))

    def feed_counters(self, broker: str, needed: Sequence[tuple[MessageCounter, Sequence[str]]]) -> None:
        """Feed counters the messages that they need, in one Spark job; see `MessagesTable.feed_counters`."""
        counts = []
        for number, (counter, statements) in enumerate(needed):
            count = partial(_count_batches, number, pickle.dumps(counter), broker, self._packs)
            frames = list(map(self._select, statements))
            if frames:
                counts.append(reduce(DataFrame.unionAll, frames).mapInArrow(count, "counter int, counts binary"))
        if not counts:
            return
        with raise_worker_errors():
            found = reduce(DataFrame.unionAll, counts).collect()
        for row in found:
            needed[row["counter"]][0].add_partial_counts(pickle.loads(row["counts"]))  # noqa: S301 (from our executors)

    def _select(self, sql: str) -> DataFrame:
        return select_at_version(self._spark, sql, "messages", self._uri, self._version)


def _count_batches(
    number: int, pickled_counter: bytes, broker: str, packs: PackLocation, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Count the messages of a partition, and yield the pickled counts, with the number of the counter."""
    with forward_worker_errors():
        counter: MessageCounter = pickle.loads(pickled_counter)  # noqa: S301 (from the driver)
        has_rows = False
        for prepared in prepare_batches(batches, counter.columns, packs):
            has_rows = has_rows or prepared.num_rows > 0
            counter.add_batch(broker, prepared)
        if has_rows:
            counts = pickle.dumps(counter.partial_counts())
            yield pa.RecordBatch.from_pydict({"counter": [number], "counts": [counts]}, schema=_COUNTS)
