"""What an audit compares: the rows of the store, of HBase, and those that the packs hold, beside the lake's own."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from connectors.commitlog.plan import Snapshot, StoreRange
from connectors.commitlog.stores import find_stores
from connectors.lake.archive_log import StoreProgress
from connectors.lake.paths import LakePaths
from connectors.packs.check import with_found_bodies
from connectors.packs.location import pack_location
from connectors.s3.spark import spark_uri
from pipelines.profile import combine_profiles, to_profile

_HASHED = [
    "broker", "topic", "queue_id", "queue_offset", "physical_offset", "size", "body_size", "body_crc",
    "store_timestamp",
]  # fmt: skip


@dataclass(frozen=True)
class Span:
    """The stored messages that an audit looks at.

    Attributes:
        first: the first moment; None for all.
        last: the first moment that is too late; None for all.
    """

    first: datetime.datetime | None = None
    last: datetime.datetime | None = None

    def of(self, column: str) -> Column:
        """Whether a time is within; what has no time is, where nothing is left out."""
        wanted = F.lit(True)
        if self.first is not None:
            wanted = wanted & (F.col(column) >= F.lit(self.first))
        if self.last is not None:
            wanted = wanted & (F.col(column) < F.lit(self.last))
        return wanted


@dataclass(frozen=True)
class Sides:
    """Profiles of one lake's messages, as each place has them.

    Attributes:
        spark: the session.
        lake: where the tables lie.
        bodies: root of the packs.
        span: which messages.
    """

    spark: SparkSession
    lake: LakePaths
    bodies: str
    span: Span

    def messages(self, ranges: Mapping[str, StoreRange] | None = None) -> DataFrame:
        """The table's profile.

        Args:
            ranges: only what lies in these ranges of the brokers' logs.
        """
        rows = self._table("messages").where(self.span.of("store_timestamp"))
        return to_profile(rows if ranges is None else self._within(rows, ranges))

    def archived(self) -> DataFrame:
        """What the runs said that they took, as far as the table still keeps it."""
        kept = self._table("messages").agg(F.min("store_date")).first()
        profiles = self._table("profiles").where(self.span.of("window_start"))
        if kept is not None and kept[0] is not None:
            old = F.to_date("window_start") < F.lit(kept[0])
            profiles = profiles.where(~F.coalesce(old, F.lit(False)))
        return combine_profiles(profiles)

    def packs(self) -> DataFrame:
        """What the packs hold of the table's messages; each body that cannot be had has `error`."""
        rows = self._table("messages").where(self.span.of("store_timestamp"))
        return with_found_bodies(rows, pack_location(self.bodies))

    def store(self, path: str, broker: str | None, ranges: Mapping[str, StoreRange]) -> DataFrame:
        """What the store holds in these ranges of the brokers' logs."""
        reader = self.spark.read.format("commitlog").option("mode", "PERMISSIVE")
        if broker is not None:
            reader = reader.option("broker", broker)
        rows = reader.option("snapshot", Snapshot(ranges).to_json()).load(path)
        return to_profile(rows.where(self.span.of("store_timestamp")))

    def hbase(self, options: Mapping[str, str]) -> DataFrame:
        """What HBase holds."""
        rows = self.spark.read.format("hbase").options(**{**options, "columns": ",".join(_HASHED)}).load()
        return to_profile(rows.where(self.span.of("store_timestamp")))

    def _table(self, name: str) -> DataFrame:
        return self.spark.read.format("delta").load(spark_uri(getattr(self.lake, name)))

    def _within(self, rows: DataFrame, ranges: Mapping[str, StoreRange]) -> DataFrame:
        bounds = self.spark.createDataFrame(
            [(broker, part.start, part.end) for broker, part in ranges.items()], "broker string, first long, last long"
        )
        offset = F.col("physical_offset")
        joined = rows.join(F.broadcast(bounds), on="broker", how="inner")
        return joined.where((offset >= F.col("first")) & (offset < F.col("last"))).drop("first", "last")


def ranges_in_store(path: str, broker: str | None, progress: Mapping[str, StoreProgress]) -> dict[str, StoreRange]:
    """Of each broker's log, what is archived and still in its store.

    Raises:
        CommitLogError: for a store that cannot be read.
    """
    ranges = {}
    for store in find_stores(path, broker):
        known = progress.get(store.broker)
        start = store.segments[0].base_offset
        if known is not None and start < known.end:
            ranges[store.broker] = StoreRange(start, known.end)
    return ranges
