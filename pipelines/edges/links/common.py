"""Columns that steps of several kinds share."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.arrays import Array
from commitlake.connectors.plain_arrays import to_boolean_array, to_numpy_numbers
from commitlake.pipelines.edges.matching import (
    NONE,
    Column,
    LinkableRecords,
    count_before,
    match_first_after,
    match_latest_before,
)
from commitlake.pipelines.edges.spans import LINK_US, Spans
from commitlake.pipelines.edges.steps import repeat_text
from commitlake.schemas.tables.edges import AbsentReason


def replace_unmatched(found: Array, other: Array) -> Array:
    """Return the numbers in `found`, replaced by those in `other` where `found` has -1."""
    return np.where(found >= 0, found, other)


def is_null(column: Column) -> Array:
    """Return a mask of the values of a column that are null."""
    found: Array = pc.is_null(column).to_numpy(zero_copy_only=False)
    return found


def definer_columns(f: LinkableRecords, rows: Array) -> dict[str, Column]:
    """Return the columns `definer_broker` and `definer_offset`: the place of the record that defines each step."""
    return {"definer_broker": f.column("broker", rows), "definer_offset": f.column("physical_offset", rows)}


def reason_no_predecessor(f: LinkableRecords, rows: Array, spans: Spans) -> Column:
    """Return the reason why each record has no predecessor; `ambiguous` for records without a unique key."""
    reasons = spans.reasons_before(f.column("broker", rows), f.times[rows])
    return pc.if_else(to_boolean_array(is_null(f.column("unique_key", rows))), str(AbsentReason.AMBIGUOUS), reasons)


def reason_or_ambiguous(f: LinkableRecords, rows: Array, reason: AbsentReason) -> Column:
    """Return `reason` for each record, but `ambiguous` for records without a unique key."""
    no_key = to_boolean_array(is_null(f.column("unique_key", rows)))
    return pc.if_else(no_key, str(AbsentReason.AMBIGUOUS), str(reason)) if len(rows) else repeat_text(None, 0)


def action_columns(entries: pa.Table) -> dict[str, Column]:
    """Return the columns of steps that are copied from the entries of clients' actions."""
    return {
        "client_host": entries.column("client_host"),
        "outcome": entries.column("outcome"),
        "cost_ms": entries.column("cost_ms"),
        "event_timestamp": entries.column("event_timestamp"),
        "evidence_broker": entries.column("broker"),
        "evidence_physical_offset": entries.column("physical_offset"),
        "evidence_entry": entries.column("entry"),
        "definer_broker": entries.column("broker"),
        "definer_offset": entries.column("physical_offset"),
    }


def newest_member_at_time(
    left: Array, until: Array, right: Array, rows: Array, f: LinkableRecords
) -> tuple[Array, Array]:
    """Find, for each event, the newest record with its key at the event's time, and the number of such records.

    Of the records, those within `LINK_DAYS` before the event count, as later runs look no further back. If there is no
    earlier record at all, the clocks differ, and the first later one counts. A record that is stored after the event
    never changes the result, so several runs give the steps of a single one: see `may_link_otherwise`.

    Args:
        left: key of each event.
        until: time of each event, microseconds.
        right: key of each member of `rows`.
        rows: member numbers.
        f: all members.
    """
    times = f.times[rows]
    counts = count_before(left, until, right, times)
    counts = np.maximum(counts - count_before(left, until - LINK_US, right, times), np.minimum(counts, 1))
    found = match_latest_before(left, until, right, times)
    later = match_first_after(left, until, right, times)
    is_late = counts == 0
    return to_member_numbers(rows, np.where(is_late, later, found)), np.where(is_late, later >= 0, counts)


def may_link_otherwise(f: LinkableRecords, found: Array, entries: pa.Table, until: Array, spans: Spans) -> Array:
    """Return a mask of the events that a later run may link otherwise: not all records until then are read.

    That is asked of the broker of the record that was found; if it also has the trace, all records before that are
    read. Copies on other brokers are not waited for, since a broker may never be archived again.

    Args:
        found: member number for each event, -1 for none.
        entries: entries of the events.
        until: time of each event, microseconds.
    """
    brokers = f.column("broker").take(pa.array(found, mask=found < 0))
    is_same = pc.fill_null(pc.equal(brokers, entries.column("broker").combine_chunks()), False)
    is_read = is_same.to_numpy(zero_copy_only=False) & (
        until <= to_numpy_numbers(entries.column("store_timestamp")) + 1
    )
    may_find: Array = (found >= 0) & ~is_read & ~spans.are_complete(brokers, until)
    return may_find


def to_member_numbers(rows: Array, found: Array) -> Array:
    """Convert indexes into a selection of members to member numbers; -1 stays -1."""
    return np.where(found >= 0, rows[found], NONE) if len(rows) else np.full(len(found), NONE, np.int64)
