"""Rows of Spark and of plain Python in comparable form."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from commitlake.connectors.formats.registry import COMMITLOGS
from commitlake.connectors.formats.rocketmq.record_rules import to_message_row
from commitlake.connectors.reading.stores import find_stores, segment_size
from commitlake.connectors.reading.uncompiled_records import walk_store
from commitlake.schemas.tables.messages import BODY, CORRUPT_RECORD, SOURCE

Row = dict[str, Any]
COLUMNS = [field.name for field in SOURCE if field.name not in (BODY.name, CORRUPT_RECORD.name)]
_EPOCH = datetime.datetime.fromtimestamp(0, datetime.UTC)


def plain_rows(path: Path | str) -> list[Row]:
    """Return all records of the stores as the plain reader returns them, by broker and offset."""
    rows = [
        to_message_row(found.message, store.broker)
        for store in find_stores(str(path), formats=COMMITLOGS)
        for found in walk_store(store, segment_size(store))
        if found.message is not None
    ]
    return [{name: row[name] for name in COLUMNS} for row in rows]


def spark_rows(frame: DataFrame) -> list[Row]:
    """Return rows as plain values, by broker and offset: times as ms, maps as dictionaries."""
    rows = [
        {
            name: dict(value) if name == "properties" and value is not None else _plain(value)
            for name, value in row.items()
        }
        for row in frame.toArrow().to_pylist()
    ]
    return sorted(rows, key=lambda row: (row["broker"], row["physical_offset"]))


def _plain(value: object) -> object:
    if isinstance(value, datetime.datetime):
        return (value - _EPOCH) // datetime.timedelta(milliseconds=1)
    return value


def intact(rows: Iterable[Row]) -> list[Row]:
    """Return the rows that are messages, with the columns of the plain reader."""
    return [{name: row[name] for name in COLUMNS} for row in rows if row["size"] is not None]


def with_entries(frame: DataFrame) -> DataFrame:
    """Return the DataFrame with maps as sorted entries, because maps have no order and cannot be compared."""
    maps = [name for name, kind in frame.dtypes if kind.startswith("map<")]
    return frame.withColumns({name: F.array_sort(F.map_entries(name)) for name in maps})
