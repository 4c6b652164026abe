"""Journeys for the command `journeys`, computed in this process or on Spark, as rows for people and programs."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.lake.sql import conditions
from commitlake.jobs.journeys.arguments import JourneysOptions
from commitlake.jobs.report.rows_output import rows_of_batches
from commitlake.pipelines.journeys.misfits import (
    Misfits,
    misfits_of_table,
    paths_of_table,
)
from commitlake.pipelines.journeys.question import JourneysQuestion
from commitlake.schemas.selection import Selection
from commitlake.schemas.tables.journeys import HOPS, JOURNEYS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from commitlake.connectors.lake.lake import Lake
    from commitlake.pipelines.analysis.arrow_tables import ArrowTables
    from commitlake.pipelines.analysis.spark_tables import SparkTables

Row = Mapping[str, Any]
FLAGS = ("began_before", "is_cut", "order_uncertain")
_HOP_NAMES = [name for name in HOPS.names if name not in {"hour", "delays"}]
_KEY_NAMES = ["key", "reasons", *JOURNEYS.without("key", "steps").names]
_OLD = datetime.timedelta(minutes=10)


class Answer(Protocol):
    """Journeys of a question, by either engine."""

    @property
    def counts(self) -> Mapping[str, int]:
        """Number of `keys` that began in the window, of those that `began_before`, and of the other flags of keys."""

    def paths(self, limit: int | None) -> Sequence[Row]:
        """Return paths, the most frequent first; None for all."""

    def hops(self) -> Sequence[Row]:
        """Return hops from topic to topic over all the time, the most frequent first."""

    def misfits(self, wanted: Misfits, limit: int | None) -> tuple[int, Sequence[Row]]:
        """Return the number of keys that do not fit, and some of them in the order of keys; None for all."""


@dataclass(frozen=True)
class KnownTimes:
    """Times until which records of the brokers are known.

    Attributes:
        until: store time of the newest record that was read.
        older: that of brokers whose newest record is at least ten minutes older.
    """

    until: datetime.datetime
    older: Mapping[str, datetime.datetime]


def known_times(lake: Lake, question: JourneysQuestion) -> KnownTimes:
    """Return until when the records are known that a question reads."""
    where = " AND ".join(conditions(Selection(start=question.begin, end=question.end)))
    sql = f"SELECT broker, max(store_timestamp) AS newest FROM messages WHERE {where} GROUP BY broker ORDER BY broker"
    rows = run_sql(lake.table("messages"), "messages", sql).read_all().to_pylist()
    newest = {row["broker"]: row["newest"] for row in rows}
    until = max(newest.values(), default=question.since)
    return KnownTimes(until, {broker: time for broker, time in newest.items() if time + _OLD < until})


def open_answer(command: JourneysOptions, lake: Lake, question: JourneysQuestion) -> Answer:
    """Return the journeys of a question, computed by the engine that the command names."""
    if not command.is_on_spark:
        from commitlake.pipelines.analysis.arrow_tables import ArrowTables

        return ArrowAnswer(ArrowTables(lake), question)
    from commitlake.jobs.arguments.runner import get_spark_session
    from commitlake.pipelines.analysis.spark_tables import SparkTables

    return SparkAnswer(SparkTables(get_spark_session("journeys", lake.s3), lake), question)


@dataclass(frozen=True)
class ArrowAnswer:
    """Journeys computed in this process.

    Attributes:
        tables: the tables of the lake.
        question: the question.
    """

    tables: ArrowTables
    question: JourneysQuestion

    @cached_property
    def journeys(self) -> pa.Table:
        """All journeys, without their steps."""
        return self.tables.journeys(self.question).drop_columns("steps")

    @property
    def counts(self) -> Mapping[str, int]:
        """Number of keys, see `Answer`."""
        sums = {name: int(pc.sum(self.journeys.column(name)).as_py() or 0) for name in FLAGS}
        return {**sums, "keys": self.journeys.num_rows - sums["began_before"]}

    def paths(self, limit: int | None) -> Sequence[Row]:
        """Return paths, see `Answer`."""
        return _rows(paths_of_table(self.journeys).slice(0, limit))

    def hops(self) -> Sequence[Row]:
        """Return hops, see `Answer`."""
        found = self.tables.hops(self.question, None)
        order: Any = [("hops", "descending"), ("source", "ascending"), ("target", "ascending")]
        return _rows(found.select(_HOP_NAMES).sort_by(order))

    def misfits(self, wanted: Misfits, limit: int | None) -> tuple[int, Sequence[Row]]:
        """Return keys that do not fit, see `Answer`."""
        found = misfits_of_table(self.journeys, wanted)
        return found.num_rows, _rows(found.select(_KEY_NAMES).slice(0, limit))


@dataclass(frozen=True)
class SparkAnswer:
    """Journeys computed by Spark, anew for each part of the answer.

    Attributes:
        tables: the tables of the lake.
        question: the question.
    """

    tables: SparkTables
    question: JourneysQuestion

    @property
    def _journeys(self) -> DataFrame:
        return self.tables.journeys(self.question)

    @cached_property
    def counts(self) -> Mapping[str, int]:
        """Number of keys, see `Answer`."""
        from pyspark.sql import functions as F

        sums = [F.count_if(name).alias(name) for name in FLAGS]
        row = self._journeys.agg(*sums, F.count("*").alias("keys")).first()
        assert row is not None
        return {**{name: row[name] for name in FLAGS}, "keys": row["keys"] - row["began_before"]}

    def paths(self, limit: int | None) -> Sequence[Row]:
        """Return paths, see `Answer`."""
        from commitlake.pipelines.journeys.frames import paths_of

        found = paths_of(self._journeys)
        return _rows((found if limit is None else found.limit(limit)).toArrow())

    def hops(self) -> Sequence[Row]:
        """Return hops, see `Answer`."""
        from pyspark.sql import functions as F

        found = self.tables.hops(self.question, None).select(_HOP_NAMES)
        return _rows(found.orderBy(F.col("hops").desc(), "source", "target").toArrow())

    def misfits(self, wanted: Misfits, limit: int | None) -> tuple[int, Sequence[Row]]:
        """Return keys that do not fit, see `Answer`."""
        from commitlake.pipelines.journeys.frames import misfits_of

        found = misfits_of(self._journeys.drop("steps"), wanted).select(*_KEY_NAMES)
        if limit is None:
            rows = _rows(found.toArrow())
            return len(rows), rows
        return found.count(), _rows(found.limit(limit).toArrow())


def _rows(table: pa.Table) -> list[Row]:
    return list(rows_of_batches(table.to_batches(), 0))
