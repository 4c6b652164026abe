"""Journeys and hops as Arrow tables, computed by DataFusion in this process, without a JVM."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from commitlake.connectors.arrays import Array
from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.lake.reader import run_sql_over
from commitlake.connectors.lake.sql import Engine
from commitlake.connectors.plain_arrays import mask_of, numbers_of
from commitlake.pipelines.journeys.question import JourneysQuestion
from commitlake.pipelines.journeys.statements import STEP_COLUMNS, TOTALS, Sources, Statements, Sum
from commitlake.schemas.tables.columns import Columns
from commitlake.schemas.tables.journeys import HOPS, JOURNEYS, OPEN_STATES, STEP

Tables = Mapping[str, DeltaTable]
Column: TypeAlias = pa.Array | pa.ChunkedArray | Array
_REDUCE = {Sum.SUM: np.add, Sum.MIN: np.minimum, Sum.MAX: np.maximum}
_NONE = -1
"""Stands for null in columns that are summed up, none of which is negative."""


def journeys_table(tables: Tables, sources: Sources, question: JourneysQuestion) -> pa.Table:
    """Return the journeys of the keys that have a record in a window.

    Args:
        tables: tables that the sources name.
        sources: `messages` and `edges`, or queries of them.
        question: the question.

    Returns:
        A table with the columns `JOURNEYS`, sorted by key.

    Raises:
        QueryError: if a condition of the question is not valid.
    """
    sql = Statements(question, Engine.DELTALAKE, sources).steps_sql()
    steps = _rows(tables, f"{sql} ORDER BY key, number")
    numbers = steps.column("number").to_numpy()
    starts = np.flatnonzero(numbers == 1)
    totals = {name: _total(steps, starts, *how) for name, how in TOTALS.items()}
    kept = steps.filter(mask_of(numbers <= question.max_steps))
    kept_starts = np.flatnonzero(kept.column("number").to_numpy() == 1)
    last = steps.column("state").take(pa.array(np.append(starts, len(numbers))[1:] - 1))
    columns = {
        **totals,
        "key": steps.column("key").take(pa.array(starts)),
        "path": _lists(kept_starts, kept.column("topic").combine_chunks()),
        "steps": _lists(kept_starts, _steps_of(kept)),
        "outcome": pc.choose(totals["openness"], last, *map(pa.scalar, reversed(OPEN_STATES))),
        "began_before": (totals["first_at"].to_numpy() < question.since_us) | (totals["lacks_first"].to_numpy() > 0),
        "went_on_after": totals["last_at"].to_numpy() >= question.until_us,
        "is_cut": totals["messages"].to_numpy() > question.max_steps,
        "order_uncertain": totals["order_uncertain"].to_numpy() > 0,
    }
    return _table(columns, JOURNEYS)


def hops_table(tables: Tables, sources: Sources, question: JourneysQuestion, window_us: int | None) -> pa.Table:
    """Return the hops between topics, for each window of a time range.

    Args:
        tables: tables that the sources name.
        sources: `messages` and `edges`, or queries of them.
        question: the question.
        window_us: length of the windows, microseconds; None for one window.

    Returns:
        A table with the columns `HOPS`, sorted by the first three.

    Raises:
        QueryError: if a condition of the question is not valid.
    """
    sql = Statements(question, Engine.DELTALAKE, sources).hops_sql(window_us)
    order = "hour_us, source, target, bound_ms"
    rows = _rows(tables, f"{sql} ORDER BY {order}")
    keys = [pc.rank(rows.column(name), tiebreaker="dense").to_numpy() for name in ("hour_us", "source", "target")]
    is_new = np.ones(rows.num_rows, bool)
    is_new[1:] = np.any([key[1:] != key[:-1] for key in keys], axis=0)
    starts = np.flatnonzero(is_new)
    offsets = pa.array(np.append(starts, rows.num_rows).astype(np.int32))
    bounds, counts = (rows.column(name).combine_chunks() for name in ("bound_ms", "hops"))
    firsts = rows.take(pa.array(starts))
    columns = {name: firsts.column(name) for name in ("source", "target", "p50_ms", "p95_ms", "p99_ms")}
    delays = pa.MapArray.from_arrays(offsets, bounds, counts)
    return _table({**columns, "hour": firsts.column("hour_us"), "hops": firsts.column("total"), "delays": delays}, HOPS)


def _rows(tables: Tables, sql: str) -> pa.Table:
    """Return the rows of a query, with texts as the plain strings that all functions of Arrow know."""
    rows = run_sql_over(tables, sql).read_all()
    fields = [each.with_type(pa.string()) if pa.types.is_string_view(each.type) else each for each in rows.schema]
    return rows.cast(pa.schema(fields))


def _total(steps: pa.Table, starts: Array, how: Sum, name: str) -> pa.Array:
    """Return a column of steps, summed up over each journey; null where all its values are null.

    Args:
        steps: the steps, each journey's together.
        starts: numbers of the first steps of the journeys.
        how: how they are summed up.
        name: name of the column.
    """
    if not len(starts):
        return pa.array([], pa.int64())
    found: Array = _REDUCE[how].reduceat(numbers_of(steps.column(name), null=_NONE), starts)
    return pa.array(found, pa.int64(), mask=found == _NONE)


def _lists(starts: Array, values: pa.Array) -> pa.ListArray:
    return pa.ListArray.from_arrays(pa.array(np.append(starts, len(values)).astype(np.int32)), values)


def _steps_of(rows: pa.Table) -> pa.StructArray:
    table = _table({name: rows.column(column) for name, column in STEP_COLUMNS.items()}, STEP)
    arrays = [column.combine_chunks() for column in table.columns]
    return pa.StructArray.from_arrays(arrays, fields=list(table.schema))


def _table(known: Mapping[str, Column], columns: Columns) -> pa.Table:
    """Return a table of declared columns; numpy arrays are booleans."""
    found = [known[name] for name in columns.names]
    arrays = [mask_of(each) if isinstance(each, np.ndarray) else each for each in found]
    schema = arrow_schema(columns)
    return pa.table([each.cast(field.type) for each, field in zip(arrays, schema, strict=True)], schema=schema)
