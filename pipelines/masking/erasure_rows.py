"""Rows of `erasures` for erased messages: broker, physical offset, and the hashes of their rows.

The checksums of a profile are sums of such hashes. A hash of a row before its erasure, and so a sum that has it, would
confirm a guess of the erased contents. It is therefore kept only until the profiles are corrected: `row_before`,
`lake_before` and, in `detail`, what else changes in the profile of the message's window. Until then, an audit corrects
the profiles itself.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.lake.delta_log.check import WAY_OUT, LogDamagedError
from commitlake.connectors.numpy_arrays import Array
from commitlake.pipelines.quality.checksums import column_hashes, message_hashes
from commitlake.schemas.tables.erasures import ERASURES, ErasureEvent
from commitlake.schemas.tables.profile import COLUMN_CHECKSUMS

ERASURES_SCHEMA: pa.Schema = arrow_schema(ERASURES)
CHECKSUMS = {"row_checksum": "row", "lake_checksum": "lake"}
"""Prefix of the hash columns in `erasures`, by checksum of the profile."""
CHANGED_FIGURES = ("checksum", "body_bytes", *CHECKSUMS)
"""Figures of a profile that an erasure changes."""
_PLACE = ("broker", "physical_offset", "topic", "queue_id", "store_timestamp", "body_ref")


@dataclass(frozen=True, slots=True)
class ErasureWriter:
    """Identity of the process that writes rows of `erasures`, with the time of writing.

    Attributes:
        at: µs since 1970, UTC.
        owner: host and process id.
        parser_version: version of CommitLake.
    """

    at: int
    owner: str
    parser_version: str


def make_erasure_rows(
    rows_before: pa.Table,
    rows_after: pa.Table,
    erasure_ids: list[str],
    erasure_numbers: list[int],
    event: ErasureEvent,
    writer: ErasureWriter,
    *,
    is_counted: bool = False,
) -> pa.Table:
    """Return the rows of `erasures` that record the erasure of the given messages.

    Args:
        rows_before: rows of `messages` before the erasure, each column in one chunk, without `store_date`.
        rows_after: the same rows after the erasure.
        erasure_ids: id of the erasure of each row.
        erasure_numbers: number of the erasure of each row.
        event: `message` or `again`.
        writer: the process that writes them.
        is_counted: True if the profiles count the rows after the erasure; then nothing is kept of those before.
    """
    count = rows_before.num_rows
    columns = {name: rows_before.column(name) for name in _PLACE}
    for checksum in COLUMN_CHECKSUMS:
        if checksum.name in CHECKSUMS:
            for when, rows in (("before", rows_before), ("after", rows_after)):
                hashed = rows_after if is_counted else rows
                columns[f"{CHECKSUMS[checksum.name]}_{when}"] = pa.array(column_hashes(hashed, checksum.columns))
    if not is_counted:
        columns["detail"] = pa.array(_sum_changes_json(rows_before, rows_after), pa.string())
    columns["number"], columns["erasure_id"] = pa.array(erasure_numbers, pa.int64()), pa.array(erasure_ids, pa.string())
    columns["event"] = pa.array([str(event)] * count)
    columns["at"] = pa.array([writer.at] * count, pa.int64())
    columns["owner"] = pa.array([writer.owner] * count)
    columns["parser_version"] = pa.array([writer.parser_version] * count)
    return to_erasures_schema(pa.table(columns))


def _sum_changes_json(rows_before: pa.Table, rows_after: pa.Table) -> list[str]:
    """Return, as JSON text, how much each message's erasure changes the sums `checksum` and `body_bytes`."""
    # Unsigned, because the profile adds hashes modulo 2^64.
    hashes = (message_hashes(rows_after).view(np.uint64) - message_hashes(rows_before).view(np.uint64)).view(np.int64)
    sizes = [
        pc.fill_null(rows.column("body_size"), 0).to_numpy().astype(np.int64) for rows in (rows_before, rows_after)
    ]
    changed = zip(hashes.tolist(), (sizes[1] - sizes[0]).tolist(), strict=True)
    return [json.dumps({"checksum": checksum, "body_bytes": size}) for checksum, size in changed]


def sum_changes_by_row(rows: pa.Table) -> dict[str, Array]:
    """Return how much each row's erasure changes the sums in `profiles`, and a mask of the rows without hashes."""
    names = ("checksum", "body_bytes")
    try:
        details = [json.loads(text) if text else {} for text in rows.column("detail").to_pylist()]
        found: dict[str, Array] = {name: np.array([one.get(name, 0) for one in details], np.int64) for name in names}
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise LogDamagedError(
            "the table 'erasures': the changes that it records for a message are not as 'erase' writes them: "
            f"{error!r}. {WAY_OUT}"
        ) from None
    unknown = np.zeros(rows.num_rows, bool)
    for checksum, name in CHECKSUMS.items():
        both = [rows.column(f"{name}_{when}") for when in ("before", "after")]
        before, after = (hashes.fill_null(0).to_numpy().view(np.uint64) for hashes in both)
        found[checksum] = (after - before).view(np.int64)
        unknown |= np.asarray(pc.or_(*map(pc.is_null, both)).to_numpy(), bool)
    return {**found, "unknown": unknown}


def newest_row_by_message(rows: pa.Table) -> pa.Table:
    """Return the newest row of `erasures` for each message."""
    rows = rows.sort_by([("at", "descending")]).combine_chunks()
    numbered = rows.select(["broker", "physical_offset"]).append_column(
        "row", pa.array(np.arange(rows.num_rows, dtype=np.int64))
    )
    # One thread, because several would not keep the order of the rows.
    first = numbered.group_by(["broker", "physical_offset"], use_threads=False).aggregate([("row", "min")])
    return rows.take(first.column("row_min")).combine_chunks()


def to_erasures_schema(rows: pa.Table) -> pa.Table:
    """Return rows with all columns and types of `erasures`; missing columns are null."""
    columns = []
    for field in ERASURES_SCHEMA:
        if field.name not in rows.column_names:
            columns.append(pa.nulls(rows.num_rows, field.type))
            continue
        column = rows.column(field.name)
        columns.append(
            _decode_body_ref_dictionaries(column) if pa.types.is_struct(column.type) else column.cast(field.type)
        )
    return pa.table(columns, schema=ERASURES_SCHEMA)


def _decode_body_ref_dictionaries(body_refs: pa.ChunkedArray) -> pa.Array:
    """Return the column `body_ref` with plain values instead of dictionary codes."""
    return pa.array(body_refs.to_pylist(), ERASURES_SCHEMA.field("body_ref").type)
