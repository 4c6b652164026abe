"""Queries on one table, run with the deltalake package in this process, with Spark, or in HBase."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from deltalake import DeltaTable

from commitlake.connectors.lake.archive_commits import newest_commit
from commitlake.connectors.lake.delta_log.check import WAY_OUT, LogDamagedError
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.lake.sql import Engine, id_conditions, join_with_or, quote_column_name, selection_conditions
from commitlake.schemas.selection import Selection


@dataclass(frozen=True, slots=True)
class TableQuery:
    """A query on one table: conditions, columns, order and limit.

    Attributes:
        table: name of the table in the lake.
        selection: the wanted messages; of other tables than `messages`, the rows that its conditions describe.
        columns: columns to return.
        order: columns to sort by, followed by `DESC` for descending order; nulls come last.
        limit: maximum number of rows; 0 for no limit.
        count: True to return only the number of rows.
        key_places: SQL for the locations of the messages of the wanted keys, if known.
        unique_key_places: function that returns such SQL for one of the wanted ids as a client's id. If there is only
            one, it is called only if no message has the id as its offset message id.
    """

    table: str
    selection: Selection
    columns: Sequence[str]
    order: Sequence[str]
    limit: int
    count: bool = False
    key_places: str | None = None
    unique_key_places: Callable[[str], str | None] | None = None

    def statements(self, table_name: str, engine: Engine) -> Iterator[str]:
        """Yield SQL statements to run one after another, until one of them finds rows."""
        if len(self.selection.ids) != 1 or self.count:
            yield self._select_sql(table_name, self.where_conditions(engine), engine)
            return
        fixed = self._common_conditions(engine)
        for condition in self._id_conditions(self.selection.ids[0], engine):
            yield self._select_sql(table_name, [*fixed, condition], engine)

    def where_conditions(self, engine: Engine) -> list[str]:
        """Return the SQL conditions of the query.

        Each message id is searched both as a broker's and as a client's id.
        """
        if not self.selection.ids:
            return self._common_conditions(engine)
        wanted = [f"({part})" for each in self.selection.ids for part in self._id_conditions(each, engine)]
        return [*self._common_conditions(engine), join_with_or(wanted)]

    def _common_conditions(self, engine: Engine) -> list[str]:
        places = [] if self.key_places is None else [self.key_places]
        return selection_conditions(replace(self.selection, ids=()), engine) + places

    def _id_conditions(self, message_id: str, engine: Engine) -> Iterator[str]:
        *by_offset, by_unique_key = id_conditions(message_id, engine)
        yield from by_offset
        places = None if self.unique_key_places is None else self.unique_key_places(message_id)
        yield by_unique_key if places is None else f"({by_unique_key} AND {places})"

    def _select_sql(self, table_name: str, where: Sequence[str], engine: Engine) -> str:
        condition = f" WHERE {' AND '.join(where)}" if where else ""
        if self.count:
            return f"SELECT count(*) FROM {table_name}{condition}"
        columns = ", ".join(quote_column_name(column, engine) for column in self.columns)
        order = ", ".join(_sort_key(key, engine) for key in self.order)
        limit = f" LIMIT {self.limit}" if self.limit else ""
        return f"SELECT {columns} FROM {table_name}{condition} ORDER BY {order}{limit}"


def _sort_key(key: str, engine: Engine) -> str:
    column, _, direction = key.partition(" ")
    return f"{quote_column_name(column, engine)} {direction or 'ASC'} NULLS LAST"


def query_deltalake(query: TableQuery, table: DeltaTable) -> Iterator[pa.RecordBatch]:
    """Run the query with deltalake's own SQL engine, and return the resulting rows batch by batch."""
    sorts_all = not query.limit and not query.count
    statements = query.statements(query.table, Engine.DELTALAKE)
    return _first_nonempty_answer(run_sql(table, query.table, sql, sorts_large_result=sorts_all) for sql in statements)


def query_spark(query: TableQuery, lake: Lake) -> Iterator[pa.RecordBatch]:
    """Run the query with Spark, and return the resulting rows batch by batch."""
    from commitlake.connectors.lake.spark_reader import run_spark_sql, table_name
    from commitlake.connectors.spark.session import get_session

    spark = get_session("query", lake.s3)
    uri = lake.uri(query.table)
    statements = query.statements(table_name(uri), Engine.SPARK)
    return _first_nonempty_answer(run_spark_sql(spark, sql, [uri]) for sql in statements)


def run_select(lake: Lake, table: str, sql: str, engine: Engine) -> Iterator[pa.RecordBatch]:
    """Run an SQL query on one table of the lake, which it calls by its name, and return the rows batch by batch.

    Raises:
        QueryError: if the engine cannot parse or answer it.
        LakeError: if there is no lake, or no such table.
    """
    if engine is Engine.DELTALAKE:
        return iter(run_sql(lake.table(table), table, sql))
    from commitlake.connectors.lake.spark_reader import run_spark_select
    from commitlake.connectors.spark.session import get_session

    return run_spark_select(get_session("query", lake.s3), sql, {table: lake.uri(table)})[1]


def query_hbase(query: TableQuery, address: str, table_name: str | None) -> Iterator[pa.RecordBatch]:
    """Look up messages in HBase, and yield the resulting rows batch by batch."""
    from commitlake.connectors.hbase.client import Client
    from commitlake.connectors.hbase.lookups import find_messages
    from commitlake.connectors.hbase.options import HBaseOptions

    with Client(HBaseOptions.of_address(address, **({"table": table_name} if table_name else {}))) as client:
        batches = find_messages(client, query.selection, 0 if query.count else query.limit)
        if query.count:
            yield pa.RecordBatch.from_pydict({"count": [sum(batch.num_rows for batch in batches)]})
            return
        for batch in batches:
            yield batch.select(list(query.columns))


def _first_nonempty_answer(answers: Iterable[Iterable[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    """Yield the batches of the first query result that has rows; later queries are not run."""
    for answer in answers:
        found = False
        for batch in answer:
            found = found or batch.num_rows > 0
            yield batch
        if found:
            return


def hbase_lag_sentence(lake: Lake, table: DeltaTable, address: str, table_name: str | None) -> str:
    """Return a sentence if HBase lacks the newest versions of `messages`; empty if it is up to date.

    Args:
        table: the open table `messages`.
        address: HOST[:PORT] of HBase's Thrift server.
        table_name: name of the table in HBase, None for the default.

    Raises:
        LogDamagedError: if `messages` has lost versions that HBase has.
    """
    from commitlake.connectors.hbase.client import Client
    from commitlake.connectors.hbase.options import HBaseOptions
    from commitlake.connectors.hbase.progress import read_progress

    newest = newest_commit(lake, table)
    if newest is None:
        return ""
    version, commit = newest
    with Client(HBaseOptions.of_address(address, **({"table": table_name} if table_name else {}))) as client:
        progress = read_progress(client)
    found = None if progress is None else progress.version
    if progress is not None and progress.followed != str(table.metadata().id):
        return "the table in HBase has followed another lake"
    if found is not None and version <= found <= table.version():
        return ""
    if found is not None and found > lake.open_log("messages").list_entry_files().newest_version:
        raise LogDamagedError(
            f"{table.table_uri}: the newest version in its _delta_log is {table.version()}, but HBase was loaded up to "
            f"version {found}: the last entries of the log are lost. {WAY_OUT}"
        )
    where = "is being loaded for the first time" if found is None else f"has followed messages to version {found}"
    return f"HBase {where}, expected version {version}, of archive run {commit.sequence}"
