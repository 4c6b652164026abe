"""The table `messages` as an engine reads it: the interface, and its implementation by deltalake's engine."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Protocol

import pyarrow as pa
from deltalake import DeltaTable

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.lake.packs.body_batches import batches_with_bodies
from commitlake.connectors.lake.packs.errors import PackError
from commitlake.connectors.lake.packs.location import OWN_PACKS, PackLocation
from commitlake.connectors.lake.packs.pack_stores import open_pack_store
from commitlake.connectors.lake.packs.reader import FrameCache
from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.lake.sql import Engine
from commitlake.pipelines.lag.queue_offset_spans import BODY, MessageCounter
from commitlake.schemas.tables.messages import MESSAGES

_BODY_COLUMNS = ("body_ref", "body_crc")


class MessagesTable(Protocol):
    """Interface to the table `messages` of a lake at one version.

    Attributes:
        engine: The engine, in whose SQL dialect statements are written.
    """

    @property
    def engine(self) -> Engine: ...  # noqa: D102

    def query(self, sql: str) -> pa.Table:
        """Return the rows of a SELECT from `messages` that has a small result."""

    def feed_counters(self, broker: str, needed: Sequence[tuple[MessageCounter, Sequence[str]]]) -> None:
        """Feed counters the messages that they need.

        Args:
            broker: The store that has the messages.
            needed: Counters, each with SELECT statements for messages, with the columns from `stored_columns`.
        """


class ArrowMessagesTable:
    """The table `messages` of a lake, read by deltalake's engine in this process.

    Args:
        table: The table.
        packs: Location of the packs; not needed if no counter needs bodies.
    """

    engine = Engine.DELTALAKE

    def __init__(self, table: DeltaTable, packs: PackLocation = OWN_PACKS) -> None:
        self._table, self._packs = table, packs

    def query(self, sql: str) -> pa.Table:
        """Return the rows of a SELECT; see `MessagesTable.query`."""
        return self._run_sql(sql).read_all()

    def feed_counters(self, broker: str, needed: Sequence[tuple[MessageCounter, Sequence[str]]]) -> None:
        """Feed counters the messages that they need; see `MessagesTable.feed_counters`."""
        for counter, statements in needed:
            batches = (batch for sql in statements for batch in self._run_sql(sql))
            for prepared in prepare_batches(batches, counter.columns, self._packs):
                counter.add_batch(broker, prepared)

    def _run_sql(self, sql: str) -> pa.RecordBatchReader:
        return run_sql(self._table, "messages", sql)


def stored_columns(columns: Collection[str]) -> list[str]:
    """Return the columns of `messages` that are read for the columns of a counter."""
    names = [name for name in columns if name != BODY]
    return [*names, *_BODY_COLUMNS] if BODY in columns else names


def prepare_batches(
    batches: Iterable[pa.RecordBatch], columns: Collection[str], packs: PackLocation
) -> Iterator[pa.RecordBatch]:
    """Yield the messages of an engine's batches in the form that a counter takes, with bodies if it needs them.

    If a body of a batch cannot be read, all bodies of the batch are null, and the counter reports that.

    Args:
        batches: Rows with the columns from `stored_columns`.
        columns: The columns of the counter.
        packs: Location of the packs.
    """
    schema = arrow_schema(MESSAGES.select_columns(stored_columns(columns)))
    store, cache = None, FrameCache()
    for batch in batches:
        # Each engine returns strings and times in a form of its own, which not all functions of Arrow accept.
        prepared = [batch.cast(schema)]
        if BODY in columns:
            try:
                store = store or open_pack_store(packs)
                prepared = list(batches_with_bodies(prepared[0], store, cache))
            except PackError:
                prepared = [prepared[0].append_column(BODY, pa.nulls(batch.num_rows, pa.binary()))]
        yield from prepared
