"""This project's work under Spark, and the time of Spark alone for the same writing."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F

from commitlake.connectors.formats.engine.plan import take_snapshot
from commitlake.connectors.formats.engine.stores import find_stores
from commitlake.connectors.formats.registry import all_formats
from commitlake.connectors.runtime.spark_runner import SparkRunner
from commitlake.pipelines.archive.run import Config, run_archive
from commitlake.schemas.tables.lake_tables import LAKE_TABLES
from commitlake.schemas.tables.messages import PARTITION_COLUMNS, STORE_DATE
from tests.benchmarks.memory import WorkerMemory
from tests.benchmarks.naive import read_naively
from tests.benchmarks.reading import BROKER
from tests.benchmarks.runs import Run, Step


class SparkRuns:
    """One store's passes under a session.

    Attributes:
        lake_bytes: bytes on disk of each folder of the lake that was made last.
        worker_mib: the most that a worker had of its own while archiving.
        worker_peak_mib: the most that a worker had at all while archiving, libraries included.
    """

    def __init__(self, spark: SparkSession, store: Path, work: Path, messages: int, source: str = "commitlog") -> None:
        """Take a store.

        Args:
            spark: the session.
            store: its folder.
            work: a folder for what is written.
            messages: how many messages it has.
            source: what reads it.
        """
        self._spark = spark
        self._source_name = source
        self._store = store
        self._lake = work / "lake"
        self._written = work / "written"
        self._rows = work / "rows"
        self._messages = messages
        self._bytes = take_snapshot(find_stores(str(store), BROKER, all_formats())).size
        self.lake_bytes: Mapping[str, int] = {}
        self.worker_mib = 0.0
        self.worker_peak_mib = 0.0

    def read(self, body: str = "none") -> Run:
        """All columns, read and thrown away; the time includes planning, as for a user.

        Args:
            body: the source's option.
        """
        started = time.perf_counter()
        _discard(self._source().option("body", body).load(str(self._store)))
        return self._run(started)

    def read_naively(self) -> Run:
        """The same by a UDF on whole files."""
        started = time.perf_counter()
        _discard(read_naively(self._spark, self._store))
        return self._run(started)

    def count_naively(self) -> int:
        """Return the number of records that the UDF finds."""
        return read_naively(self._spark, self._store).count()

    def after_collecting(self, step: Step) -> Run:
        """A pass that does not pay for the garbage of the one before: a UDF's is gigabytes."""
        jvm = self._spark.sparkContext._jvm
        assert jvm is not None
        jvm.java.lang.System.gc()
        return step()

    def archive(self, *, everything: bool = False) -> Run:
        """The job, into a lake that is not there yet.

        Args:
            everything: with the judgement and with `message_keys`, as by default; else metadata and bodies alone.
        """
        shutil.rmtree(self._lake, ignore_errors=True)
        with WorkerMemory(_jvm_process(self._spark)) as memory:
            result = run_archive(
                SparkRunner(self._spark),
                Config(str(self._store), str(self._lake), BROKER, quality=everything, keys=everything),
            )
        assert result.messages == self._messages, f"expected {self._messages} messages, found {result.messages}"
        self.worker_mib = max(self.worker_mib, memory.anonymous_mib)
        self.worker_peak_mib = max(self.worker_peak_mib, memory.peak_mib)
        self.lake_bytes = {folder.name: _size_of(folder) for folder in sorted(self._lake.iterdir())}
        return Run(result.seconds, result.bytes, result.messages)

    def write_rows(self) -> Run:
        """The lake's rows out of a Parquet copy of them, sorted and partitioned as the job does it, into Delta.

        A DataFrame kept in memory would need more of it than a small session has, and then goes to disk, too; from
        Parquet, Spark reads the rows faster than it writes them by far.
        """
        if not self._rows.exists():
            self._source().load(str(self._store)).write.parquet(str(self._rows))
        shutil.rmtree(self._written, ignore_errors=True)
        started = time.perf_counter()
        rows = self._spark.read.parquet(str(self._rows)).withColumn(STORE_DATE.name, F.to_date("store_timestamp"))
        rows = rows.sortWithinPartitions(STORE_DATE.name, *LAKE_TABLES["messages"].sort_columns)
        rows.write.format("delta").partitionBy(*PARTITION_COLUMNS).save(str(self._written))
        return self._run(started)

    def read_rows(self) -> Run:
        """The Parquet copy read and thrown away: how little of `write_rows` is reading."""
        started = time.perf_counter()
        _discard(self._spark.read.parquet(str(self._rows)))
        return self._run(started)

    def _source(self) -> DataFrameReader:
        return self._spark.read.format(self._source_name).option("broker", BROKER)

    def _run(self, started: float) -> Run:
        return Run(time.perf_counter() - started, self._bytes, self._messages)


def _discard(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()


def _jvm_process(spark: SparkSession) -> int:
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    return int(jvm.java.lang.ProcessHandle.current().pid())


def _size_of(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
