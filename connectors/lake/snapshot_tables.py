"""The tables `consumer_offsets` and `subscriptions`: reading their newest rows and history, and adding rows.

Rows of one store are added by compare-and-set on Delta's transaction number of that store, because each row contains
only changes since the previous one. If two snapshots run at once, one of them is repeated.
"""

from __future__ import annotations

import datetime
import secrets
from collections.abc import Iterable, Mapping

import pyarrow as pa
from deltalake import DeltaTable

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.lake.committer import commit_with_transaction, open_or_create_table
from commitlake.connectors.lake.lake import Lake, NoTableError
from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.lake.rows.small_table_files import write_plain_file
from commitlake.connectors.lake.sql import text_literal, timestamp_literal
from commitlake.schemas.tables.lake_tables import LAKE_TABLES
from commitlake.schemas.tables.offset_snapshots import LEAST_OFFSET

_GROUP_KIND = "group"
OFFSETS, SUBSCRIBED = "consumer_offsets", "subscriptions"


def open_snapshots(lake: Lake, table_name: str) -> DeltaTable | None:
    """Open a table with periodic snapshots of brokers' offsets or subscriptions; None if the lake does not have it yet.

    Raises:
        LakeError: There is no lake.
    """
    try:
        return lake.table(table_name)
    except NoTableError:
        return None


def snapshot_version(table: DeltaTable | None, broker: str) -> int | None:
    """Return the Delta transaction number of a store's newest snapshot; None if the table has no row of the store."""
    return None if table is None else table.transaction_version(snapshot_application_id(broker))


def newest_rows(table: DeltaTable, table_name: str, brokers: Iterable[str]) -> pa.Table:
    """Return the newest recorded row for each key, such as each group and queue, of the given stores."""
    among = f"broker IN ({', '.join(map(text_literal, brokers))})"
    return _one_row_per_key(table, table_name, [among], "last_value")


def first_rows_after(table: DeltaTable, table_name: str, broker: str, start_time: datetime.datetime) -> pa.Table:
    """Return, for each key of a store, such as a group and queue, the first row that was recorded after a time."""
    return _one_row_per_key(
        table, table_name, [_broker_condition(broker), f"as_of > {timestamp_literal(start_time)}"], "first_value"
    )


def read_snapshot_headers(table: DeltaTable, broker: str) -> pa.Table:
    """Return the header rows of a store's snapshots, one per snapshot: `kind`, `as_of`, `log_end`, `log_start`."""
    where = f"{_broker_condition(broker)} AND topic IS NULL"
    sql = f"SELECT kind, as_of, log_end, log_start FROM {OFFSETS} WHERE {where} ORDER BY as_of"
    return _query_offsets(table, sql)


def offsets_at_two_times(
    table: DeltaTable, broker: str, offset_kind: str, time: datetime.datetime, earlier_time: datetime.datetime
) -> pa.Table:
    """Return a store's offsets as they were at `time`, together with those at `earlier_time`.

    The engine aggregates all rows in one pass; a window function took four times as long.

    Args:
        broker: The store's name.
        offset_kind: The kind of the offsets.
        time: The time.
        earlier_time: A time before it.

    Returns:
        `group`, `topic`, `queue_id`, `offset` and `earlier_time`, which is null if there was none; sorted by position.
    """
    sql = (
        'SELECT "group", topic, queue_id, last_value("offset" ORDER BY as_of) AS "offset", '
        f'last_value("offset" ORDER BY as_of) FILTER (WHERE as_of <= {timestamp_literal(earlier_time)}) AS earlier '
        f"FROM {OFFSETS} WHERE {_offsets_condition(broker, offset_kind)} "
        f'AND as_of <= {timestamp_literal(time)} GROUP BY "group", topic, queue_id ORDER BY "group", topic, queue_id'
    )
    return _query_offsets(table, sql)


def read_offset_changes(
    table: DeltaTable, broker: str, offset_kind: str, start_time: datetime.datetime, end_time: datetime.datetime
) -> pa.Table:
    """Return a store's offsets that changed in a time range, as its snapshots recorded them, oldest first.

    Returns:
        `group`, `topic`, `queue_id`, `offset` and `as_of`.
    """
    times = f"as_of > {timestamp_literal(start_time)} AND as_of <= {timestamp_literal(end_time)}"
    sql = (
        f'SELECT "group", topic, queue_id, "offset", as_of FROM {OFFSETS} '
        f"WHERE {_offsets_condition(broker, offset_kind)} AND {times} ORDER BY as_of"
    )
    return _query_offsets(table, sql)


