"""Reads the table `replay_rows`: the messages of a replay that changes or copies them, as they are sent."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.lake.sql import text_literal
from commitlake.pipelines.replay.batches import OWN_COLUMNS, property_entries
from commitlake.pipelines.replay.errors import ReplayError
from commitlake.pipelines.replay.parts import COLUMNS, StoredBodies, part_condition, sending_order
from commitlake.pipelines.replay.plan import LogRange
from commitlake.schemas.tables.messages import MESSAGES
from commitlake.schemas.tables.replay_rows import REPLAY_ROWS

SCHEMA = arrow_schema(REPLAY_ROWS)
_AS_MESSAGES = arrow_schema(MESSAGES.only(COLUMNS))
_FORMAT = "replay_rows"
"""Format of changed rows. It is no format of a log: keys and tags are in columns, not among the properties."""
_NEVER_NULL = ("broker", "physical_offset", "topic", "queue_id", "queue_offset")
_COPIED_FORMAT = "rocketmq"
"""Format of a message that is sent as it was stored: keys and tags are also among the properties."""


def changed_condition(replay_id: str) -> str:
    """Return SQL for the rows of `replay_rows` that a replay sends."""
    return f"replay_id = {text_literal(replay_id)} AND is_changed"


def read_changed(table: DeltaTable, condition: str, part: Sequence[LogRange]) -> pa.Table:
    """Return the rows of a part as they are sent.

    Args:
        table: `replay_rows`.
        condition: from `changed_condition`.

    Returns:
        `parts.COLUMNS`, `body` and `error`, in the order of sending.

    Raises:
        QueryError: if the table cannot be read.
        ReplayError: if a row lacks a required value.
    """
    sql = f"SELECT * FROM replay_rows WHERE {part_condition(part)} AND {condition}"
    rows = pa.Table.from_batches([batch.cast(SCHEMA) for batch in run_sql(table, "replay_rows", sql)], SCHEMA)
    if empty := [name for name in _NEVER_NULL if rows.column(name).null_count]:
        raise ReplayError(f"the table 'replay_rows': expected {', '.join(empty)} of each message, found null")
    rows = rows.take(pa.array(sending_order(rows)))
    known = {name: rows.column(name) for name in COLUMNS if name in rows.column_names}
    known |= {
        "format": _formats(rows),
        "body_size": pc.binary_length(rows.column("body")),
    }
    columns = {
        field.name: known[field.name] if field.name in known else pa.nulls(rows.num_rows, field.type)
        for field in _AS_MESSAGES
    }
    sent = pa.table(columns).cast(_AS_MESSAGES)
    return sent.append_column("body", rows.column("body")).append_column("error", rows.column("error"))


def _formats(rows: pa.Table) -> pa.Array:
    lengths, names, _ = property_entries(rows.column("properties").combine_chunks())
    owners = np.repeat(np.arange(len(lengths)), lengths)[np.asarray(pc.is_in(names, value_set=OWN_COLUMNS))]
    is_copied = np.zeros(rows.num_rows, np.bool_)
    is_copied[owners] = True
    return pc.if_else(pa.array(is_copied), _COPIED_FORMAT, _FORMAT)


def bodies_of_changed(rows: pa.Table) -> StoredBodies:
    """Return the bodies of rows that were returned by `read_changed`."""
    errors = rows.column("error").to_pylist()
    values = pc.fill_null(rows.column("body").combine_chunks().cast(pa.large_binary()), b"")
    return StoredBodies(
        values, {int(row): str(errors[row]) for row in np.flatnonzero([bool(error) for error in errors])}
    )
