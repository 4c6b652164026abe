"""Journeys for the command `journeys`, computed in this process or on Spark, as rows for people and programs."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.lake.sql import selection_conditions
from commitlake.jobs.journeys.arguments import JourneysOptions
from commitlake.jobs.report.rows_output import rows_of_batches
from commitlake.pipelines.journeys.arrow_journeys import (
    count_hops,
    hops_table,
    journeys_table,
    sorted_key_rows,
    sum_hop_counts,
)
from commitlake.pipelines.journeys.journeys_query import JourneysQuestion
from commitlake.pipelines.journeys.key_records import KeyRecords
from commitlake.pipelines.journeys.misfits import (
    MisfitRules,
    count_keys_by_path,
    first_keys_by_path,
    misfits_of_table,
    paths_to_topic_lists,
    rare_paths,
    sum_path_counts,
)
from commitlake.schemas.selection import Selection
from commitlake.schemas.tables.journeys import HOPS, JOURNEYS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from commitlake.connectors.lake.lake import Lake

Row = Mapping[str, Any]
FLAGS = ("began_before", "is_cut", "order_uncertain")
_HOP_NAMES = [name for name in HOPS.names if name not in {"hour", "delays"}]
_KEY_NAMES = ["key", "reasons", *JOURNEYS.drop_columns("key", "steps").names]
_OLD = datetime.timedelta(minutes=10)


class JourneysAnswer(Protocol):
    """Interface of computed journeys, the paths of keys from topic to topic, whichever engine computes them."""

    @property
    def key_counts(self) -> Mapping[str, int]:
        """Number of `keys` that began in the requested time, and of keys with each flag, such as `began_before`."""

    @property
    def path_count(self) -> int:
        """Number of different paths of the keys whose journeys began in the requested time."""

    def paths(self, limit: int | None) -> Sequence[Row]:
        """Return paths from topic to topic, the most frequent first: at most `limit`, or all if it is None."""

    def hops(self) -> Sequence[Row]:
        """Return pairs of topics that keys passed one after the other, the most frequent first."""

    def find_misfit_keys(self, criteria: MisfitRules, limit: int | None) -> MisfitKeys:
        """Return the keys whose journeys do not fit the criteria, in key order: at most `limit`, or all without it."""

    def first_keys_of_paths(
        self, paths: Sequence[Sequence[str]], limit: int
    ) -> Mapping[tuple[str, ...], Sequence[str]]:
        """Return, for each given path, its first `limit` keys, in key order."""


@dataclass
class MisfitKeys:
    """Keys whose journeys do not fit the criteria; `rows` can be read once, after which `count` is complete.

    Attributes:
        rows: the keys that are shown.
        count: number of all keys, also of those that are not shown.
    """

    rows: Iterable[Row]
    count: int = 0


@dataclass(frozen=True)
class NewestRecordTimes:
    """Store time of the newest record that was read, and that of each broker that is at least ten minutes older.

    Attributes:
        until: store time of the newest record that was read.
        older: that of brokers whose newest record is at least ten minutes older.
    """

    until: datetime.datetime
    older: Mapping[str, datetime.datetime]


def newest_record_times(lake: Lake, question: JourneysQuestion) -> NewestRecordTimes:
    """Return the store time of the newest record in the requested time range, and that of each late broker."""
    where = " AND ".join(selection_conditions(Selection(start=question.read_begin, end=question.read_end)))
    sql = f"SELECT broker, max(store_timestamp) AS newest FROM messages WHERE {where} GROUP BY broker ORDER BY broker"
    rows = run_sql(lake.table("messages"), "messages", sql).read_all().to_pylist()
    newest = {row["broker"]: row["newest"] for row in rows}
    until = max(newest.values(), default=question.since)
    return NewestRecordTimes(until, {broker: time for broker, time in newest.items() if time + _OLD < until})


@contextmanager
def open_journeys_answer(command: JourneysOptions, lake: Lake, question: JourneysQuestion) -> Iterator[JourneysAnswer]:
    """Yield the journeys of keys in the requested time range, computed by the engine that the command names."""
    if not command.is_on_spark:
        from commitlake.pipelines.analysis.arrow_tables import ArrowTables

        with ArrowTables(lake).key_records(question) as records:
            yield ArrowAnswer(records, question)
        return
    from pyspark import StorageLevel

    from commitlake.jobs.arguments.runner import get_spark_session
    from commitlake.pipelines.analysis.spark_tables import SparkTables

    tables = SparkTables(get_spark_session("journeys", lake.s3), lake)
    opened = {name: lake.find(name) for name in ("messages", "edges")}
    versions = {name: table.version() for name, table in opened.items() if table is not None}
    rows = tables.journeys_and_hop_counts(question, versions).persist(StorageLevel.DISK_ONLY)
    try:
        yield SparkAnswer(rows)
    finally:
        rows.unpersist()


class _KeyAndHopCounts(NamedTuple):
    """Numbers of keys, paths and hops, summed over all slices of the keys.

    Attributes:
        counts: number of keys, see `JourneysAnswer`.
        paths: the result of `sum_path_counts`.
        hops: the result of `sum_hop_counts`.
    """

    counts: Mapping[str, int]
    paths: pa.Table
    hops: pa.Table


@dataclass(frozen=True)
class ArrowAnswer:
    """Journeys computed in this process, one slice of the keys after another, to limit memory.

    Attributes:
        records: the records of the keys.
        question: the question.
    """

    records: KeyRecords
    question: JourneysQuestion
    _sums: list[_KeyAndHopCounts] = field(default_factory=list)

    @property
    def key_counts(self) -> Mapping[str, int]:
        """Number of `keys` that began in the requested time, and of keys with each flag, such as `began_before`."""
        return self._sums_over_slices.counts

    @property
    def path_count(self) -> int:
        """Number of different paths of the keys whose journeys began in the requested time."""
        return int(self._sums_over_slices.paths.num_rows)

    def paths(self, limit: int | None) -> Sequence[Row]:
        """Return paths from topic to topic, the most frequent first: at most `limit`, or all if it is None."""
        return _table_to_rows(paths_to_topic_lists(self._sums_over_slices.paths.slice(0, limit)))

    def hops(self) -> Sequence[Row]:
        """Return pairs of topics that keys passed one after the other, the most frequent first."""
        order: Any = [("hops", "descending"), ("source", "ascending"), ("target", "ascending")]
        return _table_to_rows(hops_table(self._sums_over_slices.hops).select(_HOP_NAMES).sort_by(order))

    def find_misfit_keys(self, criteria: MisfitRules, limit: int | None) -> MisfitKeys:
        """Return the keys whose journeys do not fit the criteria, in key order: at most `limit`, or all without it."""
        found = MisfitKeys(())
        rows = self._misfit_rows(criteria, limit, found)
        found.rows = rows if limit is None else _first_rows_after_reading_all(rows, limit)
        return found

    def first_keys_of_paths(
        self, paths: Sequence[Sequence[str]], limit: int
    ) -> Mapping[tuple[str, ...], Sequence[str]]:
        """Return, for each given path, its first `limit` keys, in key order."""
        found: dict[tuple[str, ...], list[str]] = {tuple(path): [] for path in paths}
        for journeys in self._journeys_by_slice():
            for path, keys in first_keys_by_path(journeys, list(found), limit).items():
                found[path] += keys[: limit - len(found[path])]
            if all(len(keys) == limit for keys in found.values()):
                break
        return found

    @property
    def _sums_over_slices(self) -> _KeyAndHopCounts:
        if not self._sums:
            for _ in self._journeys_by_slice():
                pass
        return self._sums[0]

    def _misfit_rows(self, criteria: MisfitRules, limit: int | None, found_keys: MisfitKeys) -> Iterator[Row]:
        rare = rare_paths(self._sums_over_slices.paths) if criteria.is_unexpected else None
        for journeys in self._journeys_by_slice():
            rows = misfits_of_table(journeys, criteria, rare)
            found_keys.count += rows.num_rows
            yield from rows_of_batches(rows.select(_KEY_NAMES).slice(0, limit).to_batches(), 0)

    def _journeys_by_slice(self) -> Iterator[pa.Table]:
        """Yield the journeys of each slice of the keys, without their steps; the first call also sums them up."""
        counts = dict.fromkeys(("keys", *FLAGS), 0)
        paths, hops = [], []
        for each in self.records.iterate_slices():
            rows = sorted_key_rows(each, self.question)
            journeys = journeys_table(rows, self.question, JOURNEYS.drop_columns("steps"))
            if not self._sums:
                for name in FLAGS:
                    counts[name] += int(pc.sum(journeys.column(name)).as_py() or 0)
                counts["keys"] += journeys.num_rows
                paths.append(count_keys_by_path(journeys))
                hops.append(count_hops(rows, self.question, None))
            yield journeys
        if not self._sums:
            counts["keys"] -= counts["began_before"]
            self._sums.append(_KeyAndHopCounts(counts, sum_path_counts(paths), sum_hop_counts(hops)))


@dataclass(frozen=True)
class SparkAnswer:
    """Journeys computed once by Spark, whose executors keep the result on disk until all of it is read.

    Attributes:
        rows: the result of `journeys_and_hop_counts_of`, persisted.
    """

    rows: DataFrame

    @property
    def _journeys(self) -> DataFrame:
        return self.rows.where("key IS NOT NULL").select(*JOURNEYS.drop_columns("steps").names)

    @cached_property
    def key_counts(self) -> Mapping[str, int]:
        """Number of `keys` that began in the requested time, and of keys with each flag, such as `began_before`."""
        from pyspark.sql import functions as F

        sums = [F.count_if(name).alias(name) for name in FLAGS]
        row = self._journeys.agg(*sums, F.count("*").alias("keys")).first()
        assert row is not None
        return {**{name: row[name] for name in FLAGS}, "keys": row["keys"] - row["began_before"]}

    @cached_property
    def path_count(self) -> int:
        """Number of different paths of the keys whose journeys began in the requested time."""
        return self._journeys.where("NOT began_before").select("path").distinct().count()

    def first_keys_of_paths(
        self, paths: Sequence[Sequence[str]], limit: int
    ) -> Mapping[tuple[str, ...], Sequence[str]]:
        """Return, for each given path, its first `limit` keys, in key order."""
        from commitlake.pipelines.journeys.spark_journeys import first_keys_of

        found: dict[tuple[str, ...], list[str]] = {tuple(path): [] for path in paths}
        for row in first_keys_of(self._journeys, paths, limit).collect():
            found[tuple(row["path"])].append(row["key"])
        return found

    def paths(self, limit: int | None) -> Sequence[Row]:
        """Return paths from topic to topic, the most frequent first: at most `limit`, or all if it is None."""
        from commitlake.pipelines.journeys.spark_journeys import paths_of

        found = paths_of(self._journeys)
        return _table_to_rows((found if limit is None else found.limit(limit)).toArrow())

    def hops(self) -> Sequence[Row]:
        """Return pairs of topics that keys passed one after the other, the most frequent first."""
        from pyspark.sql import functions as F

        from commitlake.pipelines.journeys.spark_journeys import sum_hops

        found = sum_hops(self.rows.where("key IS NULL")).select(_HOP_NAMES)
        return _table_to_rows(found.orderBy(F.col("hops").desc(), "source", "target").toArrow())

    def find_misfit_keys(self, criteria: MisfitRules, limit: int | None) -> MisfitKeys:
        """Return the keys whose journeys do not fit the criteria, in key order: at most `limit`, or all without it."""
        from commitlake.pipelines.journeys.spark_journeys import misfits_of

        misfits = misfits_of(self._journeys, criteria).select(*_KEY_NAMES)
        if limit is not None:
            return MisfitKeys(_table_to_rows(misfits.limit(limit).toArrow()), misfits.count())
        found = MisfitKeys(())
        found.rows = _rows_of_frame(misfits, found)
        return found


def _rows_of_frame(frame: DataFrame, found_keys: MisfitKeys) -> Iterator[Row]:
    """Yield the rows of a DataFrame, fetched batch by batch to save memory, and count them."""
    from commitlake.pipelines.journeys.spark_journeys import batches_of

    for batch in batches_of(frame):
        found_keys.count += batch.num_rows
        yield from rows_of_batches([batch], 0)


def _first_rows_after_reading_all(rows: Iterator[Row], limit: int) -> Sequence[Row]:
    """Read all rows, so that a total over them is complete, and return the first ones."""
    found = list(islice(rows, limit))
    for _ in rows:
        pass
    return found


def _table_to_rows(table: pa.Table) -> list[Row]:
    return list(rows_of_batches(table.to_batches(), 0))