def rows_between(
    table: DeltaTable, table_name: str, broker: str, start: datetime.datetime, end: datetime.datetime | None
) -> pa.Table:
    """Return a store's rows from `start` to `end` (inclusive), oldest first; without `end`, all from `start` on."""
    times = f"as_of >= {timestamp_literal(start)}"
    times += "" if end is None else f" AND as_of <= {timestamp_literal(end)}"
    sql = f"SELECT * FROM {table_name} WHERE {_broker_condition(broker)} AND {times} ORDER BY as_of"
    # The engine returns texts as string views, which not all functions of Arrow support.
    return run_sql(table, table_name, sql).read_all().cast(arrow_schema(LAKE_TABLES[table_name].columns))


def snapshot_brokers(table: DeltaTable, table_name: str) -> list[str]:
    """Return the sorted names of the stores that have rows in a table of snapshots."""
    sql = f"SELECT DISTINCT broker FROM {table_name} WHERE broker IS NOT NULL ORDER BY broker"
    found = run_sql(table, table_name, sql).read_all()
    names: list[str] = found.column("broker").to_pylist()
    return names


def _broker_condition(broker: str) -> str:
    """Return the SQL condition for the rows of a store."""
    return f"broker = {text_literal(broker)}"


def _one_row_per_key(table: DeltaTable, table_name: str, conditions: list[str], aggregate_function: str) -> pa.Table:
    """Return the first or the last recorded row, by time, of each key."""
    declared = LAKE_TABLES[table_name]
    keys = ", ".join(f'"{key}"' for key in declared.key)
    columns = declared.columns.names
    others = [column for column in columns if column not in declared.key]
    values = ", ".join(f'{aggregate_function}("{column}" ORDER BY as_of) AS "{column}"' for column in others)
    sql = f"SELECT {keys}, {values} FROM {table_name} WHERE {' AND '.join(conditions)} GROUP BY {keys}"
    return run_sql(table, table_name, sql).read_all().select(columns)


def _offsets_condition(broker: str, offset_kind: str) -> str:
    """Return the SQL condition for a store's offsets of one kind, which excludes the header rows of snapshots.

    Rows without a group or a queue, or with an offset far below zero, are left out: only other programs write them.
    """
    is_possible = f'"group" IS NOT NULL AND queue_id >= 0 AND ("offset" IS NULL OR "offset" >= {LEAST_OFFSET})'
    is_of_kind = f"{_broker_condition(broker)} AND kind = {text_literal(offset_kind)} AND topic IS NOT NULL"
    return f"{is_of_kind} AND {is_possible}" if offset_kind == _GROUP_KIND else is_of_kind


def _query_offsets(table: DeltaTable, sql: str) -> pa.Table:
    """Query `consumer_offsets`, and convert string views, which some Arrow functions do not support."""
    rows = run_sql(table, OFFSETS, sql).read_all()
    types = {field.name: field.type for field in arrow_schema(LAKE_TABLES[OFFSETS].columns)}
    return rows.cast(pa.schema([(name, types.get(name, pa.int64())) for name in rows.column_names]))


def append_snapshots(lake: Lake, table_name: str, rows: pa.Table, expected_versions: Mapping[str, int | None]) -> bool:
    """Add rows of several stores in one commit; add none if another process was first for one of the stores.

    Args:
        table_name: name of the table.
        rows: rows with the table's columns.
        expected_versions: for each store, the result of `snapshot_version` for the table that the rows were compared
            with.

    Returns:
        True if they were added; False if another process was first, and nothing has changed.
    """
    # Before the file is written, so that what a killed process leaves is in a table's folder, where `maintain` finds
    # it.
    open_or_create_table(lake, table_name)
    rows = rows.cast(arrow_schema(LAKE_TABLES[table_name].columns))
    file = write_plain_file(rows, lake, table_name, f"part-{secrets.token_hex(16)}.zstd.parquet")
    (first, version), *others = expected_versions.items()
    # All stores in one commit: Delta refuses it if any of the numbers has risen.
    beside = {snapshot_application_id(broker): (other or 0, (other or 0) + 1) for broker, other in others}
    return commit_with_transaction(
        lake,
        table_name,
        [file],
        snapshot_application_id(first),
        (version, (version or 0) + 1),
        other_transactions=beside,
    )


def snapshot_application_id(broker: str) -> str:
    """Return the name of the Delta application whose transaction number counts a store's snapshots."""
    return f"commitlake.snapshot/{broker}"
