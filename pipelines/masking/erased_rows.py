"""Removal of data from the rows of erased messages. Each function works on columns and has no side effects.

    removed      body_ref, body_size, body_crc, unique_key, keys, tags, born_host; all properties except those in
                 `KEPT_PROPERTIES`
    added        the property COMMITLAKE_ERASED: the id of the erasure
    kept         broker, offsets, topics, kind, times, the broker's host, size of the record, flags

With its size and CRC-32, a short body is found by trying all that it may be, so neither is kept. The kept properties
are those of brokers: where a message waited, how many attempts it had, its transaction. Properties that a producer sets
freely are removed, whatever their names. Earlier versions kept tags, born_host, body_size and body_crc.

The result depends only on the row and the id of the erasure, not on the time, so the checksums after an erasure can be
computed in advance, and records of a store can be compared with erased rows.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.lake.erasures import MARKER, ErasedMessages
from commitlake.connectors.numpy_arrays import Array

CHANGED_COLUMNS = ("unique_key", "keys", "properties", "body_ref", "tags", "born_host", "body_size", "body_crc")
_ALWAYS_CHANGED = ("unique_key", "keys", "body_ref")
"""Columns that are null since the first version of erasures."""
KEPT_PROPERTIES = frozenset({
    # RocketMQ: delay, timers, retries, transactions, batches, and where a message belongs
    "DELAY", "WAIT", "REAL_TOPIC", "REAL_QID", "RETRY_TOPIC", "DLQ_ORIGIN_TOPIC", "ORIGIN_GROUP", "TRAN_MSG", "PGROUP",
    "MIN_OFFSET", "MAX_OFFSET", "RECONSUME_TIME", "MAX_RECONSUME_TIMES", "CONSUME_START_TIME", "MSG_REGION",
    "TRACE_ON", "CLUSTER", "_SYS_MSG_PRIORITY_", "INNER_NUM", "INNER_BASE",
    "TRANSACTION_CHECK_TIMES", "TRAN_PREPARED_QUEUE_OFFSET", "TIMER_OUT_MS",
    "TIMER_DELIVER_MS", "TIMER_DELAY_MS", "TIMER_DELAY_SEC", "TIMER_DELAY_LEVEL", "TIMER_ENQUEUE_MS",
    "TIMER_DEQUEUE_MS", "TIMER_ROLL_TIMES",
    # JMQ
    "jmq.app", "jmq.receive_timestamp",
})  # fmt: skip
"""Names of the kept properties. Brokers and clients write all of them, and none contains personal data."""
_ONCE_KEPT = frozenset({"TAGS", "INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET"})


def erase_rows(rows: pa.Table, erased_messages: ErasedMessages) -> tuple[pa.Table, Array]:
    """Remove the data of erased messages from their rows.

    Args:
        rows: rows of `messages` with `broker`, `physical_offset` and `CHANGED_COLUMNS`; texts may be dictionary arrays.
        erased_messages: the erased messages.

    Returns:
        The rows in the same order, and the numbers of the changed ones; rows that were erased before do not change.
    """
    rows = rows.combine_chunks()
    ids = erased_messages.find_row_erasure_indexes(
        _single_chunk(rows, "broker"), _single_chunk(rows, "physical_offset")
    )
    hits = np.flatnonzero(ids >= 0)
    if not len(hits):
        return rows, hits
    # A row that is erased already keeps the id of its first erasure.
    hits = hits[~erased_row_mask(rows.select(CHANGED_COLUMNS).take(pa.array(hits)))]
    if not len(hits):
        return rows, hits
    found = rows.take(pa.array(hits))
    kept = [_kept_properties(pairs, erased_messages.ids[ids[row]]) for pairs, row in _properties_of_rows(found, hits)]
    for name in CHANGED_COLUMNS:
        place, field = rows.schema.get_field_index(name), rows.schema.field(name)
        column = pa.array(kept, field.type) if name == "properties" else pa.nulls(len(hits), field.type)
        found = found.set_column(place, field, column)
    stays = np.setdiff1d(np.arange(rows.num_rows), hits)
    joined = pa.concat_tables([rows.take(pa.array(stays)), found]).unify_dictionaries().combine_chunks()
    order = np.empty(rows.num_rows, np.int64)
    order[np.concatenate([stays, hits])] = np.arange(rows.num_rows)
    return _reencode_dictionaries(joined.take(pa.array(order))).combine_chunks(), hits


def _reencode_dictionaries(rows: pa.Table) -> pa.Table:
    """Rebuild the dictionaries of dictionary columns, so that they contain no values of erased rows."""
    for place, field in enumerate(rows.schema):
        if field.name in CHANGED_COLUMNS and pa.types.is_dictionary(field.type):
            column = rows.column(place).cast(field.type.value_type).dictionary_encode().cast(field.type)
            rows = rows.set_column(place, field, column)
    return rows


def erased_row_mask(rows: pa.Table, *, by_any_version: bool = False) -> Array:
    """Return a mask of the rows whose data was removed by an erasure.

    The property alone proves nothing, because a producer can send a message with it.

    Args:
        rows: rows of `messages` with `CHANGED_COLUMNS`.
        by_any_version: True to include rows as erasures of earlier versions left them.
    """
    is_empty = np.ones(rows.num_rows, bool)
    for name in _ALWAYS_CHANGED if by_any_version else CHANGED_COLUMNS:
        if name != "properties":
            is_empty &= pc.is_null(rows.column(name)).to_numpy()
    kept = KEPT_PROPERTIES | _ONCE_KEPT if by_any_version else KEPT_PROPERTIES
    found = np.zeros(rows.num_rows, bool)
    candidates = np.flatnonzero(is_empty)
    for row, pairs in zip(candidates, rows.column("properties").take(pa.array(candidates)).to_pylist(), strict=True):
        names = {name for name, _ in pairs or ()}
        found[row] = MARKER in names and names - {MARKER} <= kept
    return found


def _properties_of_rows(rows: pa.Table, row_numbers: Array) -> list[tuple[list[tuple[str, str]], int]]:
    pairs = rows.column("properties").to_pylist()
    return [(found or [], number) for found, number in zip(pairs, row_numbers.tolist(), strict=True)]


def _kept_properties(properties: list[tuple[str, str]], erasure_id: str) -> list[tuple[str, str]]:
    return [*((name, value) for name, value in properties if name in KEPT_PROPERTIES), (MARKER, erasure_id)]


def _single_chunk(rows: pa.Table, name: str) -> pa.Array:
    column = rows.column(name)
    return column.chunk(0) if column.num_chunks else pa.array([], column.type)
