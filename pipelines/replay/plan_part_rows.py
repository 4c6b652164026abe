"""Rows of a plan's parts in the order of sending, and their bodies.

Rows of one store are in the order of its log, which is the order of each of its queues. Stores are merged by time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.lake.packs.body_batches import batches_with_bodies
from commitlake.connectors.lake.packs.errors import PackError, PackStoreError
from commitlake.connectors.lake.packs.pack_stores import PackStore
from commitlake.connectors.lake.packs.reader import FrameCache
from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.lake.sql import join_with_or, text_literal
from commitlake.connectors.numpy_arrays import Array
from commitlake.pipelines.replay.plan import LogRange
from commitlake.schemas.tables.columns import Columns
from commitlake.schemas.tables.messages import BODY, MESSAGES, SOURCE

COLUMNS = (
    "broker", "physical_offset", "size", "msg_id", "topic", "queue_id", "queue_offset", "keys", "tags",
    "store_timestamp", "born_timestamp", "sys_flag", "flag", "properties", "body_size", "body_crc", "body_codec",
    "body_ref", "format", "origin_topic",
)  # fmt: skip
_NO_BODY = "the lake has no body of this message"


@dataclass(frozen=True, slots=True)
class StoredBodies:
    """Bodies of messages as the broker stored them, and the reasons why some could not be read.

    Attributes:
        values: large_binary, one body for each row; empty if there is an error.
        errors: by row, the reason why there is no body.
    """

    values: pa.LargeBinaryArray
    errors: dict[int, str]


def log_ranges_condition(ranges: Sequence[LogRange]) -> str:
    """Return the SQL condition for rows in the given log ranges."""
    return join_with_or(
        [
            f"(broker = {text_literal(broker)} AND physical_offset >= {start} AND physical_offset < {end})"
            for broker, start, end in ranges
        ]
    )


def read_part_rows(table: DeltaTable, condition: str, ranges: Sequence[LogRange]) -> pa.Table:
    """Return the rows of `messages` in one part of a plan, in the order of sending.

    Args:
        table: the table `messages`, of a lake or copied from a log or from topics.
        condition: condition of the plan.

    Returns:
        `COLUMNS` of `messages`, and `body` if the table has it.
    """
    known = {field.name for field in table.schema().fields}
    columns = [SOURCE[name] if name == BODY.name else MESSAGES[name] for name in (*COLUMNS, BODY.name)]
    present = arrow_schema(Columns([column for column in columns if column.name in known]))
    sql = f"SELECT {', '.join(present.names)} FROM messages WHERE {log_ranges_condition(ranges)} AND {condition}"
    # The engine returns strings in a form that not all functions of Arrow accept.
    rows = pa.Table.from_batches([batch.cast(present) for batch in run_sql(table, "messages", sql)], present)
    for place, field in enumerate(arrow_schema(Columns(columns[:-1]))):
        if field.name not in known:
            rows = rows.add_column(place, field, pa.nulls(rows.num_rows, field.type))
    return rows.take(pa.array(sending_order(rows)))


def sending_order(rows: pa.Table) -> Array:
    """Return the row indexes in the order of sending: each store in log order, and the stores merged by store time.

    Args:
        rows: `broker`, `physical_offset` and `store_timestamp` of `messages`.
    """
    offsets = rows.column("physical_offset").to_numpy()
    times = rows.column("store_timestamp").cast(pa.int64()).fill_null(0).to_numpy()
    brokers = rows.column("broker").cast(pa.string()).combine_chunks().dictionary_encode()
    codes = np.asarray(brokers.indices)
    order = np.lexsort((offsets, codes))
    if len(brokers.dictionary) < 2:
        return order
    reached = times[order].copy()
    for code in range(len(brokers.dictionary)):
        of_broker = codes[order] == code
        reached[of_broker] = np.maximum.accumulate(reached[of_broker])
    return order[np.lexsort((offsets[order], codes[order], reached))]


def bodies_from_column(rows: pa.Table) -> StoredBodies:
    """Return the bodies of rows that have a column `body`, and possibly one of errors, as `replay_rows` has."""
    texts = rows.column("error").to_pylist() if "error" in rows.column_names else []
    values = pc.fill_null(rows.column(BODY.name).combine_chunks().cast(pa.large_binary()), b"")
    return StoredBodies(values, {row: text for row, text in enumerate(texts) if text})


def read_bodies_from_packs(rows: pa.Table, pack_store: PackStore) -> StoredBodies:
    """Read the bodies of rows from packs.

    Args:
        rows: `body_ref`, `body_size` and `body_crc` of `messages`.
        pack_store: packs of the lake.

    Raises:
        PackStoreError: The packs cannot be reached.
    """
    places = rows.select(["body_ref", "body_crc", "body_size"]).combine_chunks()
    packs = pc.struct_field(places.column("body_ref"), "pack")
    frames = pc.struct_field(places.column("body_ref"), "frame_offset")
    order = np.asarray(
        pc.sort_indices(pa.table({"pack": packs, "frame": frames}), [("pack", "ascending"), ("frame", "ascending")])
    )
    has_body = pc.not_equal(places.column("body_size"), 0).fill_null(True)  # null: the message is erased
    missing = np.asarray(pc.and_(pc.is_null(packs), has_body))
    errors = dict.fromkeys(np.flatnonzero(missing).tolist(), _NO_BODY)
    found = [
        _read_batch_bodies(batch, order[start : start + batch.num_rows], pack_store, errors)
        for start, batch in _batches_with_starts(places.take(pa.array(order)))
    ]
    values = pa.concat_arrays(found) if found else pa.array([], pa.large_binary())
    back = np.empty(len(order), np.int64)
    back[order] = np.arange(len(order))
    return StoredBodies(values.take(pa.array(back)), errors)


def _batches_with_starts(rows: pa.Table) -> Sequence[tuple[int, pa.RecordBatch]]:
    batches, start = [], 0
    for batch in rows.combine_chunks().to_batches():
        batches.append((start, batch))
        start += batch.num_rows
    return batches


def _read_batch_bodies(
    batch: pa.RecordBatch, row_numbers: Array, pack_store: PackStore, errors: dict[int, str]
) -> pa.Array:
    """Return the bodies of a batch of rows, reading them one by one if they cannot be read together."""
    cache = FrameCache()
    try:
        parts = [some.column("body") for some in batches_with_bodies(batch, pack_store, cache)]
    except PackStoreError:
        raise
    except PackError:
        parts = [
            _read_body(batch.slice(row, 1), int(row_numbers[row]), pack_store, cache, errors)
            for row in range(len(row_numbers))
        ]
    return pa.concat_arrays([pc.fill_null(part.cast(pa.large_binary()), b"") for part in parts])


def _read_body(
    row: pa.RecordBatch, row_number: int, pack_store: PackStore, cache: FrameCache, errors: dict[int, str]
) -> pa.Array:
    try:
        (only,) = batches_with_bodies(row, pack_store, cache)
    except PackStoreError:
        raise
    except PackError as error:
        errors[row_number] = str(error)
        return pa.array([b""], pa.binary())
    return only.column("body")
