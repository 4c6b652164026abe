"""Conversion of messages to HBase cells and back, batch by batch.

A message's row has one cell, `m:v`: a JSON object of its columns in the order of `messages`. Null columns are left out,
times are in µs since 1970, and the date is text. One cell per column, as is common in HBase, took twice as long to
write: the number of cells determines the cost, and no look-up reads a single column. An index entry has one cell,
`m:r`: the key of the message's row.

The timestamp of a cell is the last millisecond of the message's store date (`cell_timestamp_ms`), not the time of
writing. So
writing it again changes nothing, and HBase's TTL counts from the message's own date. The timestamp has the precision of
a day because Thrift gives all cells of one call the same timestamp. The cells of an erased message are one millisecond
later: if a follower read the row before the erasure and writes it afterwards, the message does not reappear.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.hbase.errors import HBaseError
from commitlake.connectors.hbase.keys import (
    BY_KEY,
    BY_UNIQUE_KEY,
    encode_position,
    encode_time,
    entry_prefix,
    key_hash,
    message_key,
    offset_prefix,
    topic_hash,
)
from commitlake.connectors.lake.erasures import MARKER
from commitlake.schemas.tables.messages import MESSAGES

FAMILY = b"m"
VALUE = b"m:v"
REFERENCE = b"m:r"
NEVER_EXPIRES_MS = 253_402_300_799_999
"""For messages without a time: the last millisecond of the year 9999."""
ARROW_SCHEMA: pa.Schema = arrow_schema(MESSAGES)
_DAY_MS = 86_400_000
_TIMES = frozenset(field.name for field in ARROW_SCHEMA if pa.types.is_timestamp(field.type))
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class Cell(NamedTuple):
    """A cell to write: its row key, column and value."""

    key: bytes
    column: bytes
    value: bytes


class MessageCells(NamedTuple):
    """The cells of one message, beginning with the cell of the message itself, and their common timestamp."""

    timestamp_ms: int
    cells: Sequence[Cell]


def to_cells(batch: pa.RecordBatch, salt_count: int) -> Iterator[MessageCells]:
    """Yield the cells of each message of a batch.

    Args:
        batch: columns of `schemas.tables.messages.MESSAGES`, including `broker` and `physical_offset`; missing columns
            are null.
        salt_count: the table's number of salts.

    Raises:
        HBaseError: if a column has another name or type, or a message has no broker or offset.
    """
    names = batch.schema.names
    check_columns(names)
    lists = [_json_values(name, batch.column(number)) for number, name in enumerate(names)]
    hashes: dict[str | None, bytes] = {}
    for values in zip(*lists, strict=True):
        row = {name: value for name, value in zip(names, values, strict=True) if value is not None}
        broker, offset, topic = row.get("broker"), row.get("physical_offset"), row.get("topic")
        if broker is None or offset is None:
            raise HBaseError(
                f"a message has the broker {broker!r} and the physical_offset {offset!r}, which are its key: expected "
                "that neither is null"
            )
        if topic not in hashes:
            hashes[topic] = topic_hash(topic)
        yield _message_cells(row, salt_count, hashes[topic])


def _message_cells(row: dict[str, Any], salt_count: int, topic_key: bytes) -> MessageCells:
    store_us = row.get("store_timestamp")
    place = encode_position(row["broker"], row["physical_offset"])
    time = encode_time(store_us)
    tail = time + place
    key = message_key(salt_count, topic_key, time, place)
    cells = [
        Cell(key, VALUE, _encode(row).encode()),
        Cell(offset_prefix(salt_count, row["physical_offset"]) + row["broker"].encode(), REFERENCE, key),
    ]
    if "unique_key" in row:
        cells.append(Cell(entry_prefix(salt_count, BY_UNIQUE_KEY, key_hash(row["unique_key"])) + tail, REFERENCE, key))
    cells += [
        Cell(entry_prefix(salt_count, BY_KEY, key_hash(business_key)) + tail, REFERENCE, key)
        for business_key in dict.fromkeys(row.get("keys", ()))
    ]
    is_erased = MARKER in row.get("properties", ()) and not {"unique_key", "keys", "body_ref"} & row.keys()
    return MessageCells(cell_timestamp_ms(store_us) + is_erased, cells)


def cell_timestamp_ms(store_us: int | None) -> int:
    """Return the timestamp of a message's cells: the last ms of the day on which it was stored; 0 before 1970."""
    if store_us is None:
        return NEVER_EXPIRES_MS
    return max(0, (store_us // 1000 // _DAY_MS + 1) * _DAY_MS - 1)


def check_columns(names: Iterable[str]) -> None:
    """Refuse columns that `messages` does not have, and a set of columns without the primary key of `messages`.

    Raises:
        HBaseError: if a column is not in `messages`, or a column of its primary key is missing.
    """
    given = set(names)
    if unknown := sorted(given - set(MESSAGES.names)):
        raise HBaseError(f"a message has no columns {', '.join(unknown)}: expected some of {', '.join(MESSAGES.names)}")
    if missing := sorted({"broker", "physical_offset"} - given):
        raise HBaseError(
            f"the column {missing[0]} is missing: expected the primary key of messages, which is broker and "
            "physical_offset"
        )


def _json_values(name: str, column: pa.Array) -> list[Any]:
    """Return a column's values as JSON represents them."""
    data_type = ARROW_SCHEMA.field(name).type
    try:
        if pa.types.is_map(column.type):
            return [None if pairs is None else dict(pairs) for pairs in column.to_pylist()]
        if not pa.types.is_nested(data_type):
            column = column.cast(data_type)
        if name in _TIMES:
            column = column.cast(pa.int64())
        elif pa.types.is_date(data_type):
            column = column.cast(pa.string())
        values: list[Any] = column.to_pylist()
    except pa.ArrowException as error:
        raise HBaseError(f"column {name}: expected {data_type}, found {column.type}: {error}") from None
    return values


def parse_row(cell_value: bytes) -> dict[str, Any]:
    """Return a message's columns from the value of its cell `m:v`, in the form that `to_batch` takes.

    Raises:
        HBaseError: if the cell holds no JSON object.
    """
    try:
        row = json.loads(cell_value)
    except ValueError:
        row = None
    if not isinstance(row, dict):
        raise HBaseError(f"a cell m:v in HBase holds {cell_value[:60]!r}: expected the JSON object of a message")
    return row


def to_batch(rows: Sequence[dict[str, Any]], columns: Sequence[str] = tuple(MESSAGES.names)) -> pa.RecordBatch:
    """Return messages from `parse_row` as Arrow, with the types of `messages`; times in UTC."""
    fields = [ARROW_SCHEMA.field(name) for name in columns]
    arrays = [
        _FROM_JSON.get(field.name, _plain_array)([row.get(field.name) for row in rows], field.type) for field in fields
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _plain_array(values: list[Any], data_type: pa.DataType) -> pa.Array:
    return pa.array(values, data_type)


def _time_array(values: list[Any], data_type: pa.DataType) -> pa.Array:
    return pa.array(values, pa.int64()).cast(data_type)


def _date_array(values: list[Any], data_type: pa.DataType) -> pa.Array:
    return pa.array(values, pa.string()).cast(data_type)


def _map_array(values: list[Any], data_type: pa.DataType) -> pa.Array:
    return pa.array([None if value is None else list(value.items()) for value in values], data_type)


_FROM_JSON: dict[str, Callable[[list[Any], pa.DataType], pa.Array]] = {
    **dict.fromkeys(_TIMES, _time_array),
    "store_date": _date_array,
    "properties": _map_array,
}
