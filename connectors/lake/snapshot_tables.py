"""The tables `consumer_offsets` and `subscriptions`: reading their newest rows and history, and adding rows.

Rows of one store are added by compare-and-set on Delta's transaction number of that store, as each row only says what
has changed since the last one: of two snapshots at once, one is repeated.
"""

from __future__ import annotations

import datetime
import secrets

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from commitlake.connectors.lake.committer import advance, open_or_create
from commitlake.connectors.lake.paths import LakePaths
from commitlake.connectors.lake.plain_files import write_plain_file
from commitlake.connectors.lake.reader import NoTableError, open_table, run_sql
from commitlake.connectors.lake.sql import text_literal, timestamp_literal
from commitlake.schemas.tables.consumer_offsets import CONSUMER_OFFSETS
from commitlake.schemas.tables.subscriptions import SUBSCRIPTIONS

OFFSETS, SUBSCRIBED = "consumer_offsets", "subscriptions"
SNAPSHOT_TABLES: dict[str, StructType] = {OFFSETS: CONSUMER_OFFSETS, SUBSCRIBED: SUBSCRIPTIONS}
_KEYS = {
    OFFSETS: ("broker", "kind", "group", "topic", "queue_id"),
    SUBSCRIBED: ("broker", "source", "group", "topic"),
}


def open_snapshots(lake: LakePaths, name: str) -> DeltaTable | None:
    """Open a table of snapshots; return None if the lake does not have it yet.

    Raises:
        LakeError: There is no lake.
    """
    try:
        return open_table(lake, name)
    except NoTableError:
        return None


def version_of(table: DeltaTable | None, broker: str) -> int | None:
    """Return a store's transaction number; None if the table has no row of the store."""
    return None if table is None else table.transaction_version(_application(broker))


def newest_rows(table: DeltaTable, name: str, broker: str, until: datetime.datetime | None = None) -> pa.Table:
    """Return the last row of each key of a store at or before a time."""
    before = [] if until is None else [f"as_of <= {timestamp_literal(until)}"]
    return _ranked(table, name, [_of(broker), *before], "DESC")


def next_rows(table: DeltaTable, name: str, broker: str, after: datetime.datetime) -> pa.Table:
    """Return the first row of each key of a store after a time."""
    return _ranked(table, name, [_of(broker), f"as_of > {timestamp_literal(after)}"], "ASC")


def rows_between(
    table: DeltaTable, name: str, broker: str, start: datetime.datetime, end: datetime.datetime
) -> pa.Table:
    """Return a store's rows in an inclusive time range, oldest first."""
    times = f"as_of >= {timestamp_literal(start)} AND as_of <= {timestamp_literal(end)}"
    sql = f"SELECT * FROM {name} WHERE {_of(broker)} AND {times} ORDER BY as_of"
    # The engine gives texts in a form that Arrow's functions do not all know.
    return run_sql(table, name, sql).read_all().cast(to_arrow_schema(SNAPSHOT_TABLES[name], timezone="UTC"))


def snapshot_brokers(table: DeltaTable, name: str) -> list[str]:
    """Return the sorted names of the stores that have snapshots in a table."""
    found = run_sql(table, name, f"SELECT DISTINCT broker FROM {name} ORDER BY broker").read_all()
    names: list[str] = found.column("broker").to_pylist()
    return names


def _of(broker: str) -> str:
    return f"broker = {text_literal(broker)}"


def _ranked(table: DeltaTable, name: str, conditions: list[str], order: str) -> pa.Table:
    """Return the first row of each key, in an order of time."""
    keys = ", ".join(f'"{key}"' for key in _KEYS[name])
    sql = (
        f"SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY {keys} ORDER BY as_of {order}) AS place "
        f"FROM {name} WHERE {' AND '.join(conditions)}) WHERE place = 1"
    )
    return run_sql(table, name, sql).read_all().drop_columns(["place"])


def append_snapshot(lake: LakePaths, name: str, broker: str, rows: pa.Table, version: int | None) -> bool:
    """Add rows of one store, unless another process has added some first.

    Args:
        lake: where the tables lie.
        name: of the table.
        broker: the store's name.
        rows: of the table's columns.
        version: from `version_of`, of the table that the rows were compared with.

    Returns:
        Whether they were added; another process was first if not, and nothing has changed.
    """
    uri, schema = getattr(lake, name), SNAPSHOT_TABLES[name]
    open_or_create(uri, schema)
    rows = rows.cast(to_arrow_schema(schema, timezone="UTC"))
    file = write_plain_file(rows, uri, f"part-{secrets.token_hex(16)}.zstd.parquet", s3=lake.s3)
    return advance(uri, schema, [file], _application(broker), (version, (version or 0) + 1))


def _application(broker: str) -> str:
    return f"commitlake.snapshot/{broker}"
