"""Adds the messages that a lake got since the last run to the typed table of their topic.

Spark reads the data files that commits have added to `messages`, and the bodies from the packs, judges and parses the
bodies, and writes Parquet files that no table knows yet. One commit then adds these files, together with the version of
`messages` that is reached. Of two runs at once only one commits, and a run that is killed leaves files that nobody
reads. What does not fit goes to `topic_misfits` in a commit of its own: the next run adds it if this one is killed in
between, by the same schema. Changes of rows are then merged into the table of current rows, see `current_table`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from deltalake import DeltaTable
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import MapType, StringType, StructField, StructType

from commitlake.connectors.lake.added_files import AddedFiles, readable_added_files
from commitlake.connectors.lake.committer import commit_with_transaction
from commitlake.connectors.lake.erasures import APPLICATION_ID as ERASURE
from commitlake.connectors.lake.lake import Lake, PinnedLake
from commitlake.connectors.lake.packs.location import pack_location
from commitlake.connectors.lake.packs.spark_reader import map_bodies
from commitlake.connectors.lake.rows.data_files import DataFile
from commitlake.connectors.storage.uris import absolute_path_or_uri
from commitlake.pipelines.topics.body_judgement import MISFIT_FIELDS, BodyJudge
from commitlake.pipelines.topics.current_table import update_current_table
from commitlake.pipelines.topics.json_schema import JsonType, parse_json_schema
from commitlake.pipelines.topics.progress import (
    MESSAGES_ID,
    TopicProgress,
    misfits_application_id,
    read_misfits_version,
    read_topic_progress,
)
from commitlake.pipelines.topics.schema_history import TopicSchema, read_topic_schema, record_topic_schema
from commitlake.pipelines.topics.spark_tables import SparkTables, erasure_step, spark_path
from commitlake.pipelines.topics.topic_config import OnMisfit, TopicConfig, TopicConfigError
from commitlake.pipelines.transforms.typed_messages import (
    change_columns,
    change_document,
    change_rows,
    misfit_rows,
    parse_documents,
    typed_rows,
)
from commitlake.schemas.errors import CommitLakeError, ConcurrentRunError, ExitCode
from commitlake.schemas.tables.columns import Columns
from commitlake.schemas.tables.messages import MESSAGES
from commitlake.schemas.tables.spark_schemas import spark_schema
from commitlake.schemas.tables.topics import PLACE, SCHEMA_NUMBER, UNKNOWN_FIELDS

MISFITS = "topic_misfits"
_KEPT = (*(name.removeprefix("_") for name in PLACE.names), "born_host")
_READ = (*_KEPT, "body_ref", "body_crc", "body_codec")


class TopicMisfitError(CommitLakeError):
    """Error for messages that do not fit a topic with `on_misfit = "fail"`."""

    exit_code = ExitCode.DAMAGE


@dataclass(frozen=True, slots=True)
class TopicUpdate:
    """Numbers of rows and misfits that a run has added to the table of a topic.

    Attributes:
        topic: the topic.
        table: its table.
        version: version of `messages` up to which the table is derived.
        rows: number of rows that were added.
        misfits: number of messages that did not fit.
        with_unknown: number of added rows with fields that the schema lacks.
        schema: number of the schema.
    """

    topic: str
    table: str
    version: int
    rows: int = 0
    misfits: int = 0
    with_unknown: int = 0
    schema: int = 0


@dataclass(frozen=True)
class TopicTableUpdater:
    """Updates the table of one topic.

    Attributes:
        spark: the session.
        lake: the lake.
        config: how the topic is kept.
    """

    spark: SparkSession
    lake: Lake
    config: TopicConfig

    @cached_property
    def _tables(self) -> SparkTables:
        return SparkTables(self.spark, self.lake)

    def update(self, *, reads_all: bool = False) -> TopicUpdate:
        """Add the messages of the topic that its table lacks.

        Args:
            reads_all: True to read all messages again, not only new ones, and to add those that are neither rows nor
                misfits.

        Raises:
            TopicMisfitError: if a message does not fit, and the topic is to fail then; nothing was added.
            ConcurrentRunError: if another run was first.
            LakeError: if there is no lake.
            JsonSchemaError, TopicConfigError: if the schema or the primary key cannot be used.
        """
        done = self._update_rows(reads_all=reads_all)
        if self.config.changes is not None:
            schema = read_topic_schema(self.lake, self.config.table, done.schema)
            if schema is not None:
                update_current_table(self._tables, self.config, self._row_columns(schema), schema.rename)
        return done

    def _update_rows(self, *, reads_all: bool) -> TopicUpdate:
        reading = self.lake.pin_versions()
        reading.table("messages")
        progress = read_topic_progress(reading.find(self.config.lake_table))
        late_misfits = self._add_due_misfits(progress)
        new = readable_added_files(reading, -1 if reads_all else progress.version)
        new = replace(new, from_scratch=new.from_scratch or reads_all)
        if new.version <= progress.version and not new.from_scratch:
            return TopicUpdate(
                self.config.topic, self.config.table, progress.version, misfits=late_misfits, schema=progress.schema
            )
        schema = self._current_schema()
        check_is_additive(reading.find(self.config.lake_table), self._table_columns(schema), self.config)
        added = self._add_rows(reading, new, progress, schema)
        return replace(added, misfits=added.misfits + late_misfits)

    def _current_schema(self) -> TopicSchema:
        config = self.config
        try:
            text = config.schema_file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise CommitLakeError(
                f"topic {config.topic}: {config.schema_file}: expected a JSON Schema: {error}", exit_code=ExitCode.USAGE
            ) from None
        schema = parse_json_schema(text, str(config.schema_file))
        config.check_columns(schema)
        return record_topic_schema(self.lake, config.table, config.topic, text, dict(config.rename), "file")

    def _add_rows(
        self, reading: PinnedLake, new: AddedFiles, progress: TopicProgress, schema: TopicSchema
    ) -> TopicUpdate:
        config = self.config
        # A table that is made again, or went back to an earlier version in a repair, finds its misfits of then.
        recorded = read_misfits_version(reading.find(MISFITS), config.table)
        is_repeated = new.from_scratch or recorded > progress.misfits
        parsed = self._parsed_messages(reading, new, schema, is_repeated=is_repeated)
        seen = Observation()
        counted = parsed.observe(seen, F.count_if(F.col("misfit").isNotNull()).alias("misfits"))
        to_rows = typed_rows if config.changes is None else change_rows
        rows = to_rows(counted, self._document_columns(schema), schema.rename, schema.number)
        added = Observation()
        rows = rows.observe(added, F.count_if(F.col(UNKNOWN_FIELDS.name).isNotNull()).alias("with_unknown"))
        files = self._tables.write_files(rows, config.lake_table)
        misfits, with_unknown = seen.get["misfits"], added.get["with_unknown"]
        if misfits and config.on_misfit is OnMisfit.FAIL:
            raise self._misfit_error(parsed, misfits)
        newest_misfits = new.version if misfits else max(progress.misfits, recorded)
        # If this run is killed before it adds the misfits, the next one judges the same files again.
        before = -1 if new.from_scratch else progress.version
        reached = TopicProgress(new.version, before, newest_misfits, schema.number)
        self._commit(config.lake_table, files, progress, reached, reading, self._table_columns(schema))
        if misfits:
            misfits = self._add_misfits(reading, parsed, reached, schema)
        return TopicUpdate(
            config.topic, config.table, new.version, sum(file.rows for file in files), misfits, with_unknown,
            schema.number,
        )  # fmt: skip

    def _commit(
        self,
        table: str,
        files: Sequence[DataFile],
        before: TopicProgress,
        after: TopicProgress,
        reading: PinnedLake,
        columns: Columns,
    ) -> None:
        old, numbers = before.transaction_numbers(), after.transaction_numbers()
        others = {name: (old[name], number) for name, number in numbers.items() if name != MESSAGES_ID}
        others[ERASURE] = erasure_step(reading, table)
        step = (None if before.version < 0 else old[MESSAGES_ID], numbers[MESSAGES_ID])
        if not commit_with_transaction(
            self.lake, table, files, MESSAGES_ID, step, other_transactions=others, columns=columns
        ):
            raise ConcurrentRunError(
                f"{self.lake.uri(table)}: another run committed first; nothing of this run was kept. Run again"
            )

    def _add_due_misfits(self, progress: TopicProgress) -> int:
        """Add the misfits of the newest commit, if a run was killed before it did; return their number."""
        recorded = read_misfits_version(self.lake.find(MISFITS), self.config.table)
        if progress.misfits <= recorded:
            return 0
        schema = read_topic_schema(self.lake, self.config.table, progress.schema)
        assert schema is not None
        # The lake as it was at the commit, so that the same messages are judged again.
        then = PinnedLake(self.lake.root, self.lake.s3, self.lake.packs, versions={"messages": progress.version})
        new = readable_added_files(then, progress.before)
        is_repeated = new.from_scratch or progress.before < 0
        parsed = self._parsed_messages(then, new, schema, is_repeated=is_repeated)
        return self._add_misfits(then, parsed, progress, schema)

    def _add_misfits(self, reading: PinnedLake, parsed: DataFrame, progress: TopicProgress, schema: TopicSchema) -> int:
        recorded = read_misfits_version(reading.find(MISFITS), self.config.table)
        files = self._tables.write_files(misfit_rows(parsed, self.config.table, schema.number), MISFITS)
        step = (None if recorded < 0 else recorded + 1, progress.misfits + 1)
        erasure = {ERASURE: erasure_step(reading, MISFITS)}
        if not commit_with_transaction(
            self.lake, MISFITS, files, misfits_application_id(self.config.table), step, other_transactions=erasure
        ):
            raise ConcurrentRunError(f"{self.lake.uri(MISFITS)}: another run committed first. Run again")
        return sum(file.rows for file in files)

    def _misfit_error(self, parsed: DataFrame, count: int) -> TopicMisfitError:
        first = parsed.where("misfit IS NOT NULL").select("broker", "physical_offset", "misfit.*").first()
        assert first is not None
        place = f" of {first['field']}" if first["field"] else ""
        return TopicMisfitError(
            f"topic {self.config.topic}: {count:,} new messages do not fit the schema, and nothing was added, as "
            f'on_misfit is "fail". One of them is at {first["broker"]} {first["physical_offset"]}: {first["reason"]}'
            f"{place}: expected {first['expected']}, found {first['found']}"
        )

    def _parsed_messages(
        self, reading: PinnedLake, new: AddedFiles, schema: TopicSchema, *, is_repeated: bool
    ) -> DataFrame:
        """Return the topic's messages in new files, judged and parsed."""
        messages = self._new_messages(reading, new, is_repeated=is_repeated)
        row = self._document_type(schema)
        judge = BodyJudge(row, _KEPT, self.config.drop, self.config.change_reader(row))
        packs = pack_location(absolute_path_or_uri(reading.packs.root), reading.packs.s3)
        judged = map_bodies(messages, packs, judge.judge_batch, _judged_schema())
        columns = self._document_columns(schema)
        return parse_documents(judged, columns if self.config.changes is None else change_document(columns))

    def _document_type(self, schema: TopicSchema) -> JsonType:
        return parse_json_schema(schema.text, f"{self.config.table}, schema {schema.number}")

    def _document_columns(self, schema: TopicSchema) -> Columns:
        """Return the columns of the fields that are kept, by their names in the document."""
        return self.config.select_fields(self._document_type(schema)).to_columns()

    def _row_columns(self, schema: TopicSchema) -> Columns:
        """Return the columns of the fields that are kept, by their names in the table."""
        return Columns(
            column._replace(name=schema.rename.get(column.name, column.name))
            for column in self._document_columns(schema)
        )

    def _table_columns(self, schema: TopicSchema) -> Columns:
        """Return the columns of the topic's table."""
        columns = self._row_columns(schema)
        if self.config.changes is not None:
            return change_columns(columns)
        return Columns([*columns, *PLACE, UNKNOWN_FIELDS, SCHEMA_NUMBER])

    def _new_messages(self, reading: PinnedLake, new: AddedFiles, *, is_repeated: bool) -> DataFrame:
        """Return the topic's messages in new files, without erased ones.

        Args:
            reading: the lake.
            new: the files.
            is_repeated: whether the files may have messages that the table or `topic_misfits` already has.
        """
        read = spark_schema(MESSAGES.select_columns(["topic", *(name for name in _READ if name != "topic")]))
        if not new.files:
            return self.spark.createDataFrame([], read)
        paths = [spark_path(file.path) for file in new.files]
        rows = self.spark.read.schema(read).parquet(*paths).where(F.col("topic") == F.lit(self.config.topic))
        rows = self._tables.without_erased(rows, reading)
        if is_repeated:
            for name, broker, offset in (
                (self.config.lake_table, "_broker", "_physical_offset"), (MISFITS, "broker", "physical_offset"),
            ):  # fmt: skip
                if reading.find(name) is not None:
                    there = self._tables.read_table(reading, name)
                    if name == MISFITS:
                        there = there.where(F.col("topic_table") == F.lit(self.config.table))
                    places = there.select(F.col(broker).alias("broker"), F.col(offset).alias("physical_offset"))
                    rows = rows.join(places, ["broker", "physical_offset"], "left_anti")
        return rows.select(*_READ)


def _judged_schema() -> StructType:
    texts = StructType([StructField(name, StringType()) for name in MISFIT_FIELDS])
    unknown = MapType(StringType(), StringType(), valueContainsNull=False)
    kept = spark_schema(MESSAGES.select_columns(_KEPT))
    added = [StructField("document", StringType()), StructField("misfit", texts), StructField("unknown", unknown)]
    return StructType([*kept.fields, *added])


def check_is_additive(table: DeltaTable | None, columns: Columns, config: TopicConfig) -> None:
    """Refuse columns of other types than those that the table of a topic has.

    Raises:
        TopicConfigError: if there is one.
    """
    if table is None:
        return
    old = {field["name"]: field["type"] for field in json.loads(table.schema().to_json())["fields"]}
    for each in json.loads(columns.to_json())["fields"]:
        known = old.get(each["name"], each["type"])
        if known != each["type"]:
            raise TopicConfigError(
                f"topic {config.topic}: the column {each['name']} of {config.lake_table}: expected the type that it "
                f"has, {json.dumps(known)[:200]}, found {json.dumps(each['type'])[:200]}. Rename the field, or name "
                "another table"
            )
