"""Rows of `messages` and profiles for the tests of quality."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from connectors.quality.merging import merge_profiles
from connectors.quality.profile import profile_rows
from connectors.quality.rows import COLUMNS
from schemas.tables.messages import MESSAGES

Row = dict[str, Any]
NOON = datetime.datetime(2026, 11, 20, 12, tzinfo=datetime.UTC)
_SCHEMA = to_arrow_schema(MESSAGES, timezone="UTC")
SCHEMA = pa.schema([_SCHEMA.field(name) for name in COLUMNS])


def message(number: int = 0, **changes: object) -> Row:
    """A row as the archive makes it: number `number` of queue 0, a second after the one before."""
    when = NOON + datetime.timedelta(seconds=number)
    row: Row = {
        "broker": "a",
        "physical_offset": 1000 * number,
        "size": 200,
        "topic": "orders",
        "queue_id": 0,
        "queue_offset": number,
        "msg_id": f"{number:032X}",
        "unique_key": f"key-{number}",
        "keys": ["k"],
        "tags": "t",
        "kind": "normal",
        "born_timestamp": when,
        "store_timestamp": when,
        "born_host": "127.0.0.1:1",
        "store_host": "127.0.0.1:2",
        "sys_flag": 0,
        "flag": 0,
        "reconsume_times": 0,
        "priority": None,
        "prepared_transaction_offset": 0,
        "body_size": 50,
        "body_crc": 7 + number,
        "body_codec": "none",
        "properties": [("KEYS", "k")],
        "body_ref": {"pack": "p", "frame_offset": 0, "frame_length": 99, "offset": 0, "length": 50},
    }
    assert changes.keys() <= row.keys()
    return row | changes


def messages(numbers: Iterable[int], **changes: object) -> list[Row]:
    """Some rows of one queue."""
    return [message(number, **changes) for number in numbers]


def table_of(rows: Sequence[Row]) -> pa.Table:
    """The rows as a task has them, strings that repeat as dictionaries."""
    table = pa.Table.from_pylist(list(rows), schema=SCHEMA)
    for name in ("broker", "topic", "tags", "kind", "born_host", "store_host", "body_codec"):
        place = table.schema.get_field_index(name)
        table = table.set_column(place, name, table.column(name).combine_chunks().dictionary_encode())
    return table


def profile_of(rows: Sequence[Row]) -> pa.Table:
    """The rows' profile."""
    return profile_rows(table_of(rows))


def only(rows: Sequence[Row]) -> Row:
    """The profile of rows of one window."""
    (found,) = profile_of(rows).to_pylist()
    return dict(found)


def merged(*parts: Sequence[Row]) -> list[Row]:
    """The merged profile of several tasks' rows."""
    return list(merge_profiles(map(profile_of, parts)).to_pylist())
