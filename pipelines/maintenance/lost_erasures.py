"""Restores rows of `erasures` that a damaged data file has lost, from the data files of `messages`.

An erased row of `messages` names its erasure in the property COMMITLAKE_ERASED, so its place and its hash after the
erasure can be found there. Its hash before, and the place of its body, are only in an older version of the row, which
exists until the purge; without it they stay null. If the profiles still count the row as it was before, an audit does
not compare the checksums of these windows. The reason and the retention of an erasure are in no other table, nor are
the hashes that recognise later copies.
"""

from __future__ import annotations

import datetime
import itertools
import json
import os
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from deltalake.exceptions import TableNotFoundError

from commitlake.connectors.arrays import Array
from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.lake.erasures import MARKER, ErasedPlaces, erased_places, erasure_number
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.paths import LakeError
from commitlake.connectors.lake.versions import table_files
from commitlake.pipelines.masking.erased_rows import (
    CHANGED_COLUMNS,
    ERASURES_SCHEMA,
    ErasureWriter,
    are_erased,
    conform,
    erasure_rows,
)
from commitlake.schemas.counts import count_text
from commitlake.schemas.tables.erasures import ErasureEvent
from commitlake.schemas.tables.messages import MESSAGES

RETENTION = datetime.timedelta(days=7)
"""Retention of an erasure whose own is lost, counted from the time it was done: the default of `erase`."""
UNKNOWN_REASON = "not known: the row with the reason was lost; a repair has written this one"
_FOLLOWING = ("messages", "message_keys", "edges", "replay_rows")
"""Tables whose logs have the number of the newest erasure that they have applied."""
_MESSAGES: pa.Schema = arrow_schema(MESSAGES).remove(MESSAGES.names.index("store_date"))


@dataclass(frozen=True, slots=True)
class RestoredErasures:
    """Restored rows, and the number of the newest erasure.

    Attributes:
        rows: rows of `erasures`.
        newest: number of the newest erasure that any table knows; 0 for none.
        lines: sentences on the restored rows, and on what remains unknown.
    """

    rows: pa.Table
    newest: int
    lines: tuple[str, ...]


