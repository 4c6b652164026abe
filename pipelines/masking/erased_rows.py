"""Removal of data from the rows of erased messages, and rows of `erasures` about it. No function has side effects.

    removed      body_ref, body_size, body_crc, unique_key, keys, tags, born_host; all properties except those in
                 `KEPT_PROPERTIES`
    added        the property COMMITLAKE_ERASED: the id of the erasure
    kept         broker, offsets, topics, kind, times, the broker's host, size of the record, flags

With its size and CRC-32, a short body is found by trying all that it may be, so neither is kept. The kept properties
are those of brokers: where a message waited, how many attempts it had, its transaction. Properties that a producer sets
freely are removed, whatever their names. Earlier versions kept tags, born_host, body_size and body_crc.

The result depends only on the row and the id of the erasure, not on the time, so the checksums after an erasure can be
computed in advance, and records of a store can be compared with erased rows.

Rows of `erasures` have the places of erased messages, and the hashes of their rows. The checksums of a profile are sums
of such hashes. A hash of a row before its erasure, and so a sum that has it, would confirm a guess of the erased
contents. It is therefore kept only until the profiles are corrected: `row_before`, `lake_before` and, in `detail`, what
else changes in the profile of the message's window. Until then, an audit corrects the profiles itself.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.arrays import Array
from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.lake.erasures import MARKER, ErasedPlaces
from commitlake.connectors.lake.log_check import WAY_OUT, LogDamagedError
from commitlake.pipelines.quality.checksums import column_hashes, message_hashes
from commitlake.schemas.tables.erasures import ERASURES, ErasureEvent
from commitlake.schemas.tables.profile import COLUMN_CHECKSUMS

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
ERASURES_SCHEMA: pa.Schema = arrow_schema(ERASURES)
CHECKSUMS = {"row_checksum": "row", "lake_checksum": "lake"}
"""Prefix of the hash columns in `erasures`, by checksum of the profile."""
CHANGED_FIGURES = ("checksum", "body_bytes", *CHECKSUMS)
"""Figures of a profile that an erasure changes."""
_PLACE = ("broker", "physical_offset", "topic", "queue_id", "store_timestamp", "body_ref")


def erase_rows(rows: pa.Table, places: ErasedPlaces) -> tuple[pa.Table, Array]:
    """Remove the data of erased messages from their rows.

    Args:
        rows: rows of `messages` with `broker`, `physical_offset` and `CHANGED_COLUMNS`; texts may be dictionary arrays.
        places: the erased messages.

    Returns:
        The rows in the same order, and the numbers of the changed ones; rows that were erased before do not change.
    """
    rows = rows.combine_chunks()
    ids = places.ids_of_rows(_array(rows, "broker"), _array(rows, "physical_offset"))
    hits = np.flatnonzero(ids >= 0)
    if not len(hits):
        return rows, hits
    hits = hits[~are_erased(rows.select(CHANGED_COLUMNS).take(pa.array(hits)))]
    if not len(hits):
        return rows, hits
    found = rows.take(pa.array(hits))
    kept = [_kept_properties(pairs, places.ids[ids[row]]) for pairs, row in _pairs_of(found, hits)]
    for name in CHANGED_COLUMNS:
        place, field = rows.schema.get_field_index(name), rows.schema.field(name)
        column = pa.array(kept, field.type) if name == "properties" else pa.nulls(len(hits), field.type)
        found = found.set_column(place, field, column)
    stays = np.setdiff1d(np.arange(rows.num_rows), hits)
    joined = pa.concat_tables([rows.take(pa.array(stays)), found]).unify_dictionaries().combine_chunks()
    order = np.empty(rows.num_rows, np.int64)
    order[np.concatenate([stays, hits])] = np.arange(rows.num_rows)
    return _without_unused(joined.take(pa.array(order))).combine_chunks(), hits


def _without_unused(rows: pa.Table) -> pa.Table:
    """Encode dictionaries again: a data file stores all their values, also those of erased rows."""
    for place, field in enumerate(rows.schema):
        if field.name in CHANGED_COLUMNS and pa.types.is_dictionary(field.type):
            column = rows.column(place).cast(field.type.value_type).dictionary_encode().cast(field.type)
            rows = rows.set_column(place, field, column)
    return rows


def are_erased(rows: pa.Table, *, by_any_version: bool = False) -> Array:
    """Return which rows are as an erasure leaves them.

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


def _pairs_of(rows: pa.Table, numbers: Array) -> list[tuple[list[tuple[str, str]], int]]:
    pairs = rows.column("properties").to_pylist()
    return [(found or [], number) for found, number in zip(pairs, numbers.tolist(), strict=True)]


def _kept_properties(pairs: list[tuple[str, str]], erasure_id: str) -> list[tuple[str, str]]:
    return [*((name, value) for name, value in pairs if name in KEPT_PROPERTIES), (MARKER, erasure_id)]


