"""Sides of an audit on Spark, as DataFrames."""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from commitlake.connectors.formats.registry import ANY_FORMAT, FormatChoice
from commitlake.connectors.hbase import register_hbase
from commitlake.connectors.hbase.options import HBaseOptions
from commitlake.connectors.lake.erasures import MARKER, ErasedPlaces
from commitlake.connectors.lake.packs.body_check import ERROR
from commitlake.connectors.lake.packs.location import pack_location
from commitlake.connectors.lake.packs.spark_check import with_found_bodies
from commitlake.connectors.reading.snapshots import Snapshot, StoreRange
from commitlake.connectors.storage.spark import spark_uri
from commitlake.connectors.worker_errors import carry_errors
from commitlake.pipelines.audit.local.store_tasks import as_erased
from commitlake.pipelines.audit.sides import (
    SHOWN,
    Counted,
    Differences,
    PackedBodies,
    Profile,
    Sides,
    Stretch,
    Totals,
    body_error,
    in_key_order,
    key_difference,
    stretches_of,
)
from commitlake.pipelines.audit.span import AuditSpan
from commitlake.pipelines.masking.archiving import ArchiveMasks, masks_of_lake
from commitlake.pipelines.transforms.log_stretches import (
    HAS_PROFILE,
    mark_counted_runs,
    to_counted_stretches,
    with_kept_bodies,
    within_stretches,
)
from commitlake.pipelines.transforms.message_keys import compare_keys, to_message_keys, to_totals
from commitlake.pipelines.transforms.profile import (
    DIFFERENCE,
    combine_profiles,
    compare_profiles,
    count_windows,
    to_profile,
)
from commitlake.schemas.tables.messages import MESSAGES
from commitlake.schemas.tables.profile import AUDIT, FIGURES, KEY_COLUMNS, PROFILES
from commitlake.schemas.tables.spark import spark_schema

_NUMBER = "number"


class SparkProfile(Profile):
    """Profile as a DataFrame, cached in the session until it is closed; the next audit reads again.

    Args:
        frame: a table of `AUDIT`.
    """

    def __init__(self, frame: DataFrame) -> None:
        self._frame = frame.cache()

    def close(self) -> None:
        """Remove the rows from Spark's cache."""
        self._frame.unpersist(blocking=True)

    def correct(self, windows: pa.Table) -> None:
        """Add differences to the figures; see `Profile.correct`."""
        before, session = self._frame, self._frame.sparkSession
        rows = session.createDataFrame(windows.to_pylist(), spark_schema(AUDIT))
        self._frame = combine_profiles(before.unionByName(rows)).cache()
        before.unpersist()

    def totals(self) -> Totals:
        """Count windows and messages."""
        counted = count_windows(self._frame).first()
        assert counted is not None  # an aggregate without groups has one row
        return Totals(counted["windows"], counted["messages"])

    def differences(self, found: SparkProfile, columns: Sequence[str] = FIGURES, limit: int = SHOWN) -> Differences:
        """Compare with another profile; see `Profile.differences`."""
        with _cached(compare_profiles(self._frame, found._frame, columns=columns)) as differing:
            counts = {
                (row["broker"], row[DIFFERENCE]): row["count"]
                for row in differing.groupBy("broker", DIFFERENCE).count().collect()
            }
            if not counts:
                return Differences({}, [])
            order = Window.partitionBy("broker", DIFFERENCE).orderBy(*KEY_COLUMNS)
            first = differing.withColumn(_NUMBER, F.row_number().over(order)).where(F.col(_NUMBER) <= limit)
            rows = [_in_utc(row.asDict()) for row in first.drop(_NUMBER).collect()]
            return Differences(counts, in_key_order(rows))


@contextmanager
def _cached(frame: DataFrame) -> Iterator[DataFrame]:
    frame = frame.cache()
    try:
        yield frame
    finally:
        frame.unpersist(blocking=True)


