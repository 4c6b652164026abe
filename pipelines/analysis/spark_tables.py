"""The tables of a lake as lazy DataFrames of a Spark session, also of Spark Connect."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from commitlake.connectors.catalog.names import SchemaName, lake_root_of_table
from commitlake.connectors.lake.archive_commits import ArchiveCommit, StoreProgress
from commitlake.connectors.lake.lake import BODIES, Lake, NoTableError, PinnedLake
from commitlake.connectors.lake.packs.body_batches import BodyForm
from commitlake.connectors.lake.packs.location import OWN_PACKS, PackLocation, pack_location
from commitlake.connectors.lake.packs.spark_reader import with_bodies
from commitlake.connectors.lake.paths import LakeError
from commitlake.connectors.lake.snapshot_tables import OFFSETS
from commitlake.connectors.lake.spark_reader import column_in_values, selection_condition, table_name
from commitlake.connectors.lake.sql import Engine, quote_column_name
from commitlake.connectors.spark.classic_session import EXECUTION_ERRORS
from commitlake.connectors.spark.connect_session import is_connect
from commitlake.connectors.spark.runner import SparkRunner
from commitlake.connectors.spark.worker_check import choose_python
from commitlake.connectors.storage.errors import ObjectStoreError
from commitlake.connectors.storage.uris import absolute_path_or_uri
from commitlake.connectors.worker_errors import forward_worker_errors
from commitlake.pipelines.analysis.arrow_lag import HistoryPlan, plan_lag_history
from commitlake.pipelines.analysis.arrow_tables import add_body_columns, find_key_column, no_edges_message
from commitlake.pipelines.analysis.lag_arguments import LagHistoryQuestion, LagQuestion
from commitlake.pipelines.analysis.spark_lag import PinnedTables, StoredMinutes, lag_frame
from commitlake.pipelines.dead_letters.dead_letter_rows import computed_columns_sql
from commitlake.pipelines.journeys.journeys_query import JourneysQuestion
from commitlake.pipelines.journeys.spark_journeys import hops_of, journeys_and_hop_counts_of, journeys_of
from commitlake.pipelines.lineage.history_reader import STORY_TABLES
from commitlake.pipelines.lineage.message_history import Question
from commitlake.pipelines.lineage.story_rows import read_lineage
from commitlake.pipelines.tps.rates_query import OriginalTopicShare, RatesQuestion
from commitlake.pipelines.transforms.columns import to_columns
from commitlake.pipelines.transforms.dead_letters import with_dead_letter_columns
from commitlake.pipelines.transforms.rates import compute_rates, count_by_window
from commitlake.schemas.errors import UsageError
from commitlake.schemas.layouts.rocketmq.topics import Kind
from commitlake.schemas.selection import Selection
from commitlake.schemas.tables.columns import Columns
from commitlake.schemas.tables.dead_letters import DEAD_LETTERS
from commitlake.schemas.tables.lake_tables import LAKE_TABLES, LakeTable
from commitlake.schemas.tables.lineage import LINEAGE
from commitlake.schemas.tables.rates import RATE_COUNTS
from commitlake.schemas.tables.spark_schemas import spark_schema
from commitlake.schemas.times import epoch_us

_MICROSECOND = datetime.timedelta(microseconds=1)
_ABSENT = {"42P01", "42K03", "42704", None}
"""States of errors for a table, path or schema that does not exist; None from servers that do not send the state."""


@dataclass(frozen=True, slots=True)
class SparkTables:
    """Reads the tables of a lake as Spark DataFrames.

    Attributes:
        spark: the session, with Delta Lake. Its own credentials and catalogs are used.
        place: the lake, or the schema of the session's catalog that has its tables.
        packs: location of the packs of such a schema; by default the folder `bodies` beside the tables.
    """

    spark: SparkSession
    place: Lake | SchemaName
    packs: PackLocation = OWN_PACKS

    def table(self, table: LakeTable) -> DataFrame:
        """Return a lake's table as a DataFrame.

        Raises:
            NoTableError: if the lake does not have the table yet.
            LakeError: if the session cannot open `messages` either.
        """
        found, reason = self._try_open(table)
        if found is not None:
            return to_columns(found, table.columns)
        # Only if there are messages is a missing table one that has not been written yet.
        if table.name != "messages":
            messages, _ = self._try_open(LAKE_TABLES["messages"])
            if messages is not None:
                raise NoTableError(
                    f"Spark cannot open the table {table.name!r} of the lake {self._lake_name}: {reason}; a table is "
                    "created when something is first written to it"
                )
        raise LakeError(
            f"Spark cannot open the lake {self._lake_name}: {reason}. Check that the name is that of a lake"
        )

    def empty(self, table: LakeTable) -> DataFrame:
        """Return a table of the lake without its rows, as a DataFrame."""
        return self.spark.createDataFrame([], spark_schema(table.columns))

    def messages(self, selection: Selection, columns: Columns, body_form: BodyForm | None) -> DataFrame:
        """Return the selected messages, with bodies in the given form; without bodies if `body_form` is None.

        Raises:
            LakeError: if the session cannot open the table.
            CatalogError: if bodies are wanted, and the catalog's location of the table is not that of a lake.
        """
        found = self.table(LAKE_TABLES["messages"]).where(selection_condition(selection))
        return self._with_bodies(found, columns, body_form)

    def dead_letters(self, selection: Selection, body_form: BodyForm | None) -> DataFrame:
        """Return the selected dead letters, with bodies in the given form; without bodies if `body_form` is None.

        Args:
            selection: the selection; its topics are those that the messages were sent to.
            body_form: form of the bodies; None for none.

        Raises:
            LakeError: if the session cannot open the table.
            CatalogError: if bodies are wanted, and the catalog's location of the table is not that of a lake.
        """
        dead = replace(selection, topics=(), kinds=[Kind.DLQ])
        computed = computed_columns_sql(None, Engine.SPARK)
        found = with_dead_letter_columns(self.table(LAKE_TABLES["messages"]).where(selection_condition(dead)), computed)
        if selection.topics:
            found = found.where(column_in_values("origin_topic", selection.topics))
        return self._with_bodies(found, DEAD_LETTERS, body_form)

    def _with_bodies(self, selected_messages: DataFrame, columns: Columns, body_form: BodyForm | None) -> DataFrame:
        names = [quote_column_name(name, Engine.SPARK) for name in columns.names]
        if body_form is None:
            return selected_messages.select(*names)
        choose_python(self.spark)
        needed = [quote_column_name(name, Engine.SPARK) for name in add_body_columns(columns).names]
        return with_bodies(selected_messages.select(*needed), self._find_packs(), body_form=body_form).select(
            *names, "body", "body_error"
        )

    def rates(self, question: RatesQuestion, groups: Sequence[str]) -> DataFrame:
        """Return the number and the rates of messages by group and time window.

        Args:
            question: the question, with windows.
            groups: names of the columns of its groups.

        Raises:
            LakeError: if the session cannot open `messages`.
        """
        messages, minutes = self.table(LAKE_TABLES["messages"]), self._try_open(LAKE_TABLES["topic_minutes"])[0]
        tables = {"messages": messages, "topic_minutes": minutes}
        question = replace(
            question,
            is_by_second=question.is_by_second or minutes is None,
            origins=OriginalTopicShare.SOME,  # a column that the lake lacks is null here
            engine=Engine.SPARK,
        )
        parts = []
        for part in question.partial_counts():
            rows = tables[part.table]
            assert rows is not None
            counts = {name: part.sums[name] for name in RATE_COUNTS.names}
            keys = dict(zip(groups, part.groups, strict=True))
            of_messages = part.table == "messages"
            time = "store_timestamp" if of_messages else "minute"
            wanted = rows.where(selection_condition(part.selection, has_dates=of_messages, time_column=time)).where(
                part.more
            )
            parts.append(count_by_window(wanted, keys, part.window, counts))
        start_us, end_us = epoch_us(question.start), epoch_us(question.end)
        assert question.window is not None
        return compute_rates(parts, groups, question.window // _MICROSECOND, start_us, end_us)

    def lag(self, question: LagQuestion) -> DataFrame:
        """Return the lag of consumer groups, at one time or at the end of each time window.

        All tables are read at the versions that they have now, whenever the DataFrame is used.

        Raises:
            NoTableError: if the lake has no snapshots of consumer groups.
            LakeError: if the session cannot open a table.
        """
        plan, versions = self._plan_stored_lag(question)
        messages, version = self._open_pinned("messages", versions.get("messages"))
        names = ("subscriptions", "store_config", OFFSETS)
        there = names if plan is None else set(names) & set(versions)
        tables = {name: self._open_pinned(name, versions.get(name))[0] if name in there else None for name in names}
        offsets = tables[OFFSETS]
        if messages is None or offsets is None:
            offsets = self.table(LAKE_TABLES[OFFSETS])  # raises the error
            messages = self.table(LAKE_TABLES["messages"])
        pinned = PinnedTables(
            offsets, messages, tables["subscriptions"], tables["store_config"], self._read_progress_at(version)
        )
        minutes = None if plan is None else self._open_pinned("lag_minutes", versions["lag_minutes"])[0]
        stored = None if plan is None or minutes is None else StoredMinutes(minutes, plan.brokers, plan.covered)
        return lag_frame(self.spark, pinned, question, stored)

    def _plan_stored_lag(self, question: LagQuestion) -> tuple[HistoryPlan | None, Mapping[str, int]]:
        """Return which lag of a history `lag_minutes` has, and the version of each table for which this is known.

        Which minutes are up to date is in the logs of the tables, which Spark's SQL does not show. So it is only known
        of a lake that also this process can read; elsewhere, the lag is computed.
        """
        nothing: dict[str, int] = {}
        if not isinstance(question, LagHistoryQuestion) or not isinstance(self.place, Lake):
            return None, nothing
        lake = self.place.pin_versions()
        try:
            stored = lake.find("lag_minutes")
            # The same path may be another lake on the machine of a remote session.
            if stored is None or not self._is_same_table(LAKE_TABLES["lag_minutes"], stored):
                return None, nothing
            plan = plan_lag_history(lake, question)
        except (ObjectStoreError, NoTableError, OSError):
            return None, nothing
        if not plan.covered:
            return None, nothing
        opened = {name: lake.find(name) for name in ("messages", "subscriptions", "store_config", OFFSETS)}
        versions = {name: table.version() for name, table in opened.items() if table is not None}
        return plan, {**versions, "lag_minutes": stored.version()}

    def _is_same_table(self, table: LakeTable, opened: DeltaTable) -> bool:
        """Return whether the session has the same table as this process."""
        if self._try_open(table)[0] is None:
            return False
        row = self.spark.sql(f"DESCRIBE DETAIL {self._sql_name(table)}").first()
        return row is not None and row["id"] == str(opened.metadata().id)

    def journeys(self, question: JourneysQuestion) -> DataFrame:
        """Return, for each business key with a record in a time window, its path over topics and its outcome.

        Raises:
            NoTableError: if the lake has no `edges`.
            LakeError: if the session cannot open a table.
        """
        return journeys_of(*self._records_and_edges(question), question)

    def hops(self, question: JourneysQuestion, window_us: int | None) -> DataFrame:
        """Return, for each time window, how often and how fast business keys go from one topic to the next.

        If `window_us` is None, the whole time range is one window.

        The tables are read at the versions that they have now, whenever the DataFrame is used.

        Raises:
            NoTableError: if the lake has no `edges`.
            LakeError: if the session cannot open a table.
        """
        return hops_of(*self._records_and_edges(question), question, window_us)

    def lineage(self, keys: Sequence[str] | DataFrame, question: Question) -> DataFrame:
        """Return the histories of the messages of business keys, one row for each step.

        Tasks read the files of the lake, at the versions that its tables have now.

        Args:
            keys: texts, or a DataFrame whose only column, or the one with the name `key`, has them.
            question: a question about one of them; its other values hold for all.

        Raises:
            LakeError: if the session cannot open `messages`.
            CatalogError: if the catalog's location of the table is not that of a lake.
            UsageError: if the DataFrame has no such column.
        """
        if isinstance(keys, Sequence):
            keys = self.spark.createDataFrame([(key,) for key in keys], "key string")
        if not isinstance(keys, DataFrame):
            raise UsageError(f"keys: expected texts or a DataFrame of Spark, found {type(keys).__name__}")
        column = F.col(quote_column_name(find_key_column(keys.columns), Engine.SPARK))
        frame = keys.select(column.alias("key"))
        if not isinstance(frame.schema["key"].dataType, StringType):
            raise UsageError(
                f"keys: expected a column of texts, found the type {frame.schema['key'].dataType.simpleString()}"
            )
        lake = self._pin_story_tables()
        choose_python(self.spark)
        # With an explicit number, because Spark would otherwise merge partitions by their small size.
        divided = frame.where("key IS NOT NULL").repartition(SparkRunner(self.spark).cores, "key").distinct()
        computed = divided.mapInArrow(partial(_lineage_batches, lake, question), spark_schema(LINEAGE))
        return to_columns(computed, LINEAGE)

    def _pin_story_tables(self) -> PinnedLake:
        """Return the lake for tasks that read message histories, with the versions that its tables have now.

        They are those that this process finds, as tasks do; of another machine's files or of a catalog, those that the
        session finds, which takes longer.
        """
        if isinstance(self.place, Lake) and not is_connect(self.spark):
            lake = replace(self.place, root=self._find_root()).pin_versions()
            lake.table("messages")  # raises an error if there is none
            for name in STORY_TABLES:
                lake.find(name)
            return lake
        self.table(LAKE_TABLES["messages"])
        versions = {name: self._open_pinned(name)[1] for name in STORY_TABLES}
        s3 = self.place.s3 if isinstance(self.place, Lake) else None
        return PinnedLake(self._find_root(), s3, versions={name: each for name, each in versions.items() if each >= 0})

    def journeys_and_hop_counts(self, question: JourneysQuestion, versions: Mapping[str, int]) -> DataFrame:
        """Return the paths of business keys, and counts of their hops between topics, as rows of one DataFrame.

        See `journeys_and_hop_counts_of`.

        Args:
            question: the question.
            versions: versions at which tables are read, by name.

        Raises:
            NoTableError: if the lake has no `edges`.
            LakeError: if the session cannot open a table.
        """
        return journeys_and_hop_counts_of(*self._records_and_edges(question, versions), question)

    def _records_and_edges(
        self, question: JourneysQuestion, versions: Mapping[str, int] = MappingProxyType({})
    ) -> tuple[DataFrame, DataFrame]:
        """Return the rows of `messages` from which journeys of keys are computed, and the table `edges`."""
        messages, edges = (self._open_pinned(name, versions.get(name))[0] for name in ("messages", "edges"))
        if messages is None:
            messages = self.table(LAKE_TABLES["messages"])  # raises the error
        if edges is None:
            raise NoTableError(no_edges_message(self._lake_name))
        choose_python(self.spark)
        wanted = question.selection
        chosen = selection_condition(replace(wanted, topics=(), start=question.read_begin, end=question.read_end))
        if wanted.topics:
            messages = messages.withColumn("origin_topic", F.coalesce("origin_topic", "topic"))
            chosen = chosen & column_in_values("origin_topic", wanted.topics)
        return messages.where(chosen), edges

    def _open_pinned(self, name: str, version: int | None = None) -> tuple[DataFrame | None, int]:
        """Return a table at a Delta version, by default the newest one, and that version.

        The table is None if it does not exist.
        """
        table = LAKE_TABLES[name]
        if self._try_open(table)[0] is None:
            return None, -1
        if version is None:
            row = self.spark.sql(f"DESCRIBE HISTORY {self._sql_name(table)} LIMIT 1").first()
            assert row is not None
            version = int(row["version"])
        found = self.spark.read.option("versionAsOf", version).table(self._sql_name(table))
        return to_columns(found, table.columns), version

    def _read_progress_at(self, version: int) -> Mapping[str, StoreProgress]:
        """Return how far each store was archived when `messages` had a given version."""
        history = self.spark.sql(f"DESCRIBE HISTORY {self._sql_name(LAKE_TABLES['messages'])}")
        commits = history.where((F.col("version") <= version) & F.col("userMetadata").contains('"commitlake"'))
        for row in commits.orderBy(F.col("version").desc()).select("userMetadata").toLocalIterator():
            commit = ArchiveCommit.from_metadata(row["userMetadata"])
            if commit is not None:
                return commit.stores
        return {}

    def _sql_name(self, table: LakeTable) -> str:
        """Return the name by which SQL in the session refers to a table."""
        place = self.place
        if isinstance(place, SchemaName):
            return f"`{place.catalog}`.`{place.schema}`.`{table.name}`"
        return table_name(place.uri(table.name))

    @property
    def _lake_name(self) -> str:
        return str(self.place) if isinstance(self.place, SchemaName) else self.place.root

    def _try_open(self, table: LakeTable) -> tuple[DataFrame | None, str]:
        """Return a table as a DataFrame; if it does not exist, None and the reason.

        Only the schema is read, no Spark job runs.

        Raises:
            LakeError: if the session cannot open it for another reason, such as a missing permission or a damaged log.
        """
        try:
            found = self.spark.table(self._sql_name(table))
            found.schema  # noqa: B018 (Spark Connect opens the table only now)
        except EXECUTION_ERRORS as error:
            reason = _error_sentence(error)
            # Other errors, such as a lack of permission, must not look like a missing table.
            if isinstance(error, AnalysisException) and error.getSqlState() in _ABSENT:
                return None, reason
            raise LakeError(f"Spark cannot open the table {table.name!r} of {self._lake_name}: {reason}") from error
        return found, ""

    def _find_packs(self) -> PackLocation:
        packs = self.place.packs if isinstance(self.place, Lake) else self.packs
        if isinstance(self.place, Lake) or packs.root:
            return pack_location(absolute_path_or_uri(packs.root), packs.s3)  # workers have other working folders
        return pack_location(f"{self._find_root()}/{BODIES}")

    def _find_root(self) -> str:
        """Return the path or URI of the lake for workers, which have other working folders."""
        if isinstance(self.place, Lake):
            return absolute_path_or_uri(self.place.root)
        row = self.spark.sql(f"DESCRIBE DETAIL {self._sql_name(LAKE_TABLES['messages'])}").first()
        assert row is not None
        return lake_root_of_table(row["location"], "messages")


def _lineage_batches(lake: Lake, question: Question, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    with forward_worker_errors():
        for batch in batches:
            for table in read_lineage(lake, batch.column(0).to_pylist(), question):
                yield from table.to_batches()


def _error_sentence(error: Exception) -> str:
    """Return the message of a Spark error without the Java stack trace and the line that py4j adds."""
    lines = str(error).strip().splitlines()
    return next((line[2:] for line in lines if line.startswith(": ")), lines[0] if lines else repr(error)).rstrip(".;")
