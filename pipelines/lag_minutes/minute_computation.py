"""Computes the rows of `lag_minutes` for a range of minutes within an hour.

A minute is not computed if nothing was stored, snapshotted or configured since the minute before, and no message waits:
then nothing can have changed. While messages wait, verdicts may change by time alone.
"""

from __future__ import annotations

import datetime
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from commitlake.connectors.arrays_without_pandas import rows_to_dicts
from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.lake.lake import Lake, PinnedLake
from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.lake.rows.data_files import DataFile
from commitlake.connectors.lake.rows.small_table_files import write_plain_file
from commitlake.connectors.lake.snapshot_tables import OFFSETS, SUBSCRIBED
from commitlake.connectors.lake.sql import date_literal, text_literal, timestamp_literal
from commitlake.pipelines.lag.group_lag import LagRow
from commitlake.pipelines.lag.group_summaries import GROUP_KINDS
from commitlake.pipelines.lag.lag_at_many_times import StoreLag
from commitlake.pipelines.lag.queue_lag_rows import queue_lag_row
from commitlake.pipelines.lag.subscriptions import MAX_AGE
from commitlake.schemas.tables.lag_minutes import KEY, LAG_MINUTES, MINUTE_SECONDS, REPEATED_MINUTES
from commitlake.schemas.tables.lake_tables import LAKE_TABLES
from commitlake.schemas.times import EPOCH, epoch_us

MINUTE = datetime.timedelta(seconds=MINUTE_SECONDS)
SCHEMA = arrow_schema(LAG_MINUTES)
MINUTE_US = MINUTE_SECONDS * 1_000_000
_ROW_GROUP_ROWS = 1 << 17
Row = Mapping[str, Any]
Key = tuple[Any, ...]


def minute_time(minute: int) -> datetime.datetime:
    """Return the time of a minute, which is given as a number of minutes since 1970."""
    return EPOCH + minute * MINUTE


