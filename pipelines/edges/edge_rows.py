"""Converts steps to rows of `edges`, one row for each of a step's nodes, and reads open steps from such rows.

An open step could not be completed by an earlier run. Its rows become the inputs that are needed to link it again.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.arrays_without_pandas import to_boolean_array, to_numpy_numbers
from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.numpy_arrays import Array
from commitlake.pipelines.edges.client_actions import ENTRIES, Action
from commitlake.pipelines.edges.key_matching import Column, LinkableRecords, encode_key_columns
from commitlake.pipelines.edges.lake_spans import BrokerSpans
from commitlake.pipelines.edges.links.client_actions import (
    LATE_US,
    join_consumptions,
    link_consumptions,
    link_ended_transactions,
    link_logged_consumptions,
    link_produced_records,
    link_recalled_timers,
)
from commitlake.pipelines.edges.links.copies import link_deliveries, link_replays, link_retries
from commitlake.pipelines.edges.links.transactions import link_transactions
from commitlake.pipelines.edges.message_reader import PLACES
from commitlake.pipelines.edges.step_records import MEMBERS, Role
from commitlake.pipelines.edges.steps import FROM, OF_CLIENTS, STEPS, TO, WAITING, repeat_text
from commitlake.pipelines.message_keys.key_files import key_hashes
from commitlake.schemas.layouts.rocketmq.topics import SYSTEM_PREFIX, Kind
from commitlake.schemas.tables.edges import EDGES, AbsentReason, EdgeKind, StepOutcome

SCHEMA: pa.Schema = arrow_schema(EDGES)
BOTH = "both"
_ACTIONS = {EdgeKind.PRODUCED: Action.PUB, EdgeKind.ENDED: Action.END, EdgeKind.RECALLED: Action.RECALL}
_REPLAYS = (EdgeKind.REPLAYED, EdgeKind.REDRIVEN)


def find_record_edges(members: pa.Table, entries: pa.Table, op_records: pa.Table, spans: BrokerSpans) -> pa.Table:
    """Return an edge for every pair of records that follow each other, such as a delayed message and its delivery.

    Args:
        spans: extent of the lake.

    Returns:
        A table of `STEPS`.
    """
    f = LinkableRecords(members)
    parts = [
        *link_deliveries(f, spans),
        *link_retries(f, spans),
        *link_transactions(f, op_records, spans),
        *link_replays(f, spans),
        link_produced_records(f, _entries_of_action(entries, Action.PUB), spans),
        link_consumptions(
            f,
            join_consumptions(_entries_of_action(entries, Action.BEFORE), _entries_of_action(entries, Action.AFTER)),
            spans,
        ),
        link_logged_consumptions(f, _entries_of_action(entries, Action.LOGGED), spans),
        link_ended_transactions(f, _entries_of_action(entries, Action.END), spans),
        link_recalled_timers(f, _entries_of_action(entries, Action.RECALL), spans),
    ]
    return pa.concat_tables([STEPS.empty_table(), *parts]).combine_chunks()


def _entries_of_action(entries: pa.Table, action: Action) -> pa.Table:
    return entries.filter(pc.equal(entries.column("action"), str(action))).combine_chunks()


def to_edges(steps: pa.Table) -> pa.Table:
    """Convert each step (an edge with both of its ends) to its rows of the table `edges`, sorted by node hash.

    A step has one row for each distinct node at its ends.
    """
    firsts, seconds = (_node_ids_at_end(steps, end) for end in (FROM, TO))
    firsts, seconds = pc.coalesce(firsts, seconds), pc.coalesce(seconds, firsts)
    is_same = pc.fill_null(pc.equal(firsts, seconds), True)
    two = np.flatnonzero(~is_same.to_numpy(zero_copy_only=False))
    index = np.concatenate([np.arange(steps.num_rows), two])
    nodes = pa.concat_arrays([pc.fill_null(firsts, ""), seconds.take(pa.array(two))])
    sides = pa.concat_arrays([pc.if_else(is_same, BOTH, FROM), repeat_text(TO, len(two))])
    hashes = key_hashes(nodes)
    order = np.lexsort((index, hashes))
    known = {
        "node_hash": pa.array(hashes[order]),
        "node": nodes.take(pa.array(order)),
        "side": sides.take(pa.array(order)),
    }
    rows = steps.take(pa.array(index[order])).combine_chunks()
    known["unique_key"] = pc.coalesce(rows.column("from_key"), rows.column("to_key"))
    columns = [known[f.name] if f.name in known else rows.column(f.name) for f in SCHEMA]
    return pa.table([_cast_if_needed(column, f.type) for column, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def _cast_if_needed(column: pa.Array | pa.ChunkedArray, data_type: pa.DataType) -> pa.Array | pa.ChunkedArray:
    return column if column.type == data_type else column.cast(data_type)


def _node_ids_at_end(steps: pa.Table, end: str) -> pa.Array:
    """Return the ids of the records at one end of edges, as the table `edges` names its nodes.

    A node id is the record's unique key, or its broker and offset if it has no key.
    """
    brokers, offsets = steps.column(f"{end}_broker"), steps.column(f"{end}_physical_offset").cast(pa.string())
    places = pc.binary_join_element_wise(brokers, offsets, "@")
    return pc.coalesce(steps.column(f"{end}_key"), places).combine_chunks()


def distinct_steps(rows: pa.Table) -> pa.Table:
    """Return rows of the table `edges` without the second of the two rows that it has for an edge."""
    return rows.filter(to_boolean_array(pc.not_equal(rows.column("side"), "to").to_numpy()))


def open_steps_of_rows(rows: pa.Table) -> pa.Table:
    """Return those edges in rows of `edges` that still lack the record at one end.

    Steps of a broker's own timers, which earlier versions wrote, are left out.
    """
    is_internal = pc.fill_null(pc.starts_with(rows.column("to_topic"), SYSTEM_PREFIX), False)
    rows = distinct_steps(rows.filter(pc.invert(is_internal))).combine_chunks()
    kinds = rows.column("kind")
    of_replays = pc.is_in(kinds, pa.array(list(map(str, _REPLAYS))))
    keys = rows.column("unique_key")
    evidence = (rows.column("evidence_broker"), rows.column("evidence_physical_offset"))
    lacks_to = pc.fill_null(pc.equal(rows.column("absent_end"), TO), False)
    known = {name: rows.column(name) for name in STEPS.names if name in rows.schema.names}
    known |= {
        "from_key": pc.if_else(of_replays, pa.scalar(None, pa.string()), keys),
        "to_key": keys,
        "may_change": _may_get_other_end_mask(rows),
    }
    for name, told, column in zip(("broker", "offset"), evidence, ("broker", "physical_offset"), strict=True):
        of_record = pc.if_else(lacks_to, rows.column(f"from_{column}"), rows.column(f"to_{column}"))
        known[f"definer_{name}"] = pc.coalesce(told, of_record)
    return pa.table([known[f.name].cast(f.type) for f in STEPS], schema=STEPS)


def _may_get_other_end_mask(rows: pa.Table) -> Column:
    """Return a mask of the edges of client actions that may later be linked to another record."""
    kinds = rows.column("kind")
    no_end = pc.and_(pc.is_null(rows.column("outcome")), pc.is_null(rows.column("cost_ms")))
    one = pc.and_(pc.equal(kinds, str(EdgeKind.CONSUMED)), pc.or_(pc.is_null(rows.column("attempt")), no_end))
    return pc.or_(one, _known_action_record_mask(rows))


def _known_action_record_mask(rows: pa.Table) -> Column:
    """Return a mask of the client actions whose record was found, or that the broker refused."""
    reasons = rows.column("absent_reason")
    is_refused = pc.fill_null(pc.equal(reasons, str(AbsentReason.REFUSED)), False)
    return pc.and_(_client_action_mask(rows.column("kind")), pc.or_(pc.is_null(reasons), is_refused))


def _client_action_mask(kinds: Column) -> Column:
    return pc.is_in(kinds, pa.array([str(kind) for kind in OF_CLIENTS]))


def unfinished_messages(steps: pa.Table) -> pa.Table:
    """Return the delayed, timer and half messages of edges that still lack their end, as a table of `MEMBERS`."""
    kinds = steps.column("kind")
    waits = pc.is_in(kinds, pa.array([str(kind) for kind in WAITING]))
    chosen = steps.filter(
        pc.and_(waits, pc.fill_null(pc.equal(steps.column("absent_end"), TO), False))
    ).combine_chunks()
    count = chosen.num_rows
    is_half = pc.equal(chosen.column("kind"), str(EdgeKind.FINISHED))
    by_timer = pc.equal(chosen.column("kind"), str(EdgeKind.TIMER))
    record = pc.if_else(by_timer, str(Kind.TIMER), str(Kind.DELAY))
    known: dict[str, Column] = {
        "broker": chosen.column("from_broker"),
        "physical_offset": chosen.column("from_physical_offset"),
        "topic": chosen.column("from_topic"),
        "queue_id": chosen.column("from_queue_id"),
        "queue_offset": chosen.column("from_queue_offset"),
        "store_timestamp": chosen.column("from_timestamp"),
        "unique_key": chosen.column("unique_key") if "unique_key" in chosen.schema.names else chosen.column("from_key"),
        "kind": pc.if_else(is_half, str(Kind.HALF), record),
        "attempt": pc.fill_null(chosen.column("attempt"), 0),
        "role": pc.if_else(is_half, str(Role.HALF), str(Role.WAITING)),
        "next_topic": pc.if_else(is_half, pa.scalar(None, pa.string()), chosen.column("to_topic")),
        "by_timer": by_timer,
        "group": chosen.column("consumer_group"),
        "due": chosen.column("due_timestamp"),
        "is_committed": pc.fill_null(pc.equal(chosen.column("outcome"), str(StepOutcome.COMMITTED)), False),
        "checks": zeros_column(count),
        "rolls": zeros_column(count),
    }
    return pa.table(
        [known[f.name].cast(f.type) if f.name in known else pa.nulls(count, f.type) for f in MEMBERS], schema=MEMBERS
    )


def zeros_column(count: int) -> pa.Array:
    """Return a column of zeros."""
    return pa.array(np.zeros(count, np.int64))


def steps_to_entries(steps: pa.Table) -> pa.Table:
    """Convert incomplete edges back to the entries of traces and consume logs from which they were made."""
    tables = [ENTRIES.empty_table()]
    kinds = steps.column("kind")
    for kind, action in _ACTIONS.items():
        chosen = steps.filter(pc.equal(kinds, str(kind)))
        has_record = pc.is_null(chosen.column("absent_reason"))
        absent, linked = chosen.filter(pc.invert(has_record)), chosen.filter(has_record)
        tables.append(_action_steps_to_entries(absent, action, absent.column("producer_group")))
        # If a step to a known record is open, its trace did not name the place.
        tables.append(
            _action_steps_to_entries(linked, action, linked.column("producer_group"), ("topic", "sent_offset"))
        )
    consumed = steps.filter(pc.equal(kinds, str(EdgeKind.CONSUMED)))
    is_logged = pc.fill_null(pc.less(consumed.column("evidence_physical_offset"), 0), False)
    logged, consumed = consumed.filter(is_logged), consumed.filter(pc.invert(is_logged))
    tables.append(_action_steps_to_entries(logged, Action.LOGGED, logged.column("consumer_group"), end=FROM))
    no_begin = pc.is_null(consumed.column("attempt"))
    no_end = pc.and_(pc.is_null(consumed.column("outcome")), pc.is_null(consumed.column("cost_ms")))
    begun, ended = consumed.filter(pc.invert(no_begin)), consumed.filter(pc.or_(no_begin, pc.invert(no_end)))
    tables.append(
        _action_steps_to_entries(begun, Action.BEFORE, begun.column("consumer_group"), ("outcome", "cost_ms"))
    )
    tables.append(_action_steps_to_entries(ended, Action.AFTER, ended.column("consumer_group"), ("attempt",)))
    return pa.concat_tables(tables)


def _action_steps_to_entries(
    steps: pa.Table, action: Action, groups: Column, excluded_columns: tuple[str, ...] = (), end: str = TO
) -> pa.Table:
    steps = steps.combine_chunks()
    count = steps.num_rows
    known: dict[str, Column] = {
        "broker": steps.column("evidence_broker"),
        "physical_offset": steps.column("evidence_physical_offset"),
        "entry": steps.column("evidence_entry"),
        "client_host": steps.column("client_host"),
        "action": repeat_text(str(action), count),
        "unique_key": pc.coalesce(steps.column("from_key"), steps.column("to_key")),
        "group": groups,
        "topic": steps.column(f"{end}_topic"),
        "sent_offset": steps.column(f"{end}_physical_offset"),
        "request_id": steps.column("request_id"),
        "attempt": steps.column("attempt"),
        "outcome": steps.column("outcome"),
        "cost_ms": steps.column("cost_ms"),
        "event_timestamp": steps.column("event_timestamp"),
    }
    known = {name: column for name, column in known.items() if name not in excluded_columns}
    return pa.table(
        [known[f.name].cast(f.type) if f.name in known else pa.nulls(count, f.type) for f in ENTRIES], schema=ENTRIES
    )


def positions_to_read(steps: pa.Table) -> pa.Table:
    """Return the log positions of the records that must be read to search again for the missing ends of edges."""
    of_clients = _client_action_mask(steps.column("kind"))
    lacks_from = pc.fill_null(pc.equal(steps.column("absent_end"), FROM), False)
    found = [PLACES.empty_table()]
    for end, chosen in ((FROM, of_clients), (TO, pc.and_(lacks_from, pc.invert(of_clients)))):
        ends = steps.filter(chosen).select([f"{end}_broker", f"{end}_physical_offset"]).rename_columns(PLACES.names)
        found.append(ends.drop_null())
    return pa.concat_tables(found)


def relinking_needed_mask(
    steps: pa.Table, keys: pa.Array, op_records: pa.Table, cancelled_keys: pa.Array, spans: BrokerSpans
) -> Array:
    """Return a mask of the incomplete edges whose missing end must be searched for again, because of new rows.

    Steps of records whose predecessor is absent, or that were sent again, are always linked again; there are few of
    them. An action of a client is linked again when its broker's records until then are read, and a later attempt of
    a consumption when its time is over: without a copy by then, its group consumes in order.

    Args:
        steps: open steps.
        keys: unique keys of new rows.
        op_records: new op records, which name half messages by queue offsets.
        cancelled_keys: unique keys that new marks in the topic of timers cancel.
        spans: extent of the lake, with the increment.
    """
    key = pc.coalesce(steps.column("from_key"), steps.column("to_key"))
    kinds = steps.column("kind")
    of_clients = _client_action_mask(kinds)
    lacks_from = pc.and_(pc.fill_null(pc.equal(steps.column("absent_end"), FROM), False), pc.invert(of_clients))
    found: Array = pc.or_(pc.is_in(key, keys), lacks_from).to_numpy()
    times = to_numpy_numbers(steps.column("event_timestamp"))
    # What a producer sent without a place is linked by the store time of its trace, which is not known here. It is soon
    # after the event; otherwise, or if a broker gets no more messages, the step stays open until it is overdue.
    is_produced = pc.equal(kinds, str(EdgeKind.PRODUCED)).to_numpy()
    until = times + np.where(is_produced, LATE_US, 1)
    found = found | (_known_action_record_mask(steps).to_numpy() & spans.newly_linked_mask(until))
    is_later = pc.equal(kinds, str(EdgeKind.CONSUMED)).to_numpy() & (to_numpy_numbers(steps.column("attempt")) > 0)
    found = found | (is_later & spans.newly_linked_mask(times + LATE_US))
    if op_records.num_rows:
        ends = [steps.column(f"from_{name}") for name in ("broker", "queue_id", "queue_offset")]
        left, right = encode_key_columns(
            ends, [op_records.column(name) for name in ("broker", "queue_id", "half_offset")]
        )
        found = found | ((left >= 0) & np.isin(left, right))
    if len(cancelled_keys):
        named = pc.binary_join_element_wise(steps.column("to_topic"), key, "_")
        called_back = pc.or_(pc.is_in(key, cancelled_keys), pc.is_in(named, cancelled_keys)).to_numpy()
        found = found | called_back
    return found


def select_rows(table: pa.Table, mask: Array) -> pa.Table:
    """Return the rows of a table that a boolean mask selects."""
    return table.filter(to_boolean_array(mask))
