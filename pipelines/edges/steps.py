"""Tables of steps, each of which becomes an edge between two nodes in the table `edges`."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.arrays_without_pandas import to_boolean_array, to_numpy_numbers
from commitlake.connectors.numpy_arrays import Array
from commitlake.pipelines.edges.key_matching import Column
from commitlake.pipelines.edges.lake_spans import LINK_US, BrokerSpans
from commitlake.pipelines.edges.step_records import TIME
from commitlake.schemas.tables.edges import AbsentReason, EdgeKind

_END = (
    ("broker", pa.string()), ("physical_offset", pa.int64()), ("topic", pa.string()), ("queue_id", pa.int32()),
    ("queue_offset", pa.int64()), ("timestamp", TIME),
)  # fmt: skip
_OF_MEMBERS = {"timestamp": "store_timestamp"}
STEPS = pa.schema([
    ("kind", pa.string()),
    *((f"from_{name}", data_type) for name, data_type in _END),
    *((f"to_{name}", data_type) for name, data_type in _END),
    ("from_key", pa.string()),                 # unique key of the record at that end
    ("to_key", pa.string()),
    ("absent_end", pa.string()),
    ("absent_reason", pa.string()),
    ("consumer_group", pa.string()),
    ("producer_group", pa.string()),
    ("client_host", pa.string()),
    ("attempt", pa.int32()),
    ("outcome", pa.string()),
    ("request_id", pa.string()),
    ("cost_ms", pa.int64()),
    ("event_timestamp", TIME),
    ("due_timestamp", TIME),
    ("replay_id", pa.string()),
    ("evidence_broker", pa.string()),
    ("evidence_physical_offset", pa.int64()),
    ("evidence_entry", pa.int32()),
    ("definer_broker", pa.string()),           # record that defines the step: if it is new, so is the step
    ("definer_offset", pa.int64()),
    ("may_change", pa.bool_()),                # True if no end is absent, but later rows may change the step
])  # fmt: skip
"""Columns of a table of steps."""

FROM, TO = "from", "to"
OF_CLIENTS = frozenset({EdgeKind.PRODUCED, EdgeKind.CONSUMED, EdgeKind.ENDED, EdgeKind.RECALLED})
"""Kinds of steps that only a trace, or a consume record, shows."""
WAITING = frozenset({EdgeKind.DELAYED, EdgeKind.TIMER, EdgeKind.FINISHED})
"""Kinds of steps whose record at the end `from` waits for the other end."""


def make_steps(
    kind: EdgeKind | Column,
    members: pa.Table,
    from_rows: Array | None,
    to_rows: Array | None,
    extra_columns: Mapping[str, Column],
) -> pa.Table:
    """Return a table with one edge (step) for each pair of records, which are given by row numbers.

    One record of a pair may be absent.

    Args:
        kind: kind of all steps, or of each.
        from_rows: member numbers, -1 if the end is absent; None if the kind has no such end.
        to_rows: member numbers of the other end, -1 or None as for `from_rows`.
        extra_columns: further columns. A column of an end gives the known values of an absent end.
    """
    given = from_rows if from_rows is not None else to_rows
    assert given is not None
    count = len(given)
    known: dict[str, Column] = dict(extra_columns)
    known["kind"] = repeat_text(str(kind), count) if isinstance(kind, EdgeKind) else kind
    for end, rows in ((FROM, from_rows), (TO, to_rows)):
        if rows is None:
            continue
        index = pa.array(rows, mask=rows < 0)
        for name, _ in _END:
            column = members.column(_OF_MEMBERS.get(name, name)).combine_chunks().take(index)
            absent = known.get(f"{end}_{name}")
            known[f"{end}_{name}"] = column if absent is None else pc.coalesce(column, _single_chunk(absent))
        key = members.column("unique_key").combine_chunks().take(index)
        known[f"{end}_key"] = pc.coalesce(key, _single_chunk(known[f"{end}_key"])) if f"{end}_key" in known else key
    columns = [_single_chunk(known[f.name]).cast(f.type) if f.name in known else pa.nulls(count, f.type) for f in STEPS]
    return pa.table(columns, schema=STEPS)


def absent_end_columns(end: str, rows: Array, reasons: Column) -> dict[str, Column]:
    """Return the columns `absent_end` and `absent_reason` of edges, null where the given end is present.

    Args:
        end: `from` or `to`.
        rows: member numbers, -1 if the end is absent.
        reasons: reason for each step.
    """
    lacks = to_boolean_array(rows < 0)
    return {
        "absent_end": pc.if_else(lacks, end, pa.scalar(None, pa.string())),
        "absent_reason": pc.if_else(lacks, _single_chunk(reasons), pa.scalar(None, pa.string())),
    }


def open_step_mask(steps: pa.Table) -> Array:
    """Return a mask of the edges that a later run may complete or change."""
    not_yet = pc.fill_null(pc.equal(steps.column("absent_reason"), str(AbsentReason.NOT_YET)), False)
    found: Array = pc.or_(not_yet, pc.fill_null(steps.column("may_change"), False)).to_numpy()
    return found


def close_overdue_steps(steps: pa.Table, spans: BrokerSpans) -> pa.Table:
    """Give up edges that have lacked a record for more than `LINK_DAYS`, and set the reason why it is absent.

    Below, a delayed message was never delivered. One consumption is of a message that was stored before the lake began,
    or may have been; the other, ten days later, is of a message that only another cluster can have:

    >>> from commitlake.pipelines.edges.links.client_actions import link_consumptions
    >>> from commitlake.pipelines.edges.links.copies import link_deliveries
    >>> from tests.support.link_examples import MONTH, parse_entries, parse_members, print_steps
    >>> members = parse_members('''
    ...     physical_offset unique_key role    topic               next_topic due
    ...     1000            K1         waiting SCHEDULE_TOPIC_XXXX orders     2000
    ... ''')
    >>> entries = parse_entries('''
    ...     physical_offset unique_key group attempt event_timestamp outcome
    ...     5000            K8         bill  0       86400000000     success
    ...     6000            K9         bill  0       864000000000    success
    ... ''').append_column("is_begun", [[False] * 2])
    >>> for steps in (link_deliveries(members, MONTH)[0], link_consumptions(members, entries, MONTH)):
    ...     print_steps(close_overdue_steps(steps, MONTH))
    kind    from to outcome absent_reason
    delayed 1000 -  -       overdue
    kind     from to outcome absent_reason
    consumed -    -  success before_archive
    consumed -    -  success other_cluster
    """
    waiting = np.flatnonzero(open_step_mask(steps))
    if not len(waiting):
        return steps
    chosen = steps.take(pa.array(waiting))
    names = ("due_timestamp", "to_timestamp", "from_timestamp", "event_timestamp")
    since = pc.coalesce(*(chosen.column(name) for name in names))
    times = to_numpy_numbers(since, null_value=0)
    brokers = pc.coalesce(*(chosen.column(f"{name}_broker") for name in ("evidence", "to", "from")))
    overdue = times + LINK_US < spans.last_times_of(brokers.combine_chunks())
    if not overdue.any():
        return steps
    kinds = np.array(chosen.column("kind").to_pylist(), object)
    old = np.array(chosen.column("absent_reason").to_pylist(), object)
    lacks_to = np.array(chosen.column("absent_end").to_pylist(), object) == TO
    waits = np.isin(kinds, [str(kind) for kind in WAITING]) & lacks_to
    of_clients = np.isin(kinds, [str(kind) for kind in OF_CLIENTS | {EdgeKind.REPLAYED, EdgeKind.REDRIVEN}])
    is_early = times - LINK_US < spans.first_us
    reasons = np.where(is_early, str(AbsentReason.BEFORE_ARCHIVE), str(AbsentReason.LOST))
    reasons = np.where(of_clients & ~is_early, str(AbsentReason.OTHER_CLUSTER), reasons)
    reasons = np.where(waits, str(AbsentReason.OVERDUE), reasons)
    new = np.where(overdue & (old == str(AbsentReason.NOT_YET)), reasons, old)
    all_reasons = np.array(steps.column("absent_reason").to_pylist(), object)
    all_reasons[waiting] = new
    may_change = steps.column("may_change").to_numpy().copy()
    may_change[waiting[overdue]] = False
    steps = _replace_column(steps, "absent_reason", pa.array(all_reasons, pa.string()))
    return _replace_column(steps, "may_change", pa.array(may_change.tolist(), pa.bool_()))


def repeat_text(text: str | None, count: int) -> pa.Array:
    """Return a column with the same text in all `count` rows."""
    return pa.array([text], pa.string()).take(pa.array(np.zeros(count, np.int64)))


def _replace_column(table: pa.Table, name: str, column: pa.Array) -> pa.Table:
    return table.set_column(table.schema.get_field_index(name), table.schema.field(name), column)


def _single_chunk(column: Column) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
