"""Columns that steps of several kinds share."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.arrays_without_pandas import to_boolean_array, to_numpy_numbers
from commitlake.connectors.numpy_arrays import Array
from commitlake.pipelines.edges.key_matching import (
    NONE,
    Column,
    LinkableRecords,
    count_before,
    match_first_after,
    match_latest_before,
)
from commitlake.pipelines.edges.lake_spans import LINK_US, BrokerSpans
from commitlake.pipelines.edges.steps import repeat_text
from commitlake.schemas.tables.edges import AbsentReason


def replace_unmatched(numbers: Array, replacements: Array) -> Array:
    """Return `numbers` with each -1 replaced by the number at the same index of `replacements`."""
    return np.where(numbers >= 0, numbers, replacements)


def is_null(column: Column) -> Array:
    """Return a mask of the values of a column that are null."""
    found: Array = pc.is_null(column).to_numpy(zero_copy_only=False)
    return found


def step_definer_columns(members: LinkableRecords, rows: Array) -> dict[str, Column]:
    """Return, as two columns, the broker and physical offset of the record from which each edge was found."""
    return {"definer_broker": members.column("broker", rows), "definer_offset": members.column("physical_offset", rows)}


def no_predecessor_reasons(members: LinkableRecords, rows: Array, spans: BrokerSpans) -> Column:
    """Return why each record's predecessor is missing; `ambiguous` for a record without a unique key."""
    reasons = spans.reasons_before(members.column("broker", rows), members.times[rows])
    return pc.if_else(
        to_boolean_array(is_null(members.column("unique_key", rows))), str(AbsentReason.AMBIGUOUS), reasons
    )


def reasons_or_ambiguous(members: LinkableRecords, rows: Array, reason: AbsentReason) -> Column:
    """Return `reason` for each record, but `ambiguous` if it has no unique key by which to link it."""
    no_key = to_boolean_array(is_null(members.column("unique_key", rows)))
    return pc.if_else(no_key, str(AbsentReason.AMBIGUOUS), str(reason)) if len(rows) else repeat_text(None, 0)


def action_columns(entries: pa.Table) -> dict[str, Column]:
    """Return the columns of edges that are copied from trace entries, such as the client's host and the outcome."""
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


def newest_record_at_time(
    event_keys: Array, event_times: Array, member_keys: Array, member_numbers: Array, members: LinkableRecords
) -> tuple[Array, Array]:
    """Find, for each event, the newest record with its key up to its time, and count the records that qualify.

    Of the records, those within `LINK_DAYS` before the event count, as later runs look no further back. If there is no
    earlier record at all, the clocks differ, and the first later one counts. A record that is stored after the event
    never changes the result, so several runs give the steps of a single one: see `may_link_otherwise`.

    Args:
        event_keys: key of each event.
        event_times: time of each event, microseconds.
        member_keys: key of each member of `member_numbers`.
        member_numbers: member numbers.
        members: all members.
    """
    times = members.times[member_numbers]
    counts = count_before(event_keys, event_times, member_keys, times)
    counts = np.maximum(
        counts - count_before(event_keys, event_times - LINK_US, member_keys, times), np.minimum(counts, 1)
    )
    found = match_latest_before(event_keys, event_times, member_keys, times)
    later = match_first_after(event_keys, event_times, member_keys, times)
    is_late = counts == 0
    return take_record_numbers(member_numbers, np.where(is_late, later, found)), np.where(is_late, later >= 0, counts)


def may_link_otherwise(
    members: LinkableRecords, member_numbers: Array, entries: pa.Table, event_times: Array, spans: BrokerSpans
) -> Array:
    """Return a mask of the events for which a later run may find a better record, as not all rows are read yet.

    Some records up to their time are not read yet.

    That is asked of the broker of the record that was found; if it also has the trace, all records before that are
    read. Copies on other brokers are not waited for, since a broker may never be archived again.

    Args:
        member_numbers: member number for each event, -1 for none.
        entries: entries of the events.
        event_times: time of each event, microseconds.
    """
    brokers = members.column("broker").take(pa.array(member_numbers, mask=member_numbers < 0))
    is_same = pc.fill_null(pc.equal(brokers, entries.column("broker").combine_chunks()), False)
    is_read = is_same.to_numpy(zero_copy_only=False) & (
        event_times <= to_numpy_numbers(entries.column("store_timestamp")) + 1
    )
    may_find: Array = (member_numbers >= 0) & ~is_read & ~spans.linked_until_time_mask(brokers, event_times)
    return may_find


def take_record_numbers(member_numbers: Array, indexes: Array) -> Array:
    """Return `member_numbers[indexes]`, but -1 where an index is -1."""
    return (
        np.where(indexes >= 0, member_numbers[indexes], NONE)
        if len(member_numbers)
        else np.full(len(indexes), NONE, np.int64)
    )
