"""Steps as rows of `edges`, one row for each node."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.plain_arrays import mask_of
from commitlake.pipelines.edges.family import Families
from commitlake.pipelines.edges.links.consumptions import join_consumptions, link_consumed, link_logged
from commitlake.pipelines.edges.links.delays import link_deliveries
from commitlake.pipelines.edges.links.producers import link_ended, link_produced, link_recalled
from commitlake.pipelines.edges.links.replays import link_replays
from commitlake.pipelines.edges.links.retries import link_retries
from commitlake.pipelines.edges.links.transactions import link_transactions
from commitlake.pipelines.edges.spans import Spans
from commitlake.pipelines.edges.steps import FROM, STEPS, TO, repeated
from commitlake.pipelines.edges.traces import Action
from commitlake.pipelines.message_keys.files import key_hashes
from commitlake.schemas.tables.edges import EDGES

SCHEMA: pa.Schema = arrow_schema(EDGES)
BOTH = "both"


def link_all(members: pa.Table, entries: pa.Table, ops: pa.Table, spans: Spans) -> pa.Table:
    """Return all steps of the given messages.

    Args:
        spans: extent of the lake.

    Returns:
        A table of `STEPS`.
    """
    f = Families(members)
    parts = [
        *link_deliveries(f, spans),
        *link_retries(f, spans),
        *link_transactions(f, ops, spans),
        *link_replays(f, spans),
        link_produced(f, _of(entries, Action.PUB)),
        link_consumed(f, join_consumptions(_of(entries, Action.BEFORE), _of(entries, Action.AFTER)), spans),
        link_logged(f, _of(entries, Action.LOGGED), spans),
        link_ended(f, _of(entries, Action.END)),
        link_recalled(f, _of(entries, Action.RECALL)),
    ]
    return pa.concat_tables([STEPS.empty_table(), *parts]).combine_chunks()


def _of(entries: pa.Table, action: Action) -> pa.Table:
    return entries.filter(pc.equal(entries.column("action"), str(action))).combine_chunks()


def to_edges(steps: pa.Table) -> pa.Table:
    """Return steps as rows of `edges`, sorted by the hash of the node."""
    firsts, seconds = (_nodes(steps, end) for end in (FROM, TO))
    firsts, seconds = pc.coalesce(firsts, seconds), pc.coalesce(seconds, firsts)
    is_same = pc.fill_null(pc.equal(firsts, seconds), True)
    two = np.flatnonzero(~is_same.to_numpy(zero_copy_only=False))
    index = np.concatenate([np.arange(steps.num_rows), two])
    nodes = pa.concat_arrays([pc.fill_null(firsts, ""), seconds.take(pa.array(two))])
    sides = pa.concat_arrays([pc.if_else(is_same, BOTH, FROM), repeated(TO, len(two))])
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
    return pa.table([_cast(column, f.type) for column, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def _cast(column: pa.Array | pa.ChunkedArray, data_type: pa.DataType) -> pa.Array | pa.ChunkedArray:
    return column if column.type == data_type else column.cast(data_type)


def _nodes(steps: pa.Table, end: str) -> pa.Array:
    """Return the node at one end of steps: the unique key, or the place of a record without one."""
    brokers, offsets = steps.column(f"{end}_broker"), steps.column(f"{end}_physical_offset").cast(pa.string())
    places = pc.binary_join_element_wise(brokers, offsets, "@")
    return pc.coalesce(steps.column(f"{end}_key"), places).combine_chunks()


def each_once(rows: pa.Table) -> pa.Table:
    """Return rows of `edges` with only one row for each step."""
    return rows.filter(mask_of(pc.not_equal(rows.column("side"), "to").to_numpy()))
