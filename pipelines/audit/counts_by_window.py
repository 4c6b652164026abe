"""Counts messages by window as Arrow tables of `AUDIT`: builds, merges and compares them.

The profile of archive tasks (`pipelines.quality.profile`) is different: it has more columns, needs all columns of
`messages`, and has no unknown checksums. An audit also counts rows of HBase, and rows with the bodies that were read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.numpy_arrays import Array
from commitlake.pipelines.archive.row_buffer import join_rows
from commitlake.pipelines.quality.checksums import column_hashes, message_hashes
from commitlake.schemas.tables.profile import (
    AUDIT,
    COLUMN_CHECKSUMS,
    KEY_COLUMNS,
    OPTIONAL_CHECKSUMS,
    WINDOW_SECONDS,
    ColumnChecksum,
)

SCHEMA: pa.Schema = arrow_schema(AUDIT)
DIFFERENCE, EXPECTED_ROW, FOUND_ROW = "difference", "expected_row", "found_row"
_KEYS = list(KEY_COLUMNS)
_NAMES = ("broker", "topic")
_WINDOW_US = WINDOW_SECONDS * 1_000_000
_SUM = pc.ScalarAggregateOptions(skip_nulls=True, min_count=0)
_KNOWN_SUM = pc.ScalarAggregateOptions(skip_nulls=False, min_count=0)


def count_messages_by_window(messages: pa.Table) -> pa.Table:
    """Count messages by queue and time window, with sums and checksums of their columns.

    Args:
        messages: has `broker`, `topic`, `queue_id`, `queue_offset`, `physical_offset`, `size`, `body_size`, `body_crc`
            and `store_timestamp`, each in one chunk. Rows without a size are bad ranges and are left out. A checksum of
            `OPTIONAL_CHECKSUMS` is null if one of its columns is missing.

    Returns:
        A table of `AUDIT`, one row per window.
    """
    if messages.column("size").null_count:
        messages = messages.filter(pc.is_valid(messages.column("size"))).combine_chunks()
    columns = {name: messages.column(name) for name in ("broker", "topic", "queue_id")}
    columns["window_start"] = window_starts(messages.column("store_timestamp"))
    columns["messages"] = pa.chunked_array([pa.array(np.ones(messages.num_rows, np.int64))])
    columns["bytes"], columns["body_bytes"] = messages.column("size"), messages.column("body_size")
    columns["checksum"] = pa.array(message_hashes(messages))
    for name in ("queue_offset", "physical_offset"):
        columns[f"first_{name}"] = columns[f"last_{name}"] = messages.column(name)
    columns["min_store_timestamp"] = columns["max_store_timestamp"] = messages.column("store_timestamp")
    columns |= {checksum.name: _message_hashes(messages, checksum) for checksum in COLUMN_CHECKSUMS}
    return merge_windows([pa.table([columns[name] for name in SCHEMA.names], SCHEMA.names)])


def _message_hashes(messages: pa.Table, checksum: ColumnChecksum) -> pa.Array:
    """Return each message's hash of the columns that a checksum covers; null where a column's value is unknown."""
    unknown = pa.nulls(messages.num_rows, pa.int64())
    if not {name.split(".")[0] for name in checksum.columns} <= set(messages.column_names):
        return unknown
    hashes = pa.array(column_hashes(messages, checksum.columns))
    if checksum.required and (required := messages.column(checksum.required)).null_count:
        return pc.if_else(pc.is_valid(required), hashes, unknown)
    return hashes


def merge_windows(parts: Iterable[pa.Table]) -> pa.Table:
    """Merge tables of message counts so that each queue and time window has one row.

    Args:
        parts: tables with the columns of `AUDIT`, in which a window may have any number of rows.

    Returns:
        A table of `AUDIT`, one row per window. An optional checksum is null if it is null in a part of the window.
    """
    tables = list(parts)
    if not tables:
        return SCHEMA.empty_table()
    table = join_rows(tables) if len(tables) > 1 else tables[0]
    texts = {}
    for name in _NAMES:  # integers are grouped much faster than strings
        codes, texts[name] = _dictionary_codes(table.column(name))
        table = table.set_column(table.schema.get_field_index(name), name, codes)
    grouped = table.group_by(_KEYS, use_threads=False).aggregate(
        [_column_aggregation(name) for name in SCHEMA.names[len(_KEYS) :]]
    )
    columns = {name: texts[name].take(grouped.column(name).combine_chunks()) for name in _NAMES}
    columns |= {name: grouped.column(name) for name in _KEYS if name not in _NAMES}
    columns |= {name: grouped.column(f"{name}_{_aggregate_function(name)}") for name in SCHEMA.names[len(_KEYS) :]}
    return pa.table([columns[name].cast(SCHEMA.field(name).type) for name in SCHEMA.names], schema=SCHEMA)


def _aggregate_function(name: str) -> str:
    if name.startswith(("first_", "min_")):
        return "min"
    return "max" if name.startswith(("last_", "max_")) else "sum"


def _column_aggregation(column_name: str) -> tuple[str, str] | tuple[str, str, pc.ScalarAggregateOptions]:
    function = _aggregate_function(column_name)
    if function != "sum":
        return column_name, function
    return column_name, function, _KNOWN_SUM if column_name in OPTIONAL_CHECKSUMS else _SUM


def _dictionary_codes(column: pa.ChunkedArray) -> tuple[pa.Array, pa.Array]:
    """Return a column's dictionary codes, which are null for null values, and the dictionary of its distinct texts."""
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    encoded = whole if pa.types.is_dictionary(whole.type) else whole.dictionary_encode()
    return encoded.indices, encoded.dictionary.cast(pa.string())


