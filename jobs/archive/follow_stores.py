"""`archive --follow`: the archive as a stream, in which each micro-batch is an ordinary archive run.

A run begins at the lake's end offsets, not at the checkpoint's, and ends at the end of the micro-batch. So if Spark
repeats a micro-batch that was committed before a crash, the run has nothing to do. If a checkpoint is lost or older
than the lake, some runs are empty, but no rows are lost. A new checkpoint begins at the lake's offsets.

Other runs over the same stores, such as a nightly one, may run at the same time. Transient errors, such as a busy
object store or a killed planning process of Spark, are retried after a pause.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from commitlake.connectors.formats.registry import ANY_FORMAT
from commitlake.connectors.lake.archive_commits import read_last_commit
from commitlake.connectors.reading.errors import EmptyStoreError
from commitlake.connectors.reading.snapshots import Snapshot
from commitlake.connectors.reading.stores import find_stores
from commitlake.connectors.sources.stream_ranges import to_snapshot
from commitlake.connectors.spark.runner import SparkRunner
from commitlake.connectors.spark.versions import HAS_READ_LIMITS
from commitlake.connectors.storage.s3_options import spark_uri
from commitlake.connectors.storage.uris import absolute_path_or_uri
from commitlake.connectors.worker_errors import extract_worker_error
from commitlake.jobs.cli.process import call_on_first_signal
from commitlake.pipelines.archive.commit_series import archive_concurrently
from commitlake.pipelines.archive.result import Result
from commitlake.pipelines.archive.run import Config, run_archive
from commitlake.pipelines.archive.work_planning import ArchiveWork, find_archive_work
from commitlake.schemas.errors import CommitLakeError

_POLL_SECONDS = 1
_MAX_FAILURES = 6  # in a row; the waits between them add up to about two minutes
_FIRST_WAIT_SECONDS = 4
_LOG = logging.getLogger(__name__)
_CALLBACK_LOG = "py4j.clientserver"


class _StopRequestedError(Exception):
    """Error that ends the stream's query before a micro-batch is processed; the next query gets that batch again."""


class StoreFollower:
    """Series of archive runs, driven by a Spark stream that reads the logs of stores.

    Args:
        spark: a session with Delta and the source `commitlog`.
        config: settings of the archive runs.
        on_result: called with the result of each run that archived something.
        between: called about once a second while the stream runs.
    """

    def __init__(
        self,
        spark: SparkSession,
        config: Config,
        on_result: Callable[[Result], None],
        between: Callable[[], None] = lambda: None,
    ) -> None:
        self._spark, self._config, self._on_result, self._between = spark, config, on_result, between
        self._runner = SparkRunner(spark)
        self._stop = threading.Event()
        self._running = threading.Lock()
        self._failure: BaseException | None = None
        self._batches = 0

    def follow_store(
        self, interval: datetime.timedelta | None, max_bytes: int, unfinished_work: ArchiveWork | None = None
    ) -> None:
        """Archive new messages until a signal arrives or, without an interval, until all present messages are archived.

        Args:
            interval: time between two checks for new messages; None to end after the present messages.
            max_bytes: the largest number of log bytes of one run.
            unfinished_work: unfinished work, from `find_unfinished_work`.

        Raises:
            StreamingQueryException: for an error of the source. Errors of `run_archive` are raised unchanged.
        """
        failures = 0
        with call_on_first_signal(self._stop.set), self._suppress_py4j_traceback():
            if unfinished_work is not None:
                self._finish_unfinished_work(unfinished_work)
            while not self._stop.is_set():
                done = self._batches
                try:
                    self._run_stream_query(interval, max_bytes)
                except Exception as error:
                    # A micro-batch that was committed in between is progress: failures are counted anew.
                    failures = 1 if self._batches > done else failures + 1
                    if failures == _MAX_FAILURES or not may_succeed_later(error):
                        raise
                    seconds = _FIRST_WAIT_SECONDS * 2 ** (failures - 1)
                    _LOG.warning("%s. Next attempt in %d s", _first_line(error), seconds)
                    self._stop.wait(seconds)
                else:
                    return

    def _finish_unfinished_work(self, unfinished_work: ArchiveWork) -> None:
        """Finish the work that earlier runs left, because a stream without new messages has no micro-batch to do it."""
        result = run_archive(self._runner, self._config, unfinished_work)
        if result.recovered or any(update.rows for update in result.updates):
            self._on_result(result)

    def add_deliveries(self) -> None:
        """Add to the lake the deliveries to consumers that stores of JMQ have recorded since the last run.

        A micro-batch does the same, but there is none as long as no message arrives.
        """
        # A micro-batch that is running adds them itself.
        if not self._running.acquire(blocking=False):
            return
        try:
            if _may_have_deliveries(self._config) and (left := find_unfinished_work(self._config)) is not None:
                self._finish_unfinished_work(left)
        finally:
            self._running.release()

    def _run_stream_query(self, interval: datetime.timedelta | None, max_bytes: int) -> None:
        self._failure = None
        query = self._start_query(interval, max_bytes)
        try:
            while not query.awaitTermination(_POLL_SECONDS):
                self._between()
                if self._stop.is_set():
                    with self._running:  # wait until the current micro-batch is finished
                        pass
                    query.stop()
        except StreamingQueryException:
            if self._failure is not None:
                raise self._failure from None
            if not self._stop.is_set():
                raise

    def _start_query(self, interval: datetime.timedelta | None, max_bytes: int) -> StreamingQuery:
        config = self._config
        reader = self._spark.readStream.format("commitlog").option("content", "ranges")
        # Gaps are not an error here, because the archive run handles them by its own options.
        reader = reader.option("failOnDataLoss", "false")
        if HAS_READ_LIMITS:  # without them, the archive run divides a long range itself
            reader = reader.option("maxBytesPerTrigger", str(max_bytes))
        reader = reader.option("layout", str(config.layout))
        if config.broker is not None:
            reader = reader.option("broker", config.broker)
        reader = reader.option("startingOffset", json.dumps(_lake_end_offsets(config)))
        writer = reader.load(config.store).writeStream.foreachBatch(self._archive_micro_batch)
        writer = writer.option("checkpointLocation", checkpoint_folder(config))
        if interval is None:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{interval.total_seconds()} seconds").start()

    def _archive_micro_batch(self, batch: DataFrame, _number: int) -> None:
        with self._running:
            if self._stop.is_set():
                raise _StopRequestedError
            try:
                self._archive_new_messages(to_snapshot(batch))
            except BaseException as error:
                self._failure = error  # keep the exception, because Spark passes on only its text
                raise
            self._batches += 1

    def _archive_new_messages(self, batch_ranges: Snapshot) -> None:
        """Archive those messages of a stream's micro-batch that the lake does not have yet."""
        config = self._config
        work = find_archive_work(
            config.store, config.broker, config.lake, end_snapshot=batch_ranges, formats=config.layout
        )
        if not work.has_nothing_to_do:
            self._on_result(archive_concurrently(self._runner, config, work, wait=self._stop.wait))

    @contextmanager
    def _suppress_py4j_traceback(self) -> Iterator[None]:
        """Stop py4j from also printing a stack trace of the errors that `follow_store` raises."""

        def is_not_raised_by_follow(record: logging.LogRecord) -> bool:
            error = record.exc_info[1] if record.exc_info else None
            return error is None or (error is not self._failure and not isinstance(error, _StopRequestedError))

        log = logging.getLogger(_CALLBACK_LOG)
        log.addFilter(is_not_raised_by_follow)
        try:
            yield
        finally:
            log.removeFilter(is_not_raised_by_follow)


