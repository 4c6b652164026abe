"""Reads rows of `messages`, and bodies of trace messages and op records, from which steps are made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.arrays_without_pandas import to_boolean_array
from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.lake.erasures import ErasedMessages
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.packs.body_batches import batches_with_bodies
from commitlake.connectors.lake.packs.errors import PackError
from commitlake.connectors.lake.packs.pack_stores import PackStore
from commitlake.connectors.lake.packs.reader import FrameCache
from commitlake.connectors.lake.rows.table_rows import TableRows
from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.reading.decoding.bodies import decompress_as
from commitlake.connectors.reading.errors import BodyError
from commitlake.pipelines.edges.client_actions import ENTRIES, MAX_BODY_BYTES, PARENTS, parse_traces
from commitlake.pipelines.edges.links.transactions import OPS
from commitlake.pipelines.edges.step_records import (
    COLUMNS,
    MEMBERS,
    REPEATING,
    DelayCache,
    ordinary_records,
    special_records,
    special_row_mask,
)
from commitlake.schemas.layouts.rocketmq.sysflag import BodyCodec
from commitlake.schemas.layouts.rocketmq.topics import Kind, parse_op_offsets
from commitlake.schemas.tables.messages import MESSAGES

PLACES = pa.schema([("broker", pa.string()), ("physical_offset", pa.int64())])
_MESSAGES = arrow_schema(MESSAGES)
ROWS: pa.Schema = pa.schema([_MESSAGES.field(name) for name in COLUMNS])
"""Columns of `messages` that are read."""
_PLAIN = [
    "broker", "physical_offset", "topic", "queue_id", "queue_offset", "msg_id", "unique_key", "kind",
    "store_timestamp", "reconsume_times", "origin_topic",
]  # fmt: skip


def open_messages_table(lake: Lake) -> TableRows:
    """Return a reader for data files of `messages`."""
    return TableRows(lake.uri("messages"), lake.s3, ROWS, REPEATING)


@dataclass(frozen=True)
class LinkInputs:
    """Contents of rows of `messages` that are needed to find edges: records, trace entries and op records.

    Attributes:
        members: rows that have a role, as members.
        plain: all other rows, which become members only if a step needs them.
        entries: entries of trace messages.
        ops: contents of op records.
        passed_over: number of trace records, or of whole bodies, in an unknown format.
        unread: number of trace messages and op records whose bodies the lake does not have, or are damaged.
    """

    members: pa.Table = field(default_factory=MEMBERS.empty_table)
    plain: pa.Table | None = None
    entries: pa.Table = field(default_factory=ENTRIES.empty_table)
    ops: pa.Table = field(default_factory=OPS.empty_table)
    passed_over: int = 0
    unread: int = 0


def join_link_inputs(parts: Iterable[LinkInputs]) -> LinkInputs:
    """Combine the records, trace entries and op records of several parts."""
    known = list(parts)
    plain = [part.plain for part in known if part.plain is not None]
    return LinkInputs(
        pa.concat_tables([MEMBERS.empty_table(), *(part.members for part in known)]),
        pa.concat_tables(plain).unify_dictionaries() if plain else None,
        pa.concat_tables([ENTRIES.empty_table(), *(part.entries for part in known)]),
        pa.concat_tables([OPS.empty_table(), *(part.ops for part in known)]),
        sum(part.passed_over for part in known),
        sum(part.unread for part in known),
    )


@dataclass(frozen=True)
class RowReader:
    """Reader of the records, trace entries and op records in rows of `messages`.

    Attributes:
        packs: packs with the bodies.
        erased: erased messages, which have no steps.
        delay_levels: delay of each level, by broker.
    """

    packs: PackStore
    erased: ErasedMessages = field(default_factory=ErasedMessages)
    delay_levels: DelayCache = field(default_factory=DelayCache)

    def read_contents(self, tables: Iterable[pa.Table]) -> Iterator[LinkInputs]:
        """Yield the records, trace entries and op records of each given table.

        The tables must have the columns `COLUMNS`.
        """
        for table in tables:
            rows = self.erased.drop_erased_rows(table).combine_chunks()
            chosen = special_row_mask(rows)
            special = rows.filter(to_boolean_array(chosen)).combine_chunks()
            plain = rows.select(_PLAIN).filter(to_boolean_array(~chosen))
            yield self._make_row_contents(special, plain)

    def _make_row_contents(self, rows: pa.Table, plain_rows: pa.Table) -> LinkInputs:
        kinds = rows.column("kind")
        traces = rows.filter(pc.equal(kinds, str(Kind.TRACE)))
        ops = rows.filter(pc.equal(kinds, str(Kind.OP)))
        entries, passed_over, unread = self._parse_traces(traces)
        finished, unread_ops = self._parse_ops(ops)
        members = special_records(rows, self.delay_levels)
        return LinkInputs(members, plain_rows, entries, finished, passed_over, unread + unread_ops)

    def _parse_traces(self, rows: pa.Table) -> tuple[pa.Table, int, int]:
        tables, passed_over, unread = [ENTRIES.empty_table()], 0, 0
        for part, bodies in self._read_rows_and_bodies(rows):
            unread += bodies.null_count
            named = part.rename_columns([{"born_host": "client_host"}.get(name, name) for name in part.schema.names])
            parents = named.select(PARENTS).cast(pa.schema([ENTRIES.field(name) for name in PARENTS]))
            traces = parse_traces(parents, bodies)
            tables.append(traces.entries)
            passed_over += traces.passed_over
        return pa.concat_tables(tables), passed_over, unread

    def _parse_ops(self, rows: pa.Table) -> tuple[pa.Table, int]:
        tables, unread = [OPS.empty_table()], 0
        for part, bodies in self._read_rows_and_bodies(rows):
            unread += bodies.null_count
            halves = [list(dict.fromkeys(parse_op_offsets(body or b""))) for body in bodies.to_pylist()]
            parents = np.repeat(np.arange(len(halves)), [len(found) for found in halves])
            places = part.select(["broker", "physical_offset", "queue_id"]).take(pa.array(parents))
            numbers = pa.array([number for found in halves for number in found], pa.int64())
            tables.append(places.append_column("half_offset", numbers).cast(OPS))
        return pa.concat_tables(tables), unread

    def _read_rows_and_bodies(self, rows: pa.Table) -> Iterator[tuple[pa.Table, pa.Array]]:
        """Yield rows with decompressed bodies; a body is null if the lake lacks it or it is damaged."""
        if not rows.num_rows:
            return
        packs = pc.struct_field(rows.column("body_ref"), "pack")
        rows = rows.append_column("pack", packs).sort_by("pack").drop_columns(["pack"])
        cache = FrameCache()
        for batch in rows.combine_chunks().to_batches():
            for part in self._read_bodies(batch, cache):
                table = pa.Table.from_batches([part])
                yield table.drop_columns(["body"]), _decompressed_bodies(part)

    def _read_bodies(self, batch: pa.RecordBatch, cache: FrameCache) -> Iterator[pa.RecordBatch]:
        try:
            yield from list(batches_with_bodies(batch, self.packs, cache))
        except PackError:
            if len(batch) > 1:
                middle = len(batch) // 2
                yield from self._read_bodies(batch.slice(0, middle), cache)
                yield from self._read_bodies(batch.slice(middle), cache)
            else:
                yield batch.append_column("body", pa.nulls(len(batch), pa.binary()))


def _decompressed_bodies(batch: pa.RecordBatch) -> pa.Array:
    bodies, codecs = batch.column("body"), batch.column("body_codec")
    is_compressed = pc.fill_null(pc.not_equal(codecs, str(BodyCodec.NONE)), False)
    if not is_compressed.true_count:
        return bodies
    pairs = zip(bodies.to_pylist(), codecs.to_pylist(), strict=True)
    return pa.array([_decompress(body, codec) for body, codec in pairs], pa.binary())


def _decompress(body: bytes | None, codec: str | None) -> bytes | None:
    try:
        return None if body is None else decompress_as(body, BodyCodec(codec or BodyCodec.NONE), MAX_BODY_BYTES)
    except (BodyError, ValueError):
        return None


def rows_to_records(rows: pa.Table, delay_levels: DelayCache) -> pa.Table:
    """Convert rows of `messages` with the columns `COLUMNS` to records between which edges are searched."""
    rows = rows.combine_chunks()
    chosen = special_row_mask(rows)
    special = rows.filter(to_boolean_array(chosen)).combine_chunks()
    plain = rows.filter(to_boolean_array(~chosen)).combine_chunks()
    return pa.concat_tables([special_records(special, delay_levels), ordinary_records(plain)])


def ordinary_records_where(plain_rows: pa.Table | None, make_mask: Any) -> pa.Table:
    """Convert the rows of ordinary messages that `make_mask` selects to records between which edges are searched.

    Args:
        plain_rows: the rows, from `LinkInputs`.
        make_mask: function that returns the selected rows as an array of booleans.
    """
    if plain_rows is None or not plain_rows.num_rows:
        return MEMBERS.empty_table()
    mask: Array = make_mask(plain_rows)
    return ordinary_records(plain_rows.filter(to_boolean_array(mask)).combine_chunks())


def distinct_positions(rows: pa.Table, broker_column: str, offset_column: str) -> pa.Table:
    """Return the distinct pairs of broker and physical offset in two columns of a table."""
    chosen = rows.select([broker_column, offset_column]).rename_columns(PLACES.names).drop_null()
    return chosen.group_by(PLACES.names).aggregate([]).select(PLACES.names).cast(PLACES)
