"""Rows of `erasures` for erased messages: their places, and the hashes of their rows before and after the erasure.

The checksums `row_checksum` and `lake_checksum` of a profile are sums of these hashes. For a time window with erased
messages, an audit expects the archived checksum, minus the sum of the hashes before, plus the sum of those after.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from commitlake.connectors.runtime.spark_versions import to_arrow_schema
from commitlake.pipelines.quality.checksums import column_hashes
from commitlake.schemas.tables.erasures import ERASURES, ErasureEvent
from commitlake.schemas.tables.profile import COLUMN_CHECKSUMS

SCHEMA: pa.Schema = to_arrow_schema(ERASURES)
CHECKSUMS = {"row_checksum": "row", "lake_checksum": "lake"}
"""Prefix of the hash columns in `erasures`, by checksum of the profile. An erasure changes no other checksum."""
_PLACE = ("broker", "physical_offset", "topic", "queue_id", "store_timestamp", "body_ref", "body_crc")


@dataclass(frozen=True, slots=True)
class Writer:
    """The process that writes rows, and the time.

    Attributes:
        at: µs since 1970, UTC.
        owner: host and process id.
        parser_version: version of CommitLake.
    """

    at: int
    owner: str
    parser_version: str


def tombstones(
    before: pa.Table, after: pa.Table, erasure_ids: list[str], numbers: list[int], event: ErasureEvent, writer: Writer
) -> pa.Table:
    """Return rows of `erasures` for messages.

    Args:
        before: rows of `messages` before the erasure, each column in one chunk, without `store_date`.
        after: the same rows after the erasure.
        erasure_ids: id of the erasure of each row.
        numbers: number of the erasure of each row.
        event: `message` or `again`.
        writer: the process that writes them.
    """
    count = before.num_rows
    columns = {name: before.column(name) for name in _PLACE}
    for checksum in COLUMN_CHECKSUMS:
        if checksum.name in CHECKSUMS:
            for when, rows in (("before", before), ("after", after)):
                columns[f"{CHECKSUMS[checksum.name]}_{when}"] = pa.array(column_hashes(rows, checksum.columns))
    columns["number"], columns["erasure_id"] = pa.array(numbers, pa.int64()), pa.array(erasure_ids, pa.string())
    columns["event"] = pa.array([str(event)] * count)
    columns["at"] = pa.array([writer.at] * count, pa.int64())
    columns["owner"] = pa.array([writer.owner] * count)
    columns["parser_version"] = pa.array([writer.parser_version] * count)
    return conform(pa.table(columns))


def conform(rows: pa.Table) -> pa.Table:
    """Return rows with all columns and types of `erasures`; missing columns are null."""
    columns = []
    for field in SCHEMA:
        if field.name not in rows.column_names:
            columns.append(pa.nulls(rows.num_rows, field.type))
            continue
        column = rows.column(field.name)
        columns.append(_plain(column) if pa.types.is_struct(column.type) else column.cast(field.type))
    return pa.table(columns, schema=SCHEMA)


def _plain(places: pa.ChunkedArray) -> pa.Array:
    """Return `body_ref` without dictionaries; the rows are few."""
    return pa.array(places.to_pylist(), SCHEMA.field("body_ref").type)