def first_minute_at(time: datetime.datetime) -> int:
    """Return the first minute at or after a time, as a number of minutes since 1970."""
    return -(-epoch_us(time) // MINUTE_US)


def last_minute_at(time: datetime.datetime) -> int:
    """Return the last minute at or before a time, as a number of minutes since 1970."""
    return epoch_us(time) // MINUTE_US


class MinuteRange(NamedTuple):
    """Minutes of a store within an hour, as numbers of minutes since 1970.

    Attributes:
        broker: the store's name.
        first: the first minute.
        last: the last minute.
    """

    broker: str
    first: int
    last: int


def split_by_hour(broker: str, first_minute: int, last_minute: int) -> Iterator[MinuteRange]:
    """Divide a store's range of minutes at whole hours.

    >>> [(part.first, part.last) for part in split_by_hour("broker-a", 58, 121)]
    [(58, 59), (60, 119), (120, 121)]
    """
    while first_minute <= last_minute:
        end = min(last_minute, first_minute - first_minute % REPEATED_MINUTES + REPEATED_MINUTES - 1)
        yield MinuteRange(broker, first_minute, end)
        first_minute = end + 1


@dataclass(frozen=True, slots=True)
class MinutesTask:
    """Task that computes the lag at some minutes, and writes the rows to a data file; picklable."""

    lake: Lake

    def write_minutes_file(self, minutes: MinuteRange) -> DataFile | None:
        """Compute the lag at some minutes, and write it to an uncommitted data file; None if there are no rows."""
        rows = pa.Table.from_pylist(list(compute_minute_rows(self.lake.pin_versions(), minutes)), SCHEMA)
        if not rows.num_rows:
            return None
        name = f"part-{minutes.first}-{secrets.token_hex(8)}.zstd.parquet"
        return write_plain_file(sort_rows(rows), self.lake, "lag_minutes", name, row_group_rows=_ROW_GROUP_ROWS)


def sort_rows(rows: pa.Table) -> pa.Table:
    """Sort rows of `lag_minutes` in the order of its data files."""
    return rows.sort_by([(name, "ascending") for name in LAKE_TABLES["lag_minutes"].sort_columns])


def compute_minute_rows(lake: PinnedLake, minutes: MinuteRange) -> Iterator[Row]:
    """Yield the rows of `lag_minutes` for a store's minutes within an hour.

    Args:
        lake: the lake; it has snapshots of the store.
        minutes: the minutes.
    """
    before = minute_time(minutes.first - 1)
    lag = StoreLag(lake, minutes.broker, before, minute_time(minutes.last))
    changing = _find_changing_minutes(lake, minutes)
    known = _rows_by_key(lag.lag_rows_at(before))
    for minute in range(minutes.first, minutes.last + 1):
        time = minute_time(minute)
        is_quiet = minute not in changing and not any(map(_has_waiting_messages, known.values()))
        now = known if is_quiet else _rows_by_key(lag.lag_rows_at(time))
        # A reader then needs the rows of one hour only, whenever the last change was.
        is_repeated = minute % REPEATED_MINUTES == 0
        of_minute = {"minute": time, "within_hour": not is_repeated}
        for key, row in now.items():
            earlier = known.get(key)
            if is_repeated or earlier is None or _has_row_changed(earlier, row, time):
                yield {**row, **of_minute, "consumed": _count_consumed_messages(earlier, row)}
        # A row without figures ends a queue; otherwise its last row would hold until the end of the hour.
        for key in known.keys() - now.keys():
            yield {**dict(zip(KEY, key, strict=True)), **of_minute}
        known = now


def _rows_by_key(rows: Sequence[LagRow]) -> dict[Key, Row]:
    found = (
        {**queue_lag_row(row), "minute": row.as_of, "broadcasts": row.broadcasts, "verdict": str(row.judged.verdict)}
        for row in rows
        if row.kind in GROUP_KINDS
    )
    return {tuple(row[name] for name in KEY): row for row in found}


def _has_waiting_messages(row: Row) -> bool:
    return bool(row["messages_max"] is None or row["messages_max"])


def row_at_later_minute(row: Row, time: datetime.datetime) -> Row:
    """Return a row as of a later minute, with a longer waiting time, if nothing has changed in between."""
    seconds = (time - row["minute"]).total_seconds()
    least, most = row["time_lag_s_min"], row["time_lag_s_max"]
    if row["messages_min"]:
        least = _add_seconds(least, seconds)
    if most is not None and row["next_message_time"] is not None:
        most = _add_seconds(most, seconds)
    return {**row, "minute": time, "time_lag_s_min": least, "time_lag_s_max": most}


def _add_seconds(lag_seconds: float, seconds: float) -> float:
    """Add seconds to a lag in seconds, and round the sum to whole milliseconds."""
    return round((lag_seconds + seconds) * 1000) / 1000


def _has_row_changed(earlier_row: Row, row: Row, time: datetime.datetime) -> bool:
    carried = row_at_later_minute(earlier_row, time)
    return any(carried[name] != value for name, value in row.items() if name not in {"minute", "as_of"})


def _count_consumed_messages(earlier_row: Row | None, row: Row) -> int | None:
    # Offsets that were set back consume nothing.
    return None if earlier_row is None else max(0, row["offset_min"] - earlier_row["offset_min"])


def _find_changing_minutes(lake: PinnedLake, minutes: MinuteRange) -> set[int]:
    """Return the minutes in a range just before which messages, snapshots or settings were added.

    Clients that have not been seen for a while are no longer known, so a snapshot of clients has an effect later, too.
    """
    after, until = minute_time(minutes.first - 1), minute_time(minutes.last)
    of_broker = f"broker = {text_literal(minutes.broker)}"
    found: set[int] = set()
    counted = f"(arrow_cast(store_timestamp, 'Int64') + {MINUTE_US - 1}) / {MINUTE_US}"
    stored = f"{_between_condition('store_timestamp', after, until)} AND store_date BETWEEN {date_literal(after)} AND "
    sql = f"SELECT DISTINCT {counted} AS minute FROM messages WHERE {of_broker} AND {stored}{date_literal(until)}"
    found.update(run_sql(lake.table("messages"), "messages", sql).read_all().column("minute").to_pylist())
    for table, column, effects in (
        (OFFSETS, "as_of", (datetime.timedelta(0),)),
        (SUBSCRIBED, "as_of", (datetime.timedelta(0), MAX_AGE)),
        ("store_config", "recorded_at", (datetime.timedelta(0),)),
    ):
        opened = lake.find(table)
        if opened is None:
            continue
        # One minute more, since a time at the end of the minute before has an effect in the first minute, too.
        where = f"{of_broker} AND {_between_condition(column, after - MINUTE - max(effects), until)}"
        sql = f"SELECT DISTINCT {column} AS time FROM {table} WHERE {where}"
        for row in rows_to_dicts(run_sql(opened, table, sql).read_all()):
            # At the time itself, and right after it, which differs if it is a whole minute.
            found.update(first_minute_at(row["time"] + effect) for effect in effects)
            found.update(last_minute_at(row["time"] + effect) + 1 for effect in effects)
    return found


def _between_condition(column: str, after: datetime.datetime, until: datetime.datetime) -> str:
    return f"{column} > {timestamp_literal(after)} AND {column} <= {timestamp_literal(until)}"