def _masked(masks: ArchiveMasks, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    with carry_errors():
        for batch in batches:
            yield masks.mask_rows(batch)[0]


def _erased(erased: ErasedPlaces, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    with carry_errors():
        for batch in batches:
            yield from as_erased(pa.Table.from_batches([batch]), erased).cast(batch.schema).to_batches()


def _in_utc(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with its times in UTC; Spark returns them in the time zone of this process."""
    return {
        name: value.astimezone(datetime.UTC).replace(tzinfo=None) if isinstance(value, datetime.datetime) else value
        for name, value in row.items()
    }


@dataclass(frozen=True)
class SparkSides(Sides):
    """Sides of an audit on Spark.

    Attributes:
        spark: the Spark session.
    """

    spark: SparkSession

    def messages(self, within: Sequence[Stretch] | None = None) -> SparkProfile:
        """Profile the table; see `Sides.messages`."""
        rows = self._messages()
        return SparkProfile(to_profile(rows if within is None else within_stretches(rows, self._stretches(within))))

    def archived(self) -> SparkProfile:
        """Profile the counts that runs recorded."""
        return SparkProfile(combine_profiles(self._profiles().where(_within(self.span, "window_start"))))

    def counted(self) -> Counted | None:
        """Return the runs with counts; see `Sides.counted`."""
        commit, expired = self.moment.commit, self.moment.expired
        runs = self._table("archive_runs").where(
            (F.col("sequence") <= F.lit(commit.sequence)) & (F.col("messages") > 0)
        )
        profiles = self._profiles()
        marked = mark_counted_runs(runs, profiles)
        first = marked.agg(F.count_if(~F.col(HAS_PROFILE)), F.count_if(HAS_PROFILE)).first()
        assert first is not None  # an aggregate without groups has one row
        uncounted, counted = first
        if uncounted and not counted:
            return None
        if not uncounted and not {"profiles", "archive_runs"} & expired.keys():
            return Counted(0, None)
        return Counted(uncounted, [Stretch(*row) for row in to_counted_stretches(marked, profiles).collect()])

    @contextmanager
    def with_bodies(self, kept_since: datetime.date | None) -> Iterator[PackedBodies]:
        """Read the bodies; see `Sides.with_bodies`."""
        rows = self._messages()
        if self.erased.count:
            is_marked = F.coalesce(F.map_contains_key("properties", F.lit(MARKER)), F.lit(False))
            rows = rows.where(~(is_marked & F.col("body_ref").isNull()))
        if kept_since is not None:
            rows = with_kept_bodies(rows, kept_since)
        with _cached(with_found_bodies(rows, pack_location(self.bodies))) as found:
            broken = found.where(F.col(ERROR).isNotNull()).orderBy("broker", "physical_offset").limit(SHOWN).collect()
            errors = [body_error(row["broker"], row["physical_offset"], row[ERROR]) for row in broken]
            with SparkProfile(to_profile(rows)) as messages, SparkProfile(to_profile(found)) as of_packs:
                yield PackedBodies(messages, of_packs, errors)

    def store(
        self, path: str, broker: str | None, ranges: Mapping[str, StoreRange], layout: FormatChoice = ANY_FORMAT
    ) -> SparkProfile:
        """Profile the stores; see `Sides.store`."""
        reader = self.spark.read.format("commitlog").option("mode", "PERMISSIVE").option("layout", str(layout))
        if broker is not None:
            reader = reader.option("broker", broker)
        masks = masks_of_lake(self.moment.commit.masks, os.environ)
        if masks is not None and masks.reads_bodies:
            reader = reader.option("body", "stored")
        rows = reader.option("snapshot", Snapshot(ranges).to_json()).load(path)
        if masks is not None:
            rows = rows.mapInArrow(partial(_masked, masks), rows.schema)
        if self.erased_in_stores:
            rows = rows.where(F.col("size").isNotNull())  # bad ranges, which are not counted
            rows = rows.mapInArrow(partial(_erased, self.erased_in_stores), rows.schema)
        return SparkProfile(to_profile(rows.where(_within(self.span, "store_timestamp"))))

    def hbase(self, options: HBaseOptions) -> SparkProfile:
        """Profile HBase; see `Sides.hbase`."""
        register_hbase(self.spark)
        place = {"host": options.host, "port": str(options.port), "table": options.table}
        rows = self.spark.read.format("hbase").options(**place, columns=",".join(MESSAGES.names)).load()
        ends = {broker: StoreRange(0, progress.end) for broker, progress in self.moment.commit.stores.items()}
        within = self._stretches(stretches_of(ends))
        return SparkProfile(to_profile(within_stretches(rows.where(_within(self.span, "store_timestamp")), within)))

    def different_keys(self, version: int) -> tuple[int, Sequence[str]]:
        """Compare `message_keys` with the keys of all messages; see `Sides.different_keys`."""
        expected = to_message_keys(self._table("messages", self.moment.version))
        found = self._table("message_keys", version)
        if to_totals(expected).collect() == to_totals(found).collect():
            return 0, []
        with _cached(compare_keys(expected, found)) as differences:
            first = (
                differences.orderBy("broker", "physical_offset", "key", "kind", "topic", "store_timestamp")
                .limit(SHOWN)
                .collect()
            )
            shown = [
                key_difference(row[DIFFERENCE], row["key"], row["broker"], row["physical_offset"]) for row in first
            ]
            return differences.count(), shown

    def _stretches(self, stretches: Sequence[Stretch]) -> DataFrame:
        return self.spark.createDataFrame(list(stretches), "broker string, first long, last long")

    def _messages(self) -> DataFrame:
        return self._table("messages", self.moment.version).where(_within(self.span, "store_timestamp"))

    def _profiles(self) -> DataFrame:
        """Return the counts of the runs up to this moment."""
        if self.moment.profiles is None:
            return self.spark.createDataFrame([], spark_schema(PROFILES))
        rows = self._table("profiles", self.moment.profiles)
        return rows.where(~F.col("run_id").isin(*self.moment.later)) if self.moment.later else rows

    def _table(self, name: str, version: int | None = None) -> DataFrame:
        reader = self.spark.read.format("delta")
        if version is not None:
            reader = reader.option("versionAsOf", version)
        return reader.load(spark_uri(self.lake.uri(name)))


def _within(span: AuditSpan, column: str) -> Column:
    """Return a condition that a time is in a range. Rows without a time are, if the range has no bounds."""
    wanted = F.lit(True)
    if span.first is not None:
        wanted = wanted & (F.col(column) >= F.lit(span.first))
    if span.last is not None:
        wanted = wanted & (F.col(column) < F.lit(span.last))
    return wanted
