"""Rows of `messages` and profiles, for tests of expectations."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.pipelines.quality.profile import PROFILED_COLUMNS, profile_rows
from commitlake.pipelines.quality.profile_columns import FIRST, LAST, QUEUE, SUMS, WindowParts
from commitlake.pipelines.quality.profile_merging import merge_profiles
from commitlake.schemas.tables.messages import MESSAGES
from commitlake.schemas.tables.profile import WINDOW_SECONDS

Row = dict[str, Any]
NOON = datetime.datetime(2026, 11, 20, 12, tzinfo=datetime.UTC)
_SCHEMA = arrow_schema(MESSAGES)
SCHEMA = pa.schema([_SCHEMA.field(name) for name in PROFILED_COLUMNS])


def message(number: int = 0, **changes: object) -> Row:
    """Return a row as the archive writes it: message `number` of queue 0, a second after the previous one."""
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
        "format": "rocketmq",
        "origin_topic": "orders",
        "producer_group": None,
        "body_ref": {"pack": "p", "frame_offset": 0, "frame_length": 99, "offset": 0, "length": 50},
    }
    assert changes.keys() <= row.keys()
    return row | changes


def messages(numbers: Iterable[int], **changes: object) -> list[Row]:
    """Return rows of one queue."""
    return [message(number, **changes) for number in numbers]


def table_of(rows: Sequence[Row]) -> pa.Table:
    """Return the rows as in a task, with repeated strings as dictionaries."""
    table = pa.Table.from_pylist(list(rows), schema=SCHEMA)
    for name in (
        "broker", "topic", "tags", "kind", "born_host", "store_host", "body_codec", "format", "origin_topic",
        "producer_group",
    ):  # fmt: skip
        place = table.schema.get_field_index(name)
        table = table.set_column(place, name, table.column(name).combine_chunks().dictionary_encode())
    return table


def profile_of(rows: Sequence[Row]) -> pa.Table:
    """Return the rows' profile."""
    return profile_rows(table_of(rows))


def only(rows: Sequence[Row]) -> Row:
    """Return the profile of rows of one window."""
    (found,) = profile_of(rows).to_pylist()
    return dict(found)


def merged(*parts: Sequence[Row]) -> list[Row]:
    """Return the merged profile of several tasks' rows."""
    return list(merge_profiles(map(profile_of, parts)).to_pylist())


def many_windows(windows: range, *, broker: str = "a", topics: int = 100, queues: int = 4) -> pa.Table:
    """Return a valid profile with ten messages of each queue in each window, for a number of topics of one broker."""
    count = len(windows) * topics * queues
    window, queue = np.divmod(np.arange(count), topics * queues)
    window += windows.start
    start = int(NOON.timestamp()) * 1_000_000 + window * WINDOW_SECONDS * 1_000_000
    place = (window * topics * queues + queue) * 10_000
    first = {
        "first_queue_offset": window * 10,
        "first_physical_offset": place,
        "min_store_timestamp": start,
        "min_born_timestamp": start,
        "min_size": np.full(count, 200),
    }
    beyond = (9, 9000, 9_000_000, 9_000_000, 0)
    last = {name: first[of] + more for name, of, more in zip(LAST, FIRST, beyond, strict=True)}
    sums = {"messages": 10, "bytes": 2000, "body_bytes": 500, "queue_offsets": 10}
    values = {name: np.full(count, sums.get(name, 0)) for name in (*SUMS, *QUEUE)} | first | last
    values["checksum"] = np.random.default_rng(7).integers(-(1 << 62), 1 << 62, count)
    runs = [values[name] for name in (FIRST[1], LAST[1], FIRST[0], LAST[0])]
    names = pa.array([f"topic-{number:06d}" for number in range(topics)])
    return WindowParts(
        keys=[
            pa.array([broker]).take(pa.array(np.zeros(count, np.int64))),
            names.take(pa.array(queue // queues)),
            pa.array(queue % queues, pa.int32()),
            pa.array(start, pa.timestamp("us", "UTC")),
        ],
        values=values,
        runs=np.array(runs),
        run_counts=np.ones(count, np.int64),
        known=np.ones(count, bool),
    ).to_table()