def may_succeed_later(error: Exception) -> bool:
    """Return True if an error that ended a stream may disappear on a retry without any change.

    This includes errors of Spark's own processes, such as a planning process that was killed or did not answer in time.
    """
    raised = extract_worker_error(error) or error
    return raised.is_transient if isinstance(raised, CommitLakeError) else isinstance(error, StreamingQueryException)


def find_unfinished_work(config: Config) -> ArchiveWork | None:
    """Find work that earlier runs left unfinished, without reading new messages; None if the lake had no run yet.

    Raises:
        CommitLogError: as for `find_archive_work`.
    """
    try:
        left = find_archive_work(
            config.store, config.broker, config.lake, end_snapshot=Snapshot({}), formats=config.layout
        )
    except EmptyStoreError:
        return None
    return left if left.last.sequence else None


def _may_have_deliveries(config: Config) -> bool:
    """Return whether some store has files of JMQ that record deliveries to consumers, which can be archived."""
    try:
        stores = find_stores(config.store, config.broker, formats=config.layout)
    except EmptyStoreError:
        return False
    return any(store.format.read_consume_log or store.format.read_retry_store for store in stores)


def _first_line(error: Exception) -> str:
    lines = str(extract_worker_error(error) or error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def checkpoint_folder(config: Config) -> str:
    """Return the folder of the stream's checkpoint, which is in the lake; each store path has its own."""
    path = absolute_path_or_uri(config.store)
    layout = "" if config.layout == ANY_FORMAT else f"\n{config.layout}"
    name = hashlib.blake2b(f"{path}\n{config.broker or ''}{layout}".encode(), digest_size=8).hexdigest()
    return spark_uri(f"{config.lake.streams_folder}/{name}")


def _lake_end_offsets(config: Config) -> dict[str, int]:
    """Return the archived end offset of each existing store, at which a stream without a checkpoint starts."""
    last = read_last_commit(config.lake)
    if last is None:
        return {}
    try:
        brokers = {store.broker for store in find_stores(config.store, config.broker, formats=config.layout)}
    except EmptyStoreError:
        return {}
    return {broker: progress.end for broker, progress in last.stores.items() if broker in brokers}