def _array(rows: pa.Table, name: str) -> pa.Array:
    column = rows.column(name)
    return column.chunk(0) if column.num_chunks else pa.array([], column.type)


@dataclass(frozen=True, slots=True)
class ErasureWriter:
    """The process that writes rows, and the time.

    Attributes:
        at: µs since 1970, UTC.
        owner: host and process id.
        parser_version: version of CommitLake.
    """

    at: int
    owner: str
    parser_version: str


def erasure_rows(
    before: pa.Table,
    after: pa.Table,
    erasure_ids: list[str],
    numbers: list[int],
    event: ErasureEvent,
    writer: ErasureWriter,
    *,
    is_counted: bool = False,
) -> pa.Table:
    """Return rows of `erasures` for messages.

    Args:
        before: rows of `messages` before the erasure, each column in one chunk, without `store_date`.
        after: the same rows after the erasure.
        erasure_ids: id of the erasure of each row.
        numbers: number of the erasure of each row.
        event: `message` or `again`.
        writer: the process that writes them.
        is_counted: True if the profiles count the rows after the erasure; then nothing is kept of those before.
    """
    count = before.num_rows
    columns = {name: before.column(name) for name in _PLACE}
    for checksum in COLUMN_CHECKSUMS:
        if checksum.name in CHECKSUMS:
            for when, rows in (("before", before), ("after", after)):
                hashed = after if is_counted else rows
                columns[f"{CHECKSUMS[checksum.name]}_{when}"] = pa.array(column_hashes(hashed, checksum.columns))
    if not is_counted:
        columns["detail"] = pa.array(_changes(before, after), pa.string())
    columns["number"], columns["erasure_id"] = pa.array(numbers, pa.int64()), pa.array(erasure_ids, pa.string())
    columns["event"] = pa.array([str(event)] * count)
    columns["at"] = pa.array([writer.at] * count, pa.int64())
    columns["owner"] = pa.array([writer.owner] * count)
    columns["parser_version"] = pa.array([writer.parser_version] * count)
    return conform(pa.table(columns))


def _changes(before: pa.Table, after: pa.Table) -> list[str]:
    """Return what an erasure changes in the profile of each message's window, beside `CHECKSUMS`."""
    hashes = (message_hashes(after).view(np.uint64) - message_hashes(before).view(np.uint64)).view(np.int64)
    sizes = [pc.fill_null(rows.column("body_size"), 0).to_numpy().astype(np.int64) for rows in (before, after)]
    changed = zip(hashes.tolist(), (sizes[1] - sizes[0]).tolist(), strict=True)
    return [json.dumps({"checksum": checksum, "body_bytes": size}) for checksum, size in changed]


def changes_of(rows: pa.Table) -> dict[str, Array]:
    """Return what erasures change in each figure of `CHANGED_FIGURES`, and `unknown`: rows without their hashes."""
    names = ("checksum", "body_bytes")
    try:
        details = [json.loads(text) if text else {} for text in rows.column("detail").to_pylist()]
        found: dict[str, Array] = {name: np.array([one.get(name, 0) for one in details], np.int64) for name in names}
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise LogDamagedError(
            f"the table 'erasures': expected what an erasure changes as 'erase' writes it, found {error!r}. {WAY_OUT}"
        ) from None
    unknown = np.zeros(rows.num_rows, bool)
    for checksum, name in CHECKSUMS.items():
        both = [rows.column(f"{name}_{when}") for when in ("before", "after")]
        before, after = (hashes.fill_null(0).to_numpy().view(np.uint64) for hashes in both)
        found[checksum] = (after - before).view(np.int64)
        unknown |= np.asarray(pc.or_(*map(pc.is_null, both)).to_numpy(), bool)
    return {**found, "unknown": unknown}


def newest_of_messages(rows: pa.Table) -> pa.Table:
    """Return the newest row of each message."""
    rows = rows.sort_by([("at", "descending")]).combine_chunks()
    numbered = rows.select(["broker", "physical_offset"]).append_column(
        "row", pa.array(np.arange(rows.num_rows, dtype=np.int64))
    )
    first = numbered.group_by(["broker", "physical_offset"], use_threads=False).aggregate([("row", "min")])
    return rows.take(first.column("row_min")).combine_chunks()


def conform(rows: pa.Table) -> pa.Table:
    """Return rows with all columns and types of `erasures`; missing columns are null."""
    columns = []
    for field in ERASURES_SCHEMA:
        if field.name not in rows.column_names:
            columns.append(pa.nulls(rows.num_rows, field.type))
            continue
        column = rows.column(field.name)
        columns.append(_plain(column) if pa.types.is_struct(column.type) else column.cast(field.type))
    return pa.table(columns, schema=ERASURES_SCHEMA)


def _plain(places: pa.ChunkedArray) -> pa.Array:
    """Return `body_ref` without dictionaries; the rows are few."""
    return pa.array(places.to_pylist(), ERASURES_SCHEMA.field("body_ref").type)
