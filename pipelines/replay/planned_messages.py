"""Messages of a plan, part by part, as they are sent.

They are rows of `messages`, or of `replay_rows` if the replay changes or copies them.

A row is a record, and records of topics with BatchConsumeQueues (5.x) hold several messages each. A replay sends the
messages in such an inner batch, as a consumer gets them. Each counts as the one at the record's physical offset plus
its number in the record; records are longer than that, so these offsets are unique, and those of the first messages
are their records'.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.packs.pack_stores import PackStore
from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.lake.sql import text_literal
from commitlake.connectors.reading.decoding.bodies import decompress_by_sys_flag
from commitlake.connectors.reading.errors import BodyError
from commitlake.pipelines.replay.errors import ReplayError
from commitlake.pipelines.replay.plan import LogRange, ReplayPlan
from commitlake.pipelines.replay.plan_part_rows import (
    COLUMNS,
    StoredBodies,
    bodies_from_column,
    log_ranges_condition,
    read_bodies_from_packs,
    read_part_rows,
    sending_order,
)
from commitlake.pipelines.replay.sending.batches import OWN_COLUMNS, split_properties
from commitlake.pipelines.restore.arrow_conversion import to_int64_array
from commitlake.schemas.layouts.errors import LayoutError
from commitlake.schemas.layouts.rocketmq import properties as props
from commitlake.schemas.layouts.rocketmq.batchconsumequeue import INNER_BASE, INNER_NUM, base_offset_and_count
from commitlake.schemas.layouts.rocketmq.sysflag import COMPRESSED, COMPRESSION_MASK, INNER_BATCH, NEED_UNWRAP
from commitlake.schemas.remoting.batch import BatchItem, parse_batch
from commitlake.schemas.tables.messages import MESSAGES
from commitlake.schemas.tables.replays import REPLAY_ROWS, SendOutcome

SCHEMA = arrow_schema(REPLAY_ROWS)
_AS_MESSAGES = arrow_schema(MESSAGES.select_columns(COLUMNS))
_FORMAT = "replay_rows"
"""Format of changed rows. It is no format of a log: keys and tags are in columns, not among the properties."""
_NEVER_NULL = ("broker", "physical_offset", "topic", "queue_id", "queue_offset")
_COPIED_FORMAT = "rocketmq"
"""Format of a message that is sent as it was stored: keys and tags are also among the properties."""
_BODY, _ERROR = "inner_body", "inner_error"
_CODEC_BITS = COMPRESSED | COMPRESSION_MASK
IS_FLAGGED = f"(sys_flag & {INNER_BATCH}) <> 0"
"""SQL for rows that may be inner batches; a client can set the flag, so their properties decide."""


@dataclass(frozen=True, slots=True)
class PlannedMessages:
    """Reader of the rows and bodies of the messages that a replay sends.

    Attributes:
        plan: the plan.
        table: the lake's `messages`, or `replay_rows` if the replay changes or copies messages; before these are
            written, `messages` as copied from a log or from topics.
        packs: the lake's packs; None if the table has the bodies.
    """

    plan: ReplayPlan
    table: DeltaTable
    packs: PackStore | None

    def read_rows_of_part(self, part_number: int, earlier_message_count: int) -> pa.Table:
        """Return the rows of one part of the plan, in the order of sending.

        Args:
            part_number: index of the part.
            earlier_message_count: number of messages in the parts before it, which count for the plan's limit.

        Returns:
            `plan_part_rows.COLUMNS` of `messages`; an inner batch has a row for each of its messages.
        """
        plan = self.plan
        read = read_changed_rows if plan.is_changed else read_part_rows
        rows = split_inner_batches(read(self.table, plan.condition, plan.parts[part_number]), self._stored_bodies)
        # Only after the division, because the limit counts messages, not records.
        return rows.slice(0, max(0, plan.limit - earlier_message_count)) if plan.limit else rows

    def read_parts(self) -> Iterator[pa.Table]:
        """Yield the rows of each part, in the order of sending."""
        before = 0
        for number in range(len(self.plan.parts)):
            rows = self.read_rows_of_part(number, before)
            before += rows.num_rows
            yield rows

    def read_bodies_of_rows(self, rows: pa.Table) -> StoredBodies:
        """Return the bodies of rows of a part, including messages split off from inner batches."""
        return bodies_of_split_rows(rows, self._stored_bodies)

    def _stored_bodies(self, rows: pa.Table) -> StoredBodies:
        if self.packs is None or self.plan.is_changed:
            return bodies_from_column(rows)
        return read_bodies_from_packs(rows, self.packs)

    @property
    def failure_outcome(self) -> SendOutcome:
        """Outcome to record for a message whose body is missing, or could not be changed as requested."""
        return SendOutcome.NOT_CHANGED if self.plan.is_changed else SendOutcome.NO_BODY


def open_planned_messages(lake: Lake, plan: ReplayPlan, packs: PackStore) -> PlannedMessages:
    """Open the table and packs that have the messages of a replay's plan.

    Raises:
        LakeError: if the lake cannot be read.
    """
    return PlannedMessages(plan, lake.table("replay_rows" if plan.is_changed else "messages"), packs)


def changed_rows_condition(replay_id: str) -> str:
    """Return the SQL condition for the rows of `replay_rows` that a replay sends."""
    return f"replay_id = {text_literal(replay_id)} AND is_changed"


def read_changed_rows(table: DeltaTable, condition: str, ranges: Sequence[LogRange]) -> pa.Table:
    """Return the rows of `replay_rows` in log ranges, in the order of sending.

    Args:
        table: `replay_rows`.
        condition: from `changed_rows_condition`.

    Returns:
        `plan_part_rows.COLUMNS`, `body` and `error`, in the order of sending.

    Raises:
        ReplayError: if a row lacks a required value.
    """
    sql = f"SELECT * FROM replay_rows WHERE {log_ranges_condition(ranges)} AND {condition}"
    rows = pa.Table.from_batches([batch.cast(SCHEMA) for batch in run_sql(table, "replay_rows", sql)], SCHEMA)
    # `replay_rows` can be written by other programs; a null would only fail in the middle of sending.
    if empty := [name for name in _NEVER_NULL if rows.column(name).null_count]:
        raise ReplayError(
            f"the table 'replay_rows' is damaged: expected values in the columns {', '.join(empty)}, found a null"
        )
    rows = rows.take(pa.array(sending_order(rows)))
    known = {name: rows.column(name) for name in COLUMNS if name in rows.column_names}
    known |= {
        "format": _row_formats(rows),
        "body_size": pc.binary_length(rows.column("body")),
    }
    columns = {
        field.name: known[field.name] if field.name in known else pa.nulls(rows.num_rows, field.type)
        for field in _AS_MESSAGES
    }
    sent = pa.table(columns).cast(_AS_MESSAGES)
    return sent.append_column("body", rows.column("body")).append_column("error", rows.column("error"))


def _row_formats(rows: pa.Table) -> pa.Array:
    lengths, names, _ = split_properties(rows.column("properties").combine_chunks())
    owners = np.repeat(np.arange(len(lengths)), lengths)[np.asarray(pc.is_in(names, value_set=OWN_COLUMNS))]
    is_copied = np.zeros(rows.num_rows, np.bool_)
    is_copied[owners] = True
    return pc.if_else(pa.array(is_copied), _COPIED_FORMAT, _FORMAT)


def count_further_messages(table: DeltaTable, condition: str, group_expressions: str) -> dict[tuple[Any, ...], int]:
    """Count the messages in inner batches except the first of each batch, grouped by SQL expressions.

    Args:
        condition: SQL condition on its rows.
        group_expressions: SQL expressions, separated by commas.
    """
    keys = [f"key_{number}" for number in range(group_expressions.count(",") + 1)]
    named = ", ".join(f"{each} AS {key}" for each, key in zip(group_expressions.split(", "), keys, strict=True))
    has_format = any(field.name == "format" for field in table.schema().fields)
    is_rocketmq = "coalesce(format, 'rocketmq') = 'rocketmq'" if has_format else "true"
    sql = (
        f"SELECT {named}, queue_offset, properties['{INNER_BASE}'] AS base, properties['{INNER_NUM}'] AS count "
        f"FROM messages WHERE ({condition}) AND {IS_FLAGGED} AND {is_rocketmq}"
    )
    found: dict[tuple[Any, ...], int] = {}
    for batch in run_sql(table, "messages", sql):
        for row in batch.to_pylist():
            key = tuple(row[name] for name in keys)
            found[key] = found.get(key, 0) + _inner_batch_size({INNER_BASE: row["base"], INNER_NUM: row["count"]}) - 1
    return found


def _inner_batch_size(properties: Mapping[str, str | None]) -> int:
    return base_offset_and_count({name: text for name, text in properties.items() if text is not None}, 0)[1]


def split_inner_batches(rows: pa.Table, read_bodies: Callable[[pa.Table], StoredBodies]) -> pa.Table:
    """Replace each row of an inner batch by one row for each of its messages.

    Args:
        rows: `plan_part_rows.COLUMNS` of `messages`.
        read_bodies: returns the stored bodies of rows.

    Returns:
        The rows, in their order, and columns for `bodies_of_split_rows` if there is an inner batch.
    """
    is_flagged = (to_int64_array(rows.column("sys_flag").combine_chunks()) & INNER_BATCH) != 0
    formats = pc.fill_null(rows.column("format").cast(pa.string()), "rocketmq")  # JMQ has another meaning of the bit
    flagged = np.flatnonzero(is_flagged & np.asarray(pc.equal(formats, "rocketmq")))
    own = rows.take(pa.array(flagged)).select(["properties"]).to_pylist() if len(flagged) else []
    places = [int(row) for row, record in zip(flagged, own, strict=True) if _is_inner_batch(record["properties"])]
    if not places:
        return rows
    records = rows.take(pa.array(places))
    stored = read_bodies(records)
    schema = rows.schema.append(pa.field(_BODY, pa.large_binary())).append(pa.field(_ERROR, pa.string()))
    pieces, position = [], 0
    for number, (place, record) in enumerate(zip(places, records.to_pylist(), strict=True)):
        pieces.append(_add_body_columns(rows.slice(position, place - position), schema))
        split = list(_rows_of_record(record, stored.values[number].as_py(), stored.errors.get(number)))
        pieces.append(pa.Table.from_pylist(split, schema))
        position = place + 1
    pieces.append(_add_body_columns(rows.slice(position), schema))
    return pa.concat_tables(pieces).combine_chunks()


def bodies_of_split_rows(rows: pa.Table, read_bodies: Callable[[pa.Table], StoredBodies]) -> StoredBodies:
    """Return the bodies of rows, some of which are messages split off from inner batches.

    Args:
        read_bodies: returns the stored bodies of other rows.
    """
    if _BODY not in rows.column_names:
        return read_bodies(rows)
    is_split = np.asarray(pc.or_(pc.is_valid(rows.column(_BODY)), pc.is_valid(rows.column(_ERROR))))
    others = read_bodies(rows.filter(pa.array(~is_split)))
    own = rows.filter(pa.array(is_split))
    places = np.empty(rows.num_rows, np.int64)
    places[~is_split] = np.arange(len(others.values))
    places[is_split] = len(others.values) + np.arange(own.num_rows)
    values = pa.concat_arrays([others.values, pc.fill_null(own.column(_BODY).combine_chunks(), b"")])
    unsplit = np.flatnonzero(~is_split)
    errors = {int(unsplit[row]): text for row, text in others.errors.items()}
    texts = own.column(_ERROR).to_pylist()
    errors |= {row: text for row, text in zip(np.flatnonzero(is_split).tolist(), texts, strict=True) if text}
    return StoredBodies(values.take(pa.array(places)), errors)


def _is_inner_batch(properties: list[tuple[str, str]] | None) -> bool:
    found = dict(properties or ())
    return INNER_NUM in found and base_offset_and_count(found, -1)[0] >= 0


def _add_body_columns(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    return rows.append_column(_BODY, pa.nulls(rows.num_rows, pa.large_binary())).append_column(
        _ERROR, pa.nulls(rows.num_rows, pa.string())
    ).cast(schema)  # fmt: skip


def _rows_of_record(record: Mapping[str, Any], body: bytes, error: str | None) -> Iterator[dict[str, Any]]:
    """Yield a row for each message of an inner batch."""
    base, count = base_offset_and_count(dict(record["properties"]), record["queue_offset"])
    # Each message is sent on its own, no longer as a part of a batch.
    flags = record["sys_flag"] & ~(INNER_BATCH | NEED_UNWRAP)
    items: list[BatchItem] = []
    if error is None:
        try:
            items, flags = _parse_batch_items(body, flags)
        except (LayoutError, BodyError) as problem:
            error = f"an inner batch whose messages cannot be read: {problem}"
        else:
            if len(items) != count:
                error = f"expected an inner batch of {count} messages, found {len(items)}"
    for number in range(count):
        row = dict(record) | {
            "physical_offset": record["physical_offset"] + number, "queue_offset": base + number, "sys_flag": flags,
            _ERROR: error,
        }  # fmt: skip
        yield row if error is not None else row | _columns_of_item(items[number])


def _parse_batch_items(body: bytes, sys_flag: int) -> tuple[list[BatchItem], int]:
    """Parse the messages in the body of an inner batch; return them, and the sysFlag that applies to each."""
    try:
        # First as it is: the codec bits may be those of the messages within.
        return parse_batch(body), sys_flag
    except LayoutError:
        if not sys_flag & _CODEC_BITS:
            raise
        return parse_batch(decompress_by_sys_flag(body, sys_flag)), sys_flag & ~_CODEC_BITS


def _columns_of_item(item: BatchItem) -> dict[str, Any]:
    pairs = props.parse_properties(item.properties)
    found = dict(pairs)
    keys = found.get(props.KEYS)
    return {
        "flag": item.flag, "properties": list(found.items()), "tags": found.get(props.TAGS),
        "keys": None if keys is None else props.split_keys(keys), "body_size": len(item.body),
        # Without the highest bit, as brokers record it.
        "body_crc": zlib.crc32(item.body) & 0x7FFFFFFF, _BODY: item.body,
    }  # fmt: skip
