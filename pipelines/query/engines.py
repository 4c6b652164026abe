"""Runs queries with the deltalake package in this process, with Spark, or in HBase."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from deltalake import DeltaTable

from commitlake.connectors.lake.archive_log import newest_commit
from commitlake.connectors.lake.delta import delta_table
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.log_check import WAY_OUT, LogDamagedError
from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.lake.sql import Engine
from commitlake.pipelines.query.sql import Question


def ask_deltalake(question: Question, table: DeltaTable) -> Iterator[pa.RecordBatch]:
    """Return the answer of deltalake's engine, batch by batch."""
    sorts_all = not question.limit and not question.count
    statements = question.statements(question.table, Engine.DELTALAKE)
    return _first_answer(run_sql(table, question.table, sql, sorts_all=sorts_all) for sql in statements)


def ask_spark(question: Question, lake: Lake) -> Iterator[pa.RecordBatch]:
    """Return the answer of Spark, batch by batch."""
    from commitlake.connectors.lake.spark_reader import run_spark_sql, table_name
    from commitlake.connectors.runtime.spark_session import get_session

    spark = get_session("query", lake.s3)
    uri = lake.uri(question.table)
    statements = question.statements(table_name(uri), Engine.SPARK)
    return _first_answer(run_spark_sql(spark, sql, [uri]) for sql in statements)


def select(lake: Lake, table: str, sql: str, engine: Engine) -> Iterator[pa.RecordBatch]:
    """Run SQL on one table, which the SQL calls by its name, and return the rows batch by batch.

    Raises:
        QueryError: if the engine cannot parse or answer it.
        LakeError: if there is no lake, or no such table.
    """
    if engine is Engine.DELTALAKE:
        return iter(run_sql(lake.table(table), table, sql))
    from commitlake.connectors.lake.spark_reader import run_spark_select
    from commitlake.connectors.runtime.spark_session import get_session

    return run_spark_select(get_session("query", lake.s3), sql, {table: lake.uri(table)})[1]


def ask_hbase(question: Question, address: str, table: str | None) -> Iterator[pa.RecordBatch]:
    """Yield the answer of HBase, batch by batch."""
    from commitlake.connectors.hbase.client import Client
    from commitlake.connectors.hbase.lookups import MessageConditions, look_up
    from commitlake.connectors.hbase.options import HBaseOptions

    asked = question.conditions
    wanted = MessageConditions(
        message_ids=question.message_ids,
        keys=asked.keys,
        topics=asked.topics,
        queue_ids=asked.queue_ids,
        kinds=asked.kinds,
        brokers=asked.brokers,
        start=asked.start,
        end=asked.end,
    )
    with Client(HBaseOptions.of_address(address, **({"table": table} if table else {}))) as client:
        batches = look_up(client, wanted, 0 if question.count else question.limit)
        if question.count:
            yield pa.RecordBatch.from_pydict({"count": [sum(batch.num_rows for batch in batches)]})
            return
        for batch in batches:
            yield batch.select(list(question.columns))


def _first_answer(answers: Iterable[Iterable[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    """Yield the batches of the first answer that is not empty."""
    for answer in answers:
        found = False
        for batch in answer:
            found = found or batch.num_rows > 0
            yield batch
        if found:
            return


def missing_in_hbase(table: DeltaTable, address: str, table_name: str | None) -> str:
    """Return a sentence on versions of `messages` that HBase does not have yet; empty if it has all archived messages.

    Args:
        address: HOST[:PORT] of HBase's Thrift server.
        table_name: name of the table in HBase, None for the default.

    Raises:
        LogDamagedError: if `messages` has lost versions that HBase has.
    """
    from commitlake.connectors.hbase.client import Client
    from commitlake.connectors.hbase.options import HBaseOptions
    from commitlake.connectors.hbase.progress import read_progress

    newest = newest_commit(table)
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
    if found is not None and found > delta_table(table.table_uri).version():  # by its current log
        raise LogDamagedError(
            f"{table.table_uri}: expected version {found} in its _delta_log, to which HBase has followed it, found "
            f"version {table.version()} as the newest: the last entries are lost. {WAY_OUT}"
        )
    where = "is being loaded for the first time" if found is None else f"has followed messages to version {found}"
    return f"HBase {where}, expected version {version}, of archive run {commit.sequence}"
