"""`archive --follow`: the archive as a stream. Each micro-batch is an ordinary run, over what the stream offers it.

The lake's end offsets are the truth: a run begins where they are, and ends where the micro-batch does. So a micro-batch
that was committed before a crash, and is offered again, finds nothing to do; and a checkpoint that is lost or older
than the lake costs some empty runs, no rows. A new checkpoint begins at the lake's offsets.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from connectors.archive.run import Config, Result, run_archive
from connectors.archive.work import find_work
from connectors.commitlog.errors import EmptyStoreError
from connectors.commitlog.stores import find_stores
from connectors.commitlog.stream_ranges import to_snapshot
from connectors.lake.archive_log import read_last_commit
from connectors.lake.paths import LakePaths
from connectors.s3.spark import spark_uri

_POLL_SECONDS = 1


class _StopAskedError(Exception):
    """Ends the query before a micro-batch has done anything: it is offered again next time."""


class Follower:
    """One stream of archive runs.

    Args:
        spark: a session with Delta and the source `commitlog`.
        config: what to archive, and where to.
        told: is given the result of each run that took something.
    """

    def __init__(self, spark: SparkSession, config: Config, told: Callable[[Result], None]) -> None:
        self._spark, self._config, self._told = spark, config, told
        self._stop = threading.Event()
        self._running = threading.Lock()
        self._failure: BaseException | None = None

    def follow(self, interval: datetime.timedelta | None, max_bytes: int) -> None:
        """Archive until it is told to stop, or all that is there.

        Args:
            interval: how often to look for more; None to end with what is there now.
            max_bytes: log bytes that one run may take.

        Raises:
            StreamingQueryException: for an error of the source; what `run_archive` raises is raised as it is.
        """
        query = self._start(interval, max_bytes)
        with self._signals():
            try:
                while not query.awaitTermination(_POLL_SECONDS):
                    if self._stop.is_set():
                        with self._running:  # the micro-batch that is under way is finished
                            pass
                        query.stop()
            except StreamingQueryException:
                if self._failure is not None:
                    raise self._failure from None
                if not self._stop.is_set():
                    raise

    def _start(self, interval: datetime.timedelta | None, max_bytes: int) -> StreamingQuery:
        config = self._config
        reader = self._spark.readStream.format("commitlog").option("content", "ranges")
        # What is gone is the archive's to tell: it writes gaps down, or fails, by its own options.
        reader = reader.option("failOnDataLoss", "false").option("maxBytesPerTrigger", str(max_bytes))
        if config.broker is not None:
            reader = reader.option("broker", config.broker)
        reader = reader.option("startingOffset", json.dumps(_lake_offsets(config)))
        writer = reader.load(config.store).writeStream.foreachBatch(self._take)
        writer = writer.option("checkpointLocation", checkpoint_folder(config))
        if interval is None:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{interval.total_seconds()} seconds").start()

    def _take(self, batch: DataFrame, _number: int) -> None:
        with self._running:
            if self._stop.is_set():
                raise _StopAskedError
            try:
                config = self._config
                work = find_work(config.store, config.broker, LakePaths(config.lake), until=to_snapshot(batch))
                if not work.is_nothing:
                    self._told(run_archive(self._spark, config, work))
            except BaseException as error:
                self._failure = error  # with its type: Spark would make text of it
                raise

    @contextmanager
    def _signals(self) -> Iterator[None]:
        stopping = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, lambda *_: self._stop.set()) for number in stopping}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def checkpoint_folder(config: Config) -> str:
    """Where the stream over a path keeps how far it is: in the lake, one for each path."""
    path = config.store if "://" in config.store else str(Path(config.store).absolute())
    name = hashlib.blake2b(f"{path}\n{config.broker or ''}".encode(), digest_size=8).hexdigest()
    return spark_uri(f"{LakePaths(config.lake).streams}/{name}")


def _lake_offsets(config: Config) -> dict[str, int]:
    """How far the lake is in the stores that are there, for a stream without a checkpoint."""
    last = read_last_commit(LakePaths(config.lake).messages)
    if last is None:
        return {}
    try:
        brokers = {store.broker for store in find_stores(config.store, config.broker)}
    except EmptyStoreError:
        return {}
    return {broker: progress.end for broker, progress in last.stores.items() if broker in brokers}
