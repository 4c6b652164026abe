"""Tables of topics on Spark: their rows at a version, and files that no table knows yet."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from commitlake.connectors.lake.erasures import ErasedMessages, newest_erasure_number, read_erased_messages
from commitlake.connectors.lake.lake import Lake, PinnedLake
from commitlake.connectors.lake.rows.data_files import DataFile
from commitlake.connectors.lake.rows.statistics import file_statistics
from commitlake.connectors.storage.s3_options import spark_uri
from commitlake.connectors.storage.uris import absolute_path_or_uri, is_uri


@dataclass(frozen=True)
class SparkTables:
    """Reads and writes rows of a lake's tables on Spark.

    Attributes:
        spark: the session.
        lake: the lake.
    """

    spark: SparkSession
    lake: Lake

    def without_erased(self, rows: DataFrame, reading: PinnedLake, prefix: str = "") -> DataFrame:
        """Return rows without those of erased messages.

        Args:
            rows: with columns `broker` and `physical_offset`, after a prefix.
            reading: the lake.
            prefix: the prefix.
        """
        erased = read_erased_messages(reading)
        if not erased:
            return rows
        names = [f"{prefix}broker", f"{prefix}physical_offset"]
        return rows.join(F.broadcast(self._erased_places(erased).toDF(*names)), names, "left_anti")

    def _erased_places(self, erased: ErasedMessages) -> DataFrame:
        places = [
            (broker, int(offset)) for broker, found in erased.brokers.items() for offset in np.asarray(found.offsets)
        ]
        return self.spark.createDataFrame(places, "broker string, physical_offset long")

    def read_table(self, reading: PinnedLake, name: str) -> DataFrame:
        """Return the rows of a table at the version at which a view of the lake has pinned it."""
        version = reading.table(name).version()
        read = self.spark.read.format("delta").option("versionAsOf", version)
        return read.load(spark_path(reading.uri(name)))

    def write_files(self, rows: DataFrame, table: str) -> list[DataFile]:
        """Write rows as Parquet files into the folder of a table, and return them; no table knows them yet."""
        folder = f"run-{secrets.token_hex(8)}"
        with _session_settings(self.spark, {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}):
            writer = rows.write.option("compression", "zstd")
            writer = writer.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
            writer.parquet(f"{spark_path(self.lake.uri(table))}/{folder}")
        root = self.lake.open_folder(table)
        return list(_data_files(root, folder))


def erasure_step(reading: PinnedLake, table: str) -> tuple[int, int]:
    """Return the number of the newest erasure of a table before and after rows are added without erased messages.

    An erasure that reaches the table meanwhile must not miss these rows, so the commit fails then.
    """
    opened = reading.find(table)
    done = newest_erasure_number(opened)
    return done, done if opened is not None else read_erased_messages(reading).number


def spark_path(place: str) -> str:
    """Return a path or URI as Spark reads it."""
    return spark_uri(place) if is_uri(place) else absolute_path_or_uri(place)


@contextmanager
def _session_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Change settings of a session inside the block."""
    before = {name: str(spark.conf.get(name)) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


def _data_files(root: pafs.FileSystem, folder: str) -> Iterator[DataFile]:
    """Yield the files of a folder that have rows, with their statistics."""
    for info in root.get_file_info(pafs.FileSelector(folder, recursive=True)):
        if info.type is not pafs.FileType.File or not info.path.endswith(".parquet"):
            continue
        with root.open_input_file(info.path) as source:
            footer = pq.read_metadata(source)
        if footer.num_rows:
            yield DataFile(info.path, None, info.size, footer.num_rows, file_statistics(footer))
