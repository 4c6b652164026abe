"""Splits inner batches: records of topics with BatchConsumeQueues (5.x) that hold several messages each.

A row of `messages` is a record. A replay sends the messages in it, as a consumer gets them. Each counts as the one at
the record's physical offset plus its number in the record; records are longer than that, so these offsets are unique,
and those of the first messages are their records'.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from commitlake.connectors.formats.engine.bodies import decompress
from commitlake.connectors.formats.engine.errors import BodyError
from commitlake.connectors.lake.reader import run_sql
from commitlake.pipelines.replay.parts import StoredBodies
from commitlake.pipelines.restore.arrow import numbers
from commitlake.schemas.layouts.errors import LayoutError
from commitlake.schemas.layouts.rocketmq import properties as props
from commitlake.schemas.layouts.rocketmq.inner_batch import INNER_BASE, INNER_NUM, queue_numbers
from commitlake.schemas.layouts.rocketmq.sysflag import COMPRESSED, COMPRESSION_MASK, INNER_BATCH, NEED_UNWRAP
from commitlake.schemas.remoting.batch import BatchItem, parse_batch

_BODY, _ERROR = "inner_body", "inner_error"
_CODEC_BITS = COMPRESSED | COMPRESSION_MASK
IS_FLAGGED = f"(sys_flag & {INNER_BATCH}) <> 0"
"""SQL for rows that may be inner batches; a client can set the flag, so their properties decide."""


def further_messages(table: DeltaTable, condition: str, group: str) -> dict[tuple[Any, ...], int]:
    """Return how many messages inner batches hold besides the first of each, by the values of SQL expressions.

    Args:
        condition: SQL condition on its rows.
        group: SQL expressions, separated by commas.

    Raises:
        QueryError: if the table cannot be read.
    """
    keys = [f"key_{number}" for number in range(group.count(",") + 1)]
    named = ", ".join(f"{each} AS {key}" for each, key in zip(group.split(", "), keys, strict=True))
    has_format = any(field.name == "format" for field in table.schema().fields)
    is_rocketmq = "coalesce(format, 'rocketmq') = 'rocketmq'" if has_format else "true"
    sql = (
        f"SELECT {named}, queue_offset, properties['{INNER_BASE}'] AS base, properties['{INNER_NUM}'] AS count "
        f"FROM messages WHERE ({condition}) AND {IS_FLAGGED} AND {is_rocketmq}"
    )
    found: dict[tuple[Any, ...], int] = {}
    for batch in run_sql(table, "messages", sql):
        for row in batch.to_pylist():
            key = tuple(row[name] for name in keys)
            found[key] = found.get(key, 0) + _count({INNER_BASE: row["base"], INNER_NUM: row["count"]}) - 1
    return found


def _count(properties: Mapping[str, str | None]) -> int:
    return queue_numbers({name: text for name, text in properties.items() if text is not None}, 0)[1]


def split_inner_batches(rows: pa.Table, bodies: Callable[[pa.Table], StoredBodies]) -> pa.Table:
    """Return rows in which each message of an inner batch has a row of its own.

    Args:
        rows: `parts.COLUMNS` of `messages`.
        bodies: returns the stored bodies of rows.

    Returns:
        The rows, in their order, and columns for `bodies_of_split` if there is an inner batch.
    """
    is_flagged = (numbers(rows.column("sys_flag").combine_chunks()) & INNER_BATCH) != 0
    formats = pc.fill_null(rows.column("format").cast(pa.string()), "rocketmq")  # JMQ has another meaning of the bit
    flagged = np.flatnonzero(is_flagged & np.asarray(pc.equal(formats, "rocketmq")))
    own = rows.take(pa.array(flagged)).select(["properties"]).to_pylist() if len(flagged) else []
    places = [int(row) for row, record in zip(flagged, own, strict=True) if _is_batch(record["properties"])]
    if not places:
        return rows
    records = rows.take(pa.array(places))
    stored = bodies(records)
    schema = rows.schema.append(pa.field(_BODY, pa.large_binary())).append(pa.field(_ERROR, pa.string()))
    pieces, position = [], 0
    for number, (place, record) in enumerate(zip(places, records.to_pylist(), strict=True)):
        pieces.append(_with_nulls(rows.slice(position, place - position), schema))
        split = list(_messages_of(record, stored.values[number].as_py(), stored.errors.get(number)))
        pieces.append(pa.Table.from_pylist(split, schema))
        position = place + 1
    pieces.append(_with_nulls(rows.slice(position), schema))
    return pa.concat_tables(pieces).combine_chunks()


def bodies_of_split(rows: pa.Table, bodies: Callable[[pa.Table], StoredBodies]) -> StoredBodies:
    """Return the bodies of rows from `split_inner_batches`.

    Args:
        bodies: returns the stored bodies of other rows.
    """
    if _BODY not in rows.column_names:
        return bodies(rows)
    is_split = np.asarray(pc.or_(pc.is_valid(rows.column(_BODY)), pc.is_valid(rows.column(_ERROR))))
    others = bodies(rows.filter(pa.array(~is_split)))
    own = rows.filter(pa.array(is_split))
    places = np.empty(rows.num_rows, np.int64)
    places[~is_split] = np.arange(len(others.values))
    places[is_split] = len(others.values) + np.arange(own.num_rows)
    values = pa.concat_arrays([others.values, pc.fill_null(own.column(_BODY).combine_chunks(), b"")])
    unsplit = np.flatnonzero(~is_split)
    errors = {int(unsplit[row]): text for row, text in others.errors.items()}
    texts = own.column(_ERROR).to_pylist()
    errors |= {row: text for row, text in zip(np.flatnonzero(is_split).tolist(), texts, strict=True) if text}
    return StoredBodies(values.take(pa.array(places)), errors)


def _is_batch(properties: list[tuple[str, str]] | None) -> bool:
    found = dict(properties or ())
    return INNER_NUM in found and queue_numbers(found, -1)[0] >= 0


def _with_nulls(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    return rows.append_column(_BODY, pa.nulls(rows.num_rows, pa.large_binary())).append_column(
        _ERROR, pa.nulls(rows.num_rows, pa.string())
    ).cast(schema)  # fmt: skip


def _messages_of(record: Mapping[str, Any], body: bytes, error: str | None) -> Iterator[dict[str, Any]]:
    """Yield the row of each message of a record."""
    base, count = queue_numbers(dict(record["properties"]), record["queue_offset"])
    flags = record["sys_flag"] & ~(INNER_BATCH | NEED_UNWRAP)
    items: list[BatchItem] = []
    if error is None:
        try:
            items, flags = _items(body, flags)
        except (LayoutError, BodyError) as problem:
            error = f"an inner batch whose messages cannot be read: {problem}"
        else:
            if len(items) != count:
                error = f"an inner batch of {len(items)} messages, expected {count}"
    for number in range(count):
        row = dict(record) | {
            "physical_offset": record["physical_offset"] + number, "queue_offset": base + number, "sys_flag": flags,
            _ERROR: error,
        }  # fmt: skip
        yield row if error is not None else row | _of_item(items[number])


def _items(body: bytes, flags: int) -> tuple[list[BatchItem], int]:
    """Return the messages of a body, which may be compressed as a whole, and the flags of each."""
    try:
        return parse_batch(body), flags
    except LayoutError:
        if not flags & _CODEC_BITS:
            raise
        return parse_batch(decompress(body, flags)), flags & ~_CODEC_BITS


def _of_item(item: BatchItem) -> dict[str, Any]:
    pairs = props.parse_properties(item.properties)
    found = dict(pairs)
    keys = found.get(props.KEYS)
    return {
        "flag": item.flag, "properties": list(found.items()), "tags": found.get(props.TAGS),
        "keys": None if keys is None else props.split_keys(keys), "body_size": len(item.body),
        "body_crc": zlib.crc32(item.body) & 0x7FFFFFFF, _BODY: item.body,
    }  # fmt: skip
