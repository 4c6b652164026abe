"""This project's work under Spark, and the time that Spark alone takes to write the same rows."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F

from commitlake.connectors.formats.registry import all_formats
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.reading.snapshots import take_snapshot
from commitlake.connectors.reading.stores import find_stores
from commitlake.connectors.spark.runner import SparkRunner
from commitlake.pipelines.archive.run import Config, run_archive
from commitlake.schemas.tables.lake_tables import LAKE_TABLES
from commitlake.schemas.tables.messages import PARTITION_COLUMNS, STORE_DATE
from tests.benchmarks.memory import WorkerMemory
from tests.benchmarks.naive import read_naively
from tests.benchmarks.reading import BROKER
from tests.benchmarks.runs import Run, Step


class SparkRuns:
    """Passes over one store in a Spark session.

    Attributes:
        lake_bytes: bytes on disk of each folder of the newest lake.
        worker_mib: largest anonymous memory of a worker while archiving.
        worker_peak_mib: largest resident memory of a worker while archiving, including libraries.
    """

    def __init__(self, spark: SparkSession, store: Path, work: Path, messages: int, source: str = "commitlog") -> None:
        """Prepare the passes over a store.

        Args:
            spark: the session.
            store: its folder.
            work: folder for the output.
            messages: number of its messages.
            source: name of the Spark source.
        """
        self._spark = spark
        self._source_name = source
        self._store = store
        self._lake = work / "lake"
        self._written = work / "written"
        self._rows = work / "rows"
        self._messages = messages
        self._bytes = take_snapshot(find_stores(str(store), BROKER, formats=all_formats())).size
        self.lake_bytes: Mapping[str, int] = {}
        self.worker_mib = 0.0
        self.worker_peak_mib = 0.0

    def read(self, body: str = "none") -> Run:
        """Read all columns and discard them; the time includes planning, as for a user.

        Args:
            body: value of the source's option.
        """
        started = time.perf_counter()
        _discard(self._source().option("body", body).load(str(self._store)))
        return self._run(started)

    def read_naively(self) -> Run:
        """Read the same with a UDF on whole files."""
        started = time.perf_counter()
        _discard(read_naively(self._spark, self._store))
        return self._run(started)

    def count_naively(self) -> int:
        """Return the number of records that the UDF finds."""
        return read_naively(self._spark, self._store).count()

    def after_collecting(self, step: Step) -> Run:
        """Run a step after collecting the garbage of the previous one, which is gigabytes for a UDF."""
        jvm = self._spark.sparkContext._jvm
        assert jvm is not None
        jvm.java.lang.System.gc()
        return step()

    def archive(self, *, everything: bool = False) -> Run:
        """Run the archive job into a new lake.

        Args:
            everything: also check expectations and write `message_keys`, as by default; otherwise only metadata and
                bodies.
        """
        shutil.rmtree(self._lake, ignore_errors=True)
        with WorkerMemory(_jvm_process(self._spark)) as memory:
            result = run_archive(
                SparkRunner(self._spark),
                Config(str(self._store), Lake(str(self._lake)), BROKER, quality=everything, keys=everything),
            )
        assert result.messages == self._messages, f"expected {self._messages} messages, found {result.messages}"
        self.worker_mib = max(self.worker_mib, memory.anonymous_mib)
        self.worker_peak_mib = max(self.worker_peak_mib, memory.peak_mib)
        self.lake_bytes = {folder.name: _size_of(folder) for folder in sorted(self._lake.iterdir())}
        return Run(result.seconds, result.bytes, result.messages)

    def write_rows(self) -> Run:
        """Write the lake's rows from a Parquet copy into Delta, sorted and partitioned as by the job.

        A cached DataFrame would need more memory than a small session has, and then spill to disk; Spark reads rows
        from Parquet much faster than it writes them.
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
        """Read the Parquet copy and discard it, to show the small share of reading in `write_rows`."""
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
