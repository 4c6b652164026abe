"""Dead letters of a lake: their selection, and their rows and bodies batch by batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from commitlake.connectors.arrays_without_pandas import rows_to_dicts
from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.lake.packs.pack_stores import PackStore
from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.lake.sql import Engine, in_condition, quote_column_name, text_literal
from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.reading.decoding.bodies import decompress_as
from commitlake.connectors.reading.errors import BodyError
from commitlake.pipelines.replay.origin_properties import REPLAY_ID, original_topic_sql
from commitlake.pipelines.replay.plan_part_rows import StoredBodies, read_bodies_from_packs
from commitlake.pipelines.replay.selection import selection_condition
from commitlake.schemas.layouts.rocketmq.sysflag import BodyCodec
from commitlake.schemas.layouts.rocketmq.topics import DLQ_PREFIX, Kind
from commitlake.schemas.selection import ALL_MESSAGES, Selection
from commitlake.schemas.tables.messages import MESSAGES

EXCEPTION_PROPERTIES = ("EXCEPTION", "exception", "ERROR", "error")
"""Properties in which clients store why they failed, by precedence; RocketMQ itself sets none of them."""
MAX_REASON_LENGTH = 200
"""Maximum length of an exception's text in a cause: the rest is often a stack trace with ids."""
BODY_PLACE_COLUMNS = ("body_ref", "body_crc", "body_size", "body_codec")
SCHEMA = arrow_schema(MESSAGES)
SLICE_BYTES = 32 << 20
"""Total size of the stored bodies in memory at the same time."""


def dead_letter_condition(table: DeltaTable, selection: Selection = ALL_MESSAGES) -> str:
    """Return the SQL condition for rows of `messages` that are selected dead letters.

    Args:
        table: `messages`; tables of earlier versions have fewer columns.
        selection: selected dead letters. Topics are those to which the messages were originally sent, and times those
            at which they were stored as dead letters.
    """
    # Topics of the selection mean the original ones; the letters themselves are in `%DLQ%group`.
    found = selection_condition(replace(selection, topics=(), kinds=[Kind.DLQ]), includes_replayed=True)
    if selection.topics:
        found += f" AND {in_condition(original_topic_sql(table), map(text_literal, selection.topics))}"
    return found


def failure_reason_sql() -> str:
    """Return SQL for the first characters of the exception text in a dead letter; null if there is none."""
    texts = ", ".join(f"properties[{text_literal(name)}]" for name in EXCEPTION_PROPERTIES)
    return f"left(coalesce({texts}), {MAX_REASON_LENGTH})"


def is_replayed_sql(engine: Engine = Engine.DELTALAKE) -> str:
    """Return an SQL condition for dead letters that a replay had sent again and that failed again."""
    return f"array_contains(map_keys({quote_column_name('properties', engine)}), {text_literal(REPLAY_ID)})"


def computed_columns_sql(table: DeltaTable | None, engine: Engine = Engine.DELTALAKE) -> dict[str, str]:
    """Return SQL expressions, by column name, for the dead-letter columns that are computed from `messages`.

    Args:
        table: `messages`; None if it has all columns.
        engine: the engine that runs the SQL.
    """
    return {
        "group": f"substr(topic, {len(DLQ_PREFIX) + 1})",
        "origin_topic": original_topic_sql(table),
        "reason": failure_reason_sql(),
        "replayed": f"coalesce({is_replayed_sql(engine)}, false)",
    }


def count_letters(table: DeltaTable, where: str) -> int:
    """Return the number of dead letters that match a condition.

    Raises:
        QueryError: if the condition is invalid.
    """
    (row,) = rows_to_dicts(
        run_sql(table, "messages", f"SELECT count(*) AS letters FROM messages WHERE {where}").read_all()
    )
    return int(row["letters"])


class LetterBody(NamedTuple):
    """The body of a dead letter, or the reason why it cannot be read.

    Attributes:
        value: the body as the producer sent it; None if the lake has none, or it cannot be read.
        error: the reason why it cannot be read.
    """

    value: bytes | None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class LetterBatch:
    """A batch of dead letters with their bodies.

    Attributes:
        rows: the requested columns.
        codecs: compression of each body; empty if bodies were not requested.
        stored: the bodies as stored by the broker; None if they were not requested.
    """

    rows: pa.Table
    codecs: Sequence[str | None] = ()
    stored: StoredBodies | None = None

    def body(self, row: int) -> LetterBody:
        """Return the body of a row, decompressed."""
        if self.stored is None:
            return LetterBody(None)
        if row in self.stored.errors:
            return LetterBody(None, self.stored.errors[row])
        codec = self.codecs[row]
        try:
            value = self.stored.values[row].as_py()
            return LetterBody(decompress_as(value, BodyCodec(codec) if codec in set(BodyCodec) else BodyCodec.UNKNOWN))
        except BodyError as error:
            return LetterBody(None, str(error))


def read_letters(
    table: DeltaTable, where: str, columns: Sequence[str], packs: PackStore | None = None, *, is_ordered: bool = False
) -> Iterator[LetterBatch]:
    """Yield dead letters in batches that fit into memory.

    Args:
        where: the condition, from `dead_letter_condition` or narrower.
        columns: SQL of each column with its name: `topic`, or `left(topic, 5) AS start`.
        packs: the lake's bodies; None if no bodies are needed.
        is_ordered: true to order by store and physical offset.

    Raises:
        QueryError: if the table cannot be read, or the condition is invalid.
        PackStoreError: if the place of the packs cannot be reached.
    """
    order = " ORDER BY broker, physical_offset" if is_ordered else ""
    places = BODY_PLACE_COLUMNS if packs is not None else ()
    sql = f"SELECT {', '.join([*columns, *places])} FROM messages WHERE {where}{order}"
    for batch in run_sql(table, "messages", sql, sorts_large_result=is_ordered):
        rows = pa.table({name: _cast_to_message_type(name, batch.column(name)) for name in batch.schema.names})
        if packs is None:
            if rows.num_rows:
                yield LetterBatch(rows)
            continue
        for part in _slice_to_memory(rows):
            codecs = part.column("body_codec").to_pylist()
            yield LetterBatch(
                part.drop_columns(list(places)), codecs, read_bodies_from_packs(part.select(places), packs)
            )


def _cast_to_message_type(name: str, column: pa.Array) -> pa.Array:
    """Cast a column to its type in `messages`, and other columns from Arrow's string view type to string."""
    if name in SCHEMA.names:
        return column.cast(SCHEMA.field(name).type)
    return column.cast(pa.string()) if pa.types.is_string_view(column.type) else column


def _slice_to_memory(rows: pa.Table) -> Iterator[pa.Table]:
    """Yield slices of rows whose bodies fit into memory together."""
    sizes: Array = pc.fill_null(rows.column("body_size"), 0).cast(pa.int64()).to_numpy()
    ends = np.cumsum(np.maximum(sizes, 0))
    start = 0
    while start < rows.num_rows:
        taken = int(ends[start - 1]) if start else 0
        # A body larger than the limit is read alone.
        end = max(start + 1, int(np.searchsorted(ends, taken + SLICE_BYTES, side="right")))
        yield rows.slice(start, end - start)
        start = end
