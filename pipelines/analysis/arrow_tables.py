"""The tables of a lake as Arrow tables, read by this process without a JVM."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.lake.follower_progress import check_is_up_to_date
from commitlake.connectors.lake.lake import Lake, NoTableError
from commitlake.connectors.lake.packs.body_batches import (
    BodyForm,
    batches_with_bodies,
    convert_bodies,
    decompress_bodies,
)
from commitlake.connectors.lake.packs.pack_stores import open_pack_store
from commitlake.connectors.lake.packs.reader import FrameCache
from commitlake.connectors.lake.reader import run_sql, run_sql_over_tables
from commitlake.connectors.lake.sql import Engine, in_condition, quote_column_name, text_literal
from commitlake.connectors.reading.decoding.bodies import DEFAULT_MAX_BYTES
from commitlake.pipelines.analysis.arrow_lag import lag_table
from commitlake.pipelines.analysis.lag_arguments import LagQuestion
from commitlake.pipelines.dead_letters.dead_letter_rows import computed_columns_sql
from commitlake.pipelines.journeys.arrow_journeys import (
    count_hops,
    hops_table,
    journeys_table,
    sorted_key_rows,
    sum_hop_counts,
)
from commitlake.pipelines.journeys.journeys_query import JourneysQuestion
from commitlake.pipelines.journeys.key_records import KeyRecords
from commitlake.pipelines.journeys.sql_statements import SourceTables
from commitlake.pipelines.lineage.message_history import Question
from commitlake.pipelines.lineage.story_rows import read_lineage
from commitlake.pipelines.query.engines import TableQuery
from commitlake.pipelines.query.key_conditions import business_keys_condition, unique_key_condition
from commitlake.pipelines.tps.rates_query import OriginalTopicShare, PartialCount, RatesQuestion
from commitlake.schemas.errors import UsageError
from commitlake.schemas.layouts.rocketmq.topics import Kind
from commitlake.schemas.selection import Selection
from commitlake.schemas.tables.columns import TEXT, Column, Columns
from commitlake.schemas.tables.dead_letters import DEAD_LETTERS
from commitlake.schemas.tables.lake_tables import LakeTable
from commitlake.schemas.tables.messages import MESSAGES
from commitlake.schemas.tables.rates import RATE_COUNTS, rate_columns
from commitlake.schemas.times import epoch_us

_PLACE = ("pack", "frame_offset", "offset")
_BATCH_ROWS = 65_536
_MICROSECOND = datetime.timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class ArrowTables:
    """Reads the tables of a lake as Arrow tables.

    Attributes:
        lake: the lake.
    """

    lake: Lake

    def table(self, table: LakeTable) -> pa.Table:
        """Return all rows of a lake's table.

        Raises:
            NoTableError: if the lake does not have the table yet.
            LakeError: if there is no lake, or no permission.
        """
        return self._select_columns(table.name, table.columns, ())

    def empty(self, table: LakeTable) -> pa.Table:
        """Return a table of the lake without its rows."""
        return arrow_schema(table.columns).empty_table()

    def messages(self, selection: Selection, columns: Columns, body_form: BodyForm | None) -> pa.Table:
        """Return the selected messages, with bodies in the given form; without bodies if `body_form` is None.

        Raises:
            LakeError: if there is no lake, or no permission.
            QueryError: if the predicate of the selection is not valid.
            PackError: if a body is not available.
        """
        return self._read_messages(selection, columns, body_form, {}, ())

    def dead_letters(self, selection: Selection, body_form: BodyForm | None) -> pa.Table:
        """Return the selected dead letters, with bodies in the given form; without bodies if `body_form` is None.

        Args:
            selection: the selection; its topics are those that the messages were sent to.
            body_form: form of the bodies; None for none.

        Raises:
            LakeError: if there is no lake, or no permission.
            QueryError: if the predicate of the selection is not valid.
            PackError: if a body is not available.
        """
        computed = computed_columns_sql(self.lake.table("messages"))
        topics = [text_literal(topic) for topic in selection.topics]
        more = [in_condition(computed["origin_topic"], topics)] if topics else []
        return self._read_messages(
            replace(selection, topics=(), kinds=[Kind.DLQ]), DEAD_LETTERS, body_form, computed, more
        )

    def _read_messages(
        self,
        selection: Selection,
        columns: Columns,
        body_form: BodyForm | None,
        computed_columns: Mapping[str, str],
        extra_conditions: Sequence[str],
    ) -> pa.Table:
        where = [*self._message_conditions(selection, columns.names), *extra_conditions]
        if body_form is None:
            return self._select_columns("messages", columns, where, computed_columns)
        found = self._select_columns("messages", add_body_columns(columns), where, computed_columns)
        batches = [
            batch.select([*columns.names, "body", "body_error"]) for batch in self._with_bodies(found, body_form)
        ]
        return pa.Table.from_batches(batches)

    def rates(self, question: RatesQuestion, groups: Sequence[str]) -> pa.Table:
        """Return the number and the rates of messages by group and time window.

        Args:
            question: the question, with windows.
            groups: names of the columns of its groups.

        Raises:
            LakeError: if there is no lake, or no permission.
            QueryError: if the predicate of the selection is not valid.
            LogDamagedError: if `topic_minutes` has lost rows of finished runs.
        """
        if not question.is_by_second:
            check_is_up_to_date(self.lake, "topic_minutes")
        tables = {name: self.lake.find(name) for name in ("messages", "topic_minutes")}
        messages = tables["messages"] or self.lake.table("messages")
        columns = {field.name for field in messages.schema().fields}
        question = replace(
            question,
            is_by_second=question.is_by_second or tables["topic_minutes"] is None,
            origins=OriginalTopicShare.SOME if "origin_topic" in columns else OriginalTopicShare.NONE,
            has_formats="format" in columns,
        )
        keys = [f"g{number}" for number in range(len(groups))] + ["window_start"]
        parts = " UNION ALL ".join(_partial_count_sql(part, keys) for part in question.partial_counts())
        counts = [f"coalesce(sum({name}), 0) AS {name}" for name in RATE_COUNTS.names]
        sql = f"SELECT {', '.join([*keys, *counts])} FROM ({parts}) GROUP BY {', '.join(keys)}"
        there = {name: table for name, table in tables.items() if table is not None}
        counted = (
            run_sql_over_tables(there, sql).read_all().rename_columns([*groups, "window_start", *RATE_COUNTS.names])
        )
        return _add_rates(counted, question, groups)

    def lag(self, question: LagQuestion) -> pa.Table:
        """Return the lag of consumer groups, at one time or at the end of each time window.

        Raises:
            NoTableError: if the lake has no snapshots of consumer groups.
            LakeError: if there is no lake, or no permission.
        """
        return lag_table(self.lake, question)

    def journeys(self, question: JourneysQuestion) -> pa.Table:
        """Return, for each business key with a record in a time window, its path over topics and its outcome.

        Raises:
            NoTableError: if the lake has no `edges`.
            LakeError: if there is no lake, or no permission.
            QueryError: if the predicate of the selection is not valid.
        """
        with self.key_records(question) as records:
            return pa.concat_tables(
                journeys_table(sorted_key_rows(each, question), question) for each in records.iterate_slices()
            )

    def hops(self, question: JourneysQuestion, window_us: int | None) -> pa.Table:
        """Return, for each time window, how often and how fast business keys go from one topic to the next.

        If `window_us` is None, the whole time range is one window.

        Raises:
            NoTableError: if the lake has no `edges`.
            LakeError: if there is no lake, or no permission.
            QueryError: if the predicate of the selection is not valid.
        """
        with self.key_records(question, question.until_us) as records:
            slices = (sorted_key_rows(each, question) for each in records.iterate_slices())
            return hops_table(sum_hop_counts(count_hops(each, question, window_us) for each in slices))

    def lineage(self, keys: Sequence[str] | pa.Table, question: Question) -> pa.Table:
        """Return the histories of the messages of business keys, one row for each step.

        Args:
            keys: texts, or a table whose only column, or the one with the name `key`, has them.
            question: a question about one of them; its other values hold for all.

        Raises:
            LakeError: if there is no lake, or no permission.
            UsageError: if the table has no such column.
        """
        if not isinstance(keys, Sequence):
            if not isinstance(keys, pa.Table):
                raise UsageError(f"keys: expected texts or a pyarrow.Table, found {type(keys).__name__}")
            column = keys.column(find_key_column(keys.column_names))
            if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
                raise UsageError(f"keys: expected a column of texts, found the type {column.type}")
            keys = [key for key in column.unique().to_pylist() if key is not None]
        return pa.concat_tables(read_lineage(self.lake, list(dict.fromkeys(keys)), question))

    def key_records(self, question: JourneysQuestion, end_us: int | None = None) -> KeyRecords:
        """Return a context manager that reads the records of the business keys of a query, in slices.

        Args:
            question: the question.
            end_us: time up to which records are read; None for the end of the margin.

        Raises:
            NoTableError: if the lake has no `edges`.
            LakeError: if there is no lake, or no permission.
        """
        messages, edges = self.lake.table("messages"), self.lake.find("edges")
        if edges is None:
            raise NoTableError(no_edges_message(self.lake.root))
        wanted = question.selection
        where = self._message_conditions(
            replace(wanted, topics=(), start=question.read_begin, end=question.read_end), ()
        )
        if wanted.topics:
            where.append(in_condition("coalesce(origin_topic, topic)", map(text_literal, wanted.topics)))
        rows = f"(SELECT * FROM {_table_sql(messages, 'messages', MESSAGES)} WHERE {' AND '.join(where)})"
        return KeyRecords({"messages": messages, "edges": edges}, SourceTables(rows, "edges"), question, end_us)

    def _message_conditions(self, selection: Selection, column_names: Sequence[str]) -> list[str]:
        """Return the SQL conditions by which a selection applies to rows of `messages`.

        Args:
            selection: the selection.
            column_names: columns that are wanted.
        """
        query = TableQuery(
            "messages",
            selection,
            column_names,
            (),
            0,
            key_places=business_keys_condition(self.lake, selection.keys) if selection.keys else None,
            unique_key_places=partial(unique_key_condition, self.lake),
        )
        return query.where_conditions(Engine.DELTALAKE)

    def _select_columns(
        self,
        table_name: str,
        columns: Columns,
        conditions: Iterable[str],
        computed_columns: Mapping[str, str] = MappingProxyType({}),
    ) -> pa.Table:
        """Return columns of a table's rows that meet SQL conditions; a column that the lake lacks is null.

        Args:
            computed_columns: SQL of columns that are computed, by name.
        """
        table = self.lake.table(table_name)
        listed = ", ".join(
            f"{computed_columns.get(each) or quote_column_name(each)} AS {quote_column_name(each)}"
            for each in columns.names
        )
        condition = " AND ".join(["true", *conditions])
        source = _table_sql(table, table_name, columns)
        found = run_sql(table, table_name, f"SELECT {listed} FROM {source} WHERE {condition}").read_all()
        # The engine returns texts as views, which not all functions of Arrow accept.
        return found.cast(arrow_schema(columns))

    def _with_bodies(self, rows: pa.Table, body_form: BodyForm) -> Iterator[pa.RecordBatch]:
        """Yield rows with their bodies, grouped by pack so that each compressed frame of a pack is read once."""
        store, cache = open_pack_store(self.lake.packs), FrameCache()
        batches = _sort_by_pack(rows).to_batches(max_chunksize=_BATCH_ROWS)
        # At least one batch, from which the result has its schema.
        for batch in batches or [pa.RecordBatch.from_pylist([], rows.schema)]:
            if not batch.num_rows:
                empty = batch.append_column("body", pa.nulls(0, pa.binary()))
                yield convert_bodies(empty.append_column("body_error", pa.nulls(0, pa.string())), body_form)
            for stored in batches_with_bodies(batch, store, cache):
                yield from (convert_bodies(each, body_form) for each in decompress_bodies(stored, DEFAULT_MAX_BYTES))


def find_key_column(names: Sequence[str]) -> str:
    """Return the name of the column of a table that has business keys: its only one, or `key`.

    >>> find_key_column(["order_no"])
    'order_no'
    >>> find_key_column(["amount", "key"])
    'key'

    Raises:
        UsageError: if there is none.
    """
    if len(names) == 1:
        return names[0]
    if names.count("key") != 1:
        raise UsageError(f"keys: expected one column, or a column 'key', found {', '.join(names)}")
    return "key"


def no_edges_message(lake: str) -> str:
    """Return the text of the error for a lake without the table `edges`."""
    return (
        f"the lake {lake} has no table 'edges', which journeys need; 'commitlake archive --lake LAKE --backfill edges' "
        "builds it"
    )


def _table_sql(table: DeltaTable, table_name: str, columns: Columns) -> str:
    """Return SQL that reads a table with all the given columns; those that an older lake lacks are null."""
    there = {field.name for field in table.schema().fields}
    # Conditions may name columns that an older lake lacks.
    lacking = [
        f"{_typed_null_sql(each)} AS {quote_column_name(each.name)}" for each in columns if each.name not in there
    ]
    return f"(SELECT *, {', '.join(lacking)} FROM {table_name})" if lacking else table_name


def _typed_null_sql(column: Column) -> str:
    return "CAST(NULL AS VARCHAR)" if column.type == TEXT else "NULL"


def _partial_count_sql(partial_count: PartialCount, keys: Sequence[str]) -> str:
    columns = [f"{sql} AS {key}" for sql, key in zip([*partial_count.groups, partial_count.window], keys, strict=True)]
    counts = [f"{partial_count.sums[name]} AS {name}" for name in RATE_COUNTS.names]
    grouped = ", ".join(str(number + 1) for number in range(len(keys)))
    selected = f"SELECT {', '.join([*columns, *counts])} FROM {partial_count.table}"
    return f"{selected} WHERE {partial_count.where} GROUP BY {grouped}"


def _add_rates(window_counts: pa.Table, question: RatesQuestion, groups: Sequence[str]) -> pa.Table:
    """Add to each count the length of its window within the queried time range, and the rates per second."""
    assert question.window is not None
    opened = window_counts.column("window_start").cast(pa.int64())
    ended = pc.add(opened, question.window // _MICROSECOND)
    ended = pc.min_element_wise(ended, epoch_us(question.end))
    length = pc.subtract(ended, pc.max_element_wise(opened, epoch_us(question.start)))
    seconds = pc.divide(length.cast(pa.float64()), 1e6)
    window_counts = window_counts.append_column("seconds", seconds)
    for name in ("messages", "bytes"):
        rate = pc.divide(window_counts.column(name).cast(pa.float64()), seconds)
        window_counts = window_counts.append_column(f"{name}_per_s", rate)
    return window_counts.cast(arrow_schema(rate_columns(groups)))


def add_body_columns(columns: Columns) -> Columns:
    """Return the given columns of `messages`, followed by those that are needed to read bodies."""
    needed = (name for name in ("body_ref", "body_crc", "body_codec") if name not in columns.names)
    return Columns([*columns, *MESSAGES.select_columns(needed)])


def _sort_by_pack(rows: pa.Table) -> pa.Table:
    if not rows.num_rows:
        return rows
    places = rows.column("body_ref").combine_chunks()
    keys = pa.table({name: pc.struct_field(places, name) for name in _PLACE})
    order: Sequence[tuple[str, str]] = [(name, "ascending") for name in _PLACE]
    return rows.take(pc.sort_indices(keys, sort_keys=order)).combine_chunks()
