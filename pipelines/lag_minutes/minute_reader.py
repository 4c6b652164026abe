"""The lag at given minutes, from the rows of `lag_minutes`.

A row holds until there is another one of its group and queue, but at most for an hour. For whole hours only their own
rows are read; for other minutes, those from the hour before on.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.lake.sql import in_condition, quote_column_name, text_literal, timestamp_literal
from commitlake.connectors.numpy_arrays import Array
from commitlake.pipelines.lag_minutes.minute_computation import MINUTE_US, SCHEMA, minute_time
from commitlake.schemas.selection import Selection
from commitlake.schemas.tables.lag_minutes import KEY, REPEATED_MINUTES

_NEEDED_OF_HOURS = ("minute", "verdict")
_GROWING = ("time_lag_s_min", "time_lag_s_max")
_NEEDED_OF_MINUTES = (*KEY, *_NEEDED_OF_HOURS, *_GROWING, "messages_min", "next_message_time")


def lag_at_minutes(
    table: DeltaTable, minutes: Sequence[int], selection: Selection, columns: Sequence[str] = SCHEMA.names
) -> Iterator[pa.Table]:
    """Yield the lag at the given minutes, with columns of `lag_minutes`, one table for each minute or for full hours.

    In rows of minutes in which nothing has changed, `consumed` is 0.

    Args:
        table: `lag_minutes`.
        minutes: numbers of minutes since 1970; the table must have them for all wanted stores.
        selection: stores, groups and topics.
        columns: the columns; all by default.
    """
    of_hours: dict[int, list[int]] = defaultdict(list)
    for minute in minutes:
        of_hours[minute - minute % REPEATED_MINUTES].append(minute)
    whole = [hour for hour, found in of_hours.items() if found == [hour]]
    if whole:
        read = [name for name in SCHEMA.names if name in {*columns, *_NEEDED_OF_HOURS}]
        rows = _drop_ended_queues(
            _read_columns(table, f"NOT within_hour AND {_minutes_condition(whole)}", selection, read)
        )
        # The condition may also select other hours, see `_minutes_condition`.
        is_asked = pc.is_in(rows["minute"], pa.array(map(minute_time, whole), rows["minute"].type))
        yield rows.filter(is_asked).select(columns)
    read = [name for name in SCHEMA.names if name in {*columns, *_NEEDED_OF_MINUTES}]
    for hour, found in of_hours.items():
        if found != [hour]:
            between = f"minute >= {_minute_literal(hour)} AND minute <= {_minute_literal(max(found))}"
            rows = _read_columns(table, between, selection, read)
            yield from (at_minute.select(columns) for at_minute in _rows_at_minutes(rows, sorted(found)))


def _minute_literal(minute: int) -> str:
    return timestamp_literal(minute_time(minute))


def _minutes_condition(minutes: Sequence[int]) -> str:
    """Return an SQL condition that selects the given minutes, and perhaps other minutes between them."""
    first = min(minutes)
    between = f"minute >= {_minute_literal(first)} AND minute <= {_minute_literal(max(minutes))}"
    # Instead of a list, which is long for a year of hours: mostly, minutes are asked for at equal distances.
    step = math.gcd(*(minute - first for minute in minutes))
    since = f"arrow_cast(minute, 'Int64') - {first * MINUTE_US}"
    return f"{between} AND ({since}) % {step * MINUTE_US} = 0" if step else between


def _read_columns(table: DeltaTable, condition: str, selection: Selection, column_names: Sequence[str]) -> pa.Table:
    chosen = [
        in_condition(quote_column_name(name), map(text_literal, values))
        for name, values in (("broker", selection.brokers), ("group", selection.groups), ("topic", selection.topics))
        if values
    ]
    selected = ", ".join(map(quote_column_name, column_names))
    sql = f"SELECT {selected} FROM lag_minutes WHERE {' AND '.join([condition, *chosen])}"
    return run_sql(table, "lag_minutes", sql).read_all().cast(pa.schema([SCHEMA.field(name) for name in column_names]))


def _drop_ended_queues(rows: pa.Table) -> pa.Table:
    """Leave out the rows that only record that a group or queue no longer exists."""
    return rows.filter(pc.is_valid(rows["verdict"]))


def _rows_at_minutes(rows: pa.Table, minutes: Sequence[int]) -> Iterator[pa.Table]:
    """Yield, for each minute, the newest row of each group and queue, with its waiting time as of that minute."""
    rows = rows.combine_chunks()
    codes = _key_codes(rows)
    times = rows["minute"].cast(pa.int64()).to_numpy()
    # The rows of a queue together, in the order of time, so that its row at a minute follows from a count.
    order = np.lexsort((times, codes))
    rows, times = rows.take(pa.array(order)), times[order]
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    for minute in minutes if len(starts) else ():
        counts = np.add.reduceat((times <= minute * MINUTE_US).astype(np.int64), starts)
        last = (starts + counts - 1)[counts > 0]
        yield _row_figures_at_minute(_drop_ended_queues(rows.take(pa.array(last))), minute)


def _key_codes(rows: pa.Table) -> Array:
    """Return an integer for each row, which is the same for rows of the same group and queue."""
    codes = np.zeros(rows.num_rows, np.int64)
    for name in KEY:
        values = rows[name].cast(pa.int32()) if pa.types.is_boolean(rows[name].type) else rows[name]
        ranks = pc.rank(values, sort_keys="ascending", tiebreaker="dense").to_numpy().astype(np.int64)
        # Numbered again from 0 after each column, so that the products cannot exceed 64 bits.
        codes = np.unique(codes * (int(ranks.max(initial=0)) + 1) + ranks, return_inverse=True)[1].reshape(-1)
    return codes


def _row_figures_at_minute(rows: pa.Table, minute: int) -> pa.Table:
    """Return rows as of a later minute, with longer waiting times and no consumption since."""
    passed_us = minute * MINUTE_US - rows["minute"].cast(pa.int64()).to_numpy()
    waits = pc.fill_null(pc.greater(rows["messages_min"], 0), False).to_numpy()
    seconds = {"time_lag_s_min": waits, "time_lag_s_max": rows["next_message_time"].is_valid().to_numpy()}
    found = {name: rows[name] for name in rows.column_names}
    for name, grows in seconds.items():
        known = rows[name].fill_null(0).to_numpy()
        # Rounded like `row_at_later_minute`, so that a computed figure equals the stored one.
        later = np.where(grows & (passed_us > 0), np.round((known + passed_us / 1_000_000) * 1000) / 1000, known)
        found[name] = pa.array(later, mask=rows[name].is_null().to_numpy())
    if "consumed" in found:
        consumed = np.where(passed_us > 0, 0, rows["consumed"].fill_null(0).to_numpy())
        found["consumed"] = pa.array(consumed, mask=rows["consumed"].is_null().to_numpy() & (passed_us == 0))
    if "within_hour" in found:
        found["within_hour"] = pa.array(np.full(rows.num_rows, minute % REPEATED_MINUTES != 0))
    found["minute"] = pa.array(np.full(rows.num_rows, minute * MINUTE_US), SCHEMA.field("minute").type)
    return pa.table(found, rows.schema)