def restore_erasures(lake: Lake, rows: pa.Table) -> RestoredErasures:
    """Find the erasures that lack rows, and return what is known about them.

    Args:
        rows: the rows that `erasures` still has.
    """
    known = dict(_pairs(rows))
    newest = max([*known.values(), *(_applied(lake, table) for table in _FOLLOWING)], default=0)
    recorded = rows.filter(pc.is_in(rows.column("event"), pa.array([ErasureEvent.MESSAGE, ErasureEvent.COPY])))
    erased = _unrecorded(_marked_rows(lake), recorded)
    ids = sorted({*erased.column("erasure_id").to_pylist()} - known.keys())
    used = {*known.values()}
    free = (number for number in itertools.count(1) if number not in used)
    for erasure_id, number in zip(ids, free, strict=False):
        known[erasure_id] = number
        newest = max(newest, number)
    writer = ErasureWriter(time.time_ns() // 1000, f"{socket.gethostname()} {os.getpid()}", "repair")
    begun = _begun(rows, known, writer)
    restored, incomplete = _messages(lake, erased, known, newest, writer)
    used = {*known.values()}
    unknown = newest - sum(0 < number <= newest for number in used)
    first = next((number for number in itertools.count(1) if number not in used), 1)
    lines = [*_lines(begun, restored, incomplete), *_unknown_lines(unknown, first)]
    return RestoredErasures(pa.concat_tables([begun, restored]), newest, tuple(lines))


def _pairs(rows: pa.Table) -> Iterator[tuple[str, int]]:
    distinct = rows.select(["erasure_id", "number"]).group_by(["erasure_id", "number"]).aggregate([])
    for row in distinct.to_pylist():
        if row["erasure_id"] is not None and row["number"] is not None:
            yield row["erasure_id"], row["number"]


def _applied(lake: Lake, table: str) -> int:
    """Return the number of the newest erasure that a table has applied; 0 if it is missing or damaged."""
    try:
        return erasure_number(lake.find(table))
    except LakeError:
        return 0


def _marked_rows(lake: Lake) -> pa.Table:
    """Return the rows of `messages` that are marked as erased, with the column `erasure_id`; one for each message."""
    parts = []
    for rows in _batches(lake):
        ids = _marks(rows)
        chosen = np.flatnonzero(pc.is_valid(ids).to_numpy(zero_copy_only=False))
        chosen = chosen[are_erased(rows.select(CHANGED_COLUMNS).take(pa.array(chosen)), by_any_version=True)]
        if len(chosen):
            parts.append(rows.take(pa.array(chosen)).append_column("erasure_id", ids.take(pa.array(chosen))))
    schema = _MESSAGES.append(pa.field("erasure_id", pa.string()))
    return _first(pa.concat_tables([schema.empty_table(), *parts]))


def _batches(lake: Lake) -> Iterator[pa.Table]:
    """Read all data files in the folder of `messages`, also those of older versions; skip damaged ones."""
    uri = lake.uri("messages")
    try:
        files = table_files(uri, lake.storage_options)
        infos = files.get_file_info(pafs.FileSelector("", allow_not_found=True, recursive=True))
    except TableNotFoundError:
        return
    for info in infos:
        if not info.is_file or not info.path.endswith(".parquet") or info.path.startswith(("_", ".")):
            continue
        try:
            with (
                files.open_input_file(info.path) as source,
                pq.ParquetFile(source, page_checksum_verification=True) as parquet,
            ):
                for group in range(parquet.num_row_groups):
                    yield _conform(parquet.read_row_group(group, use_threads=False))
        except (pa.ArrowException, OSError):  # the check of messages reports the file
            continue


def _conform(rows: pa.Table) -> pa.Table:
    columns = [
        rows.column(field.name).cast(field.type) if field.name in rows.column_names else pa.nulls(len(rows), field.type)
        for field in _MESSAGES
    ]
    return pa.table(columns, schema=_MESSAGES).combine_chunks()


def _marks(rows: pa.Table) -> pa.Array:
    found = pc.map_lookup(rows.column("properties"), MARKER, "last")
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def _first(rows: pa.Table) -> pa.Table:
    """Keep the first row of each message, without those that do not name one."""
    rows = rows.filter(pc.and_(pc.is_valid(rows.column("broker")), pc.is_valid(rows.column("physical_offset"))))
    numbered = rows.select(["broker", "physical_offset"]).append_column("row", pa.array(np.arange(rows.num_rows)))
    first = numbered.group_by(["broker", "physical_offset"], use_threads=False).aggregate([("row", "min")])
    return rows.take(first.column("row_min")).combine_chunks()


def _unrecorded(marked: pa.Table, recorded: pa.Table) -> pa.Table:
    columns = ["broker", "physical_offset", "erasure_id", "number"]
    is_whole = reduce(pc.and_, [pc.is_valid(recorded.column(name)) for name in columns])
    return erased_places(recorded.filter(is_whole), 0).without(marked)


def _begun(rows: pa.Table, known: Mapping[str, int], writer: ErasureWriter) -> pa.Table:
    """Return a row `begun` for each erasure without one, at the earliest time that its other rows have."""
    has_row = {row["erasure_id"] for row in _of_event(rows, ErasureEvent.BEGUN).select(["erasure_id"]).to_pylist()}
    times = rows.select(["erasure_id"]).append_column("at", rows.column("at").cast(pa.int64()))
    earliest = {
        row["erasure_id"]: row["at_min"] for row in times.group_by("erasure_id").aggregate([("at", "min")]).to_pylist()
    }
    lost = sorted((number, erasure_id) for erasure_id, number in known.items() if erasure_id not in has_row)
    detail = json.dumps({"restored": True, "retention_s": RETENTION.total_seconds()}, sort_keys=True)
    made: list[dict[str, Any]] = [
        {
            "number": number,
            "erasure_id": erasure_id,
            "event": str(ErasureEvent.BEGUN),
            "at": min(earliest.get(erasure_id) or writer.at, writer.at),
            "reason": UNKNOWN_REASON,
            "owner": writer.owner,
            "detail": detail,
            "parser_version": writer.parser_version,
        }
        for number, erasure_id in lost
    ]
    schema = pa.schema([pa.field("at", pa.int64()) if field.name == "at" else field for field in ERASURES_SCHEMA])
    return conform(pa.Table.from_pylist(made, schema))


def _of_event(rows: pa.Table, event: ErasureEvent) -> pa.Table:
    return rows.filter(pc.equal(rows.column("event"), str(event)))


def _messages(
    lake: Lake, erased: pa.Table, known: Mapping[str, int], newest: int, writer: ErasureWriter
) -> tuple[pa.Table, int]:
    """Return the rows `message` of erased messages, and the number of those whose row before the erasure is gone."""
    if not erased.num_rows:
        return conform(ERASURES_SCHEMA.empty_table()), 0
    ids = erased.column("erasure_id").to_pylist()
    numbers = [known[erasure_id] for erasure_id in ids]
    places = erased_places(
        erased.select(["broker", "physical_offset", "erasure_id"]).append_column(
            "number", pa.array(numbers, pa.int64())
        ),
        newest,
    )
    after = erased.select(_MESSAGES.names)
    older, index = _older_rows(lake, places, after)
    before = pa.concat_tables([after, older]).take(pa.array(index)).combine_chunks()
    table = erasure_rows(before, after, ids, numbers, ErasureEvent.MESSAGE, writer)
    is_known = pa.array(index >= after.num_rows)
    for name in ("row_before", "lake_before"):
        column = pc.if_else(is_known, table.column(name), pa.scalar(None, pa.int64()))
        table = table.set_column(table.schema.get_field_index(name), ERASURES_SCHEMA.field(name), column)
    is_needed = np.array(numbers, np.int64) > _applied(lake, "profiles")  # to correct the profiles
    return table, int(((index < after.num_rows) & is_needed).sum())


def _older_rows(lake: Lake, places: ErasedPlaces, after: pa.Table) -> tuple[pa.Table, Array]:
    """Return unerased rows of some messages, and for each message its row there, counted after those of `after`."""
    parts = []
    for rows in _batches(lake):
        of_messages = places.ids_of_rows(
            *(rows.column(name).combine_chunks() for name in ("broker", "physical_offset"))
        )
        chosen = np.flatnonzero(of_messages >= 0)
        chosen = chosen[~are_erased(rows.select(CHANGED_COLUMNS).take(pa.array(chosen)), by_any_version=True)]
        if len(chosen):
            parts.append(rows.take(pa.array(chosen)))
    older = _first(pa.concat_tables([_MESSAGES.empty_table(), *parts]))
    keys = zip(older.column("broker").to_pylist(), older.column("physical_offset").to_pylist(), strict=True)
    row_of = {key: after.num_rows + row for row, key in enumerate(keys)}
    wanted = zip(after.column("broker").to_pylist(), after.column("physical_offset").to_pylist(), strict=True)
    return older, np.array([row_of.get(key, row) for row, key in enumerate(wanted)], np.int64)


def _lines(begun: pa.Table, restored: pa.Table, incomplete: int) -> Iterator[str]:
    if begun.num_rows:
        numbers = ", ".join(map(str, begun.column("number").to_pylist()[:5]))
        yield (
            f"erasures: reason and retention of {count_text(begun.num_rows, 'erasure')} (number {numbers}): it is "
            f"listed as restored, with a retention of {RETENTION.days} days; later copies of its messages are not "
            "recognised until they are erased again"
        )
    if incomplete:
        yield (
            f"erasures: the checksums before the erasure of {count_text(incomplete, 'message')}, of "
            f"{restored.num_rows:,} restored from messages: 'audit' does not compare row_checksum and lake_checksum of "
            "their windows"
        )


def _unknown_lines(count: int, first: int) -> Iterator[str]:
    if count:
        yield (
            f"erasures: all rows of {count_text(count, 'erasure')}, the first of them number {first:,}; messages has "
            "no row of them"
        )