def window_starts(times: pa.ChunkedArray) -> pa.Array:
    """Return the start of the time window that each time is in; null for null."""
    micros = times.cast(pa.timestamp("us", "UTC")).cast(pa.int64()).combine_chunks()
    starts = micros.fill_null(0).to_numpy() // _WINDOW_US * _WINDOW_US
    absent = pc.is_null(micros).to_numpy(zero_copy_only=False) if micros.null_count else None
    return pa.array(starts, mask=absent).cast(pa.timestamp("us", "UTC"))


def differing_windows(expected: pa.Table, found: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Return the time windows in which the counts or checksums of two tables differ.

    Args:
        expected: a table of `AUDIT`, one row per window.
        found: another such table.
        columns: columns to compare.

    Returns:
        One row per differing window, in no order: the key's columns, `DIFFERENCE` ("missing", "unexpected" or
        "different"), and the window's row numbers in the two tables, null if there is none.
    """
    sides = [
        _add_window_numbers(expected, EXPECTED_ROW).append_column(FOUND_ROW, pa.nulls(expected.num_rows, pa.int64())),
        _add_window_numbers(found, FOUND_ROW).append_column(EXPECTED_ROW, pa.nulls(found.num_rows, pa.int64())),
    ]
    both = pa.concat_tables([side.select([*_KEYS, EXPECTED_ROW, FOUND_ROW]) for side in sides])
    joined = both.group_by(_KEYS, use_threads=False).aggregate([(EXPECTED_ROW, "max"), (FOUND_ROW, "max")])
    joined = joined.combine_chunks().rename_columns([*_KEYS, EXPECTED_ROW, FOUND_ROW])
    rows = joined.column(EXPECTED_ROW), joined.column(FOUND_ROW)
    is_missing, is_unexpected = pc.is_null(rows[1]), pc.is_null(rows[0])
    kinds = pc.if_else(is_missing, "missing", pc.if_else(is_unexpected, "unexpected", "different"))
    differ = [
        _differing_row_mask(name, expected.column(name).take(rows[0]), found.column(name).take(rows[1]))
        for name in columns
    ]
    wanted = reduce(pc.or_, [is_missing, is_unexpected, *differ])
    return joined.append_column(DIFFERENCE, kinds).filter(wanted)


def _add_window_numbers(windows: pa.Table, column_name: str) -> pa.Table:
    return windows.select(_KEYS).append_column(column_name, pa.array(np.arange(windows.num_rows, dtype=np.int64)))


def _differing_row_mask(name: str, expected: pa.ChunkedArray, found: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a mask of the rows in which a count or checksum differs between two tables.

    Optional checksums are compared only where both sides have one.
    """
    unequal = pc.not_equal(expected, found).fill_null(False)
    if name in OPTIONAL_CHECKSUMS:
        return unequal
    return pc.or_(unequal, pc.xor(pc.is_valid(expected), pc.is_valid(found)))


def count_messages(windows: pa.Table) -> int:
    """Return the number of messages in the given time windows."""
    counts: Array = windows.column("messages").to_numpy()
    return int(counts.sum())
