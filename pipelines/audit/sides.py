"""What an audit compares: the rows of the store, of HBase, and those that the packs hold, beside the lake's own."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from commitlake.connectors.formats.engine.plan import Snapshot, StoreRange
from commitlake.connectors.formats.engine.stores import find_stores
from commitlake.connectors.formats.registry import ANY_FORMAT, FormatChoice
from commitlake.connectors.lake.archive_log import StoreProgress
from commitlake.connectors.lake.packs.check import with_found_bodies
from commitlake.connectors.lake.packs.location import pack_location
from commitlake.connectors.lake.paths import LakePaths
from commitlake.connectors.object_store.spark import spark_uri
from commitlake.pipelines.audit.moment import Moment
from commitlake.pipelines.transforms.kept_bodies import with_kept_bodies
from commitlake.pipelines.transforms.log_stretches import (
    HAS_PROFILE,
    mark_counted_runs,
    to_counted_stretches,
    within_stretches,
)
from commitlake.pipelines.transforms.message_keys import to_message_keys
from commitlake.pipelines.transforms.profile import combine_profiles, to_profile
from commitlake.schemas.tables.messages import MESSAGES
from commitlake.schemas.tables.profile import PROFILES, WINDOW_SECONDS
from commitlake.schemas.times import EPOCH

_WINDOW = datetime.timedelta(seconds=WINDOW_SECONDS)
_LAST_WINDOW = datetime.datetime.max.replace(tzinfo=datetime.UTC) - _WINDOW


@dataclass(frozen=True)
class Span:
    """The stored messages that an audit looks at.

    Attributes:
        first: the first moment; None for all.
        last: the first moment that is too late; None for all.
    """

    first: datetime.datetime | None = None
    last: datetime.datetime | None = None

    def whole_windows(self) -> Self:
        """The windows that this touches: what a run counted is known by window, and not within one."""
        first, last = self.first, self.last
        return replace(
            self,
            first=None if first is None else first - (first - EPOCH) % _WINDOW,
            last=None if last is None or last > _LAST_WINDOW else last + (EPOCH - last) % _WINDOW,
        )

    def since(self, date: datetime.date | None) -> Self:
        """What of it is of a date or later."""
        if date is None:
            return self
        first = datetime.datetime(date.year, date.month, date.day, tzinfo=datetime.UTC)
        return self if self.first is not None and self.first >= first else replace(self, first=first)

    def of(self, column: str) -> Column:
        """Whether a time is within; what has no time is, where nothing is left out."""
        wanted = F.lit(True)
        if self.first is not None:
            wanted = wanted & (F.col(column) >= F.lit(self.first))
        if self.last is not None:
            wanted = wanted & (F.col(column) < F.lit(self.last))
        return wanted

    def __str__(self) -> str:
        names = (("from", self.first), ("to", self.last))
        return " ".join(f"{name} {moment:%Y-%m-%d %H:%M}" for name, moment in names if moment is not None)


@dataclass(frozen=True)
class Counted:
    """What of `messages` the runs' own counts can be compared with.

    Attributes:
        runs: how many runs have left no profile of what they took.
        stretches: of the brokers' logs (`broker`, `first`, `last`, that itself not in it) what the other runs took;
            None where that is all.
    """

    runs: int
    stretches: DataFrame | None


@dataclass(frozen=True)
class Sides:
    """Profiles of one lake's messages at one moment, as each place has them.

    Attributes:
        spark: the session.
        lake: where the tables lie.
        bodies: root of the packs.
        span: which messages.
        moment: of the lake.
    """

    spark: SparkSession
    lake: LakePaths
    bodies: str
    span: Span
    moment: Moment

    def messages(self, within: DataFrame | None = None) -> DataFrame:
        """The table's profile.

        Args:
            within: only what lies in these stretches of the brokers' logs, as in `Counted`.
        """
        rows = self._messages()
        return to_profile(rows if within is None else within_stretches(rows, within))

    def archived(self) -> DataFrame:
        """What the runs said that they took."""
        return combine_profiles(self._profiles().where(self.span.of("window_start")))

    def counted(self) -> Counted | None:
        """Which runs said what they took; None where none of those that took something did."""
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
        return Counted(uncounted, to_counted_stretches(marked, profiles))

    def with_bodies(self, kept_since: datetime.date | None) -> tuple[DataFrame, DataFrame]:
        """What the table says of the messages whose bodies are kept, and what the packs hold of them.

        Args:
            kept_since: bodies of earlier dates may be gone; None where all are kept.

        Returns:
            A profile; and rows, of which each whose body cannot be had has `error`.
        """
        rows = self._messages()
        if kept_since is not None:
            rows = with_kept_bodies(rows, kept_since)
        return to_profile(rows), with_found_bodies(rows, pack_location(self.bodies))

    def store(
        self, path: str, broker: str | None, ranges: Mapping[str, StoreRange], layout: FormatChoice = ANY_FORMAT
    ) -> DataFrame:
        """What the store holds in these ranges of the brokers' logs."""
        reader = self.spark.read.format("commitlog").option("mode", "PERMISSIVE").option("layout", str(layout))
        if broker is not None:
            reader = reader.option("broker", broker)
        rows = reader.option("snapshot", Snapshot(ranges).to_json()).load(path)
        return to_profile(rows.where(self.span.of("store_timestamp")))

    def hbase(self, options: Mapping[str, str]) -> DataFrame:
        """What HBase holds of what was archived by then."""
        rows = self.spark.read.format("hbase").options(**{**options, "columns": ",".join(MESSAGES.names)}).load()
        ends = {broker: StoreRange(0, progress.end) for broker, progress in self.moment.commit.stores.items()}
        return to_profile(within_stretches(rows.where(self.span.of("store_timestamp")), self.stretches(ends)))

    def keys(self, version: int) -> tuple[DataFrame, DataFrame]:
        """The keys of all messages, and the table `message_keys` at a version."""
        return to_message_keys(self._table("messages", self.moment.version)), self._table("message_keys", version)

    def stretches(self, ranges: Mapping[str, StoreRange]) -> DataFrame:
        """Ranges of the brokers' logs, as in `Counted`."""
        rows = [(broker, part.start, part.end) for broker, part in ranges.items()]
        return self.spark.createDataFrame(rows, "broker string, first long, last long")

    def _messages(self) -> DataFrame:
        return self._table("messages", self.moment.version).where(self.span.of("store_timestamp"))

    def _profiles(self) -> DataFrame:
        """What the runs up to this moment have counted."""
        if self.moment.profiles is None:
            return self.spark.createDataFrame([], PROFILES)
        rows = self._table("profiles", self.moment.profiles)
        return rows.where(~F.col("run_id").isin(*self.moment.later)) if self.moment.later else rows

    def _table(self, name: str, version: int | None = None) -> DataFrame:
        reader = self.spark.read.format("delta")
        if version is not None:
            reader = reader.option("versionAsOf", version)
        return reader.load(spark_uri(getattr(self.lake, name)))


def ranges_in_store(
    path: str, broker: str | None, progress: Mapping[str, StoreProgress], layout: FormatChoice = ANY_FORMAT
) -> tuple[dict[str, StoreRange], Sequence[str]]:
    """Of each broker's log, what is archived and still in its store.

    Returns:
        Ranges by broker; and sentences on brokers of which there is nothing to compare.

    Raises:
        CommitLogError: for a store that cannot be read.
    """
    ranges, notes, there = {}, [], set()
    for store in find_stores(path, broker, layout.formats):
        there.add(store.broker)
        known = progress.get(store.broker)
        start = store.segments[0].base_offset
        if known is None:
            notes.append(f"{store.broker}: nothing of this store is in the lake")
        elif start >= known.end:
            notes.append(f"{store.broker}: its store begins at {start}, and the lake ends at {known.end}")
        else:
            ranges[store.broker] = StoreRange(start, known.end)
    notes += [f"{name}: in the lake, and not among the stores" for name in sorted(progress.keys() - there)]
    return ranges, notes
