"""The table `messages` as it is read to measure lag: in this process, or by tasks of a runner, such as Spark's.

Either way, deltalake's engine reads it. A task counts the messages of its statement, and this process adds up the
counts of all tasks.
"""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.packs.body_batches import batches_with_bodies
from commitlake.connectors.lake.packs.errors import PackError
from commitlake.connectors.lake.packs.location import OWN_PACKS, PackLocation, pack_location
from commitlake.connectors.lake.packs.pack_stores import open_pack_store
from commitlake.connectors.lake.packs.reader import FrameCache
from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.runtime.runner import Runner, SharedValue, results_in_order
from commitlake.connectors.storage.uris import absolute_path_or_uri
from commitlake.pipelines.lag.queue_offset_spans import BODY, MessageCounter
from commitlake.schemas.tables.messages import MESSAGES

_BODY_COLUMNS = ("body_ref", "body_crc")
_TASK_MESSAGES = 4_000_000
_MAX_OPEN_TABLES = 2


class MessagesTable(ABC):
    """The table `messages` of a lake at one version.

    Attributes:
        statement_messages: Number of messages that a statement should read at most; None for no limit.
    """

    statement_messages: int | None = None

    def query(self, sql: str) -> pa.Table:
        """Return the rows of a SELECT from `messages` that has a small result."""
        return self.query_all([sql])[0]

    @abstractmethod
    def query_all(self, statements: Sequence[str]) -> list[pa.Table]:
        """Return the rows of each of several SELECT statements, as `query` does."""

    @abstractmethod
    def feed_counters(self, broker: str, needed: Sequence[tuple[MessageCounter, Sequence[str]]]) -> None:
        """Feed counters the messages that they need.

        Args:
            broker: The store that has the messages.
            needed: Counters, each with SELECT statements for messages, with the columns from `stored_columns`.
        """


class ArrowMessagesTable(MessagesTable):
    """The table `messages` of a lake, read in this process.

    Args:
        table: The table.
        packs: Location of the packs; not needed if no counter needs bodies.
    """

    def __init__(self, table: DeltaTable, packs: PackLocation = OWN_PACKS) -> None:
        self._table, self._packs = table, packs

    def query_all(self, statements: Sequence[str]) -> list[pa.Table]:
        """Return the rows of each of several SELECT statements; see `MessagesTable.query_all`."""
        return [run_sql(self._table, "messages", sql).read_all() for sql in statements]

    def feed_counters(self, broker: str, needed: Sequence[tuple[MessageCounter, Sequence[str]]]) -> None:
        """Feed counters the messages that they need; see `MessagesTable.feed_counters`."""
        for counter, statements in needed:
            _count_messages(self._table, self._packs, broker, counter, statements)


class RunnerMessagesTable(MessagesTable):
    """The table `messages` of a lake, read by the tasks of a runner, one for each statement.

    Args:
        lake: The lake. The table stays at the version that it has now.
        runner: The runner.
    """

    statement_messages = _TASK_MESSAGES

    def __init__(self, lake: Lake, runner: Runner) -> None:
        # Workers have other working folders.
        packs = pack_location(absolute_path_or_uri(lake.packs.root), lake.packs.s3)
        self._lake = Lake(absolute_path_or_uri(lake.root), lake.s3, packs)
        self._version, self._runner = lake.table("messages").version(), runner

    def query_all(self, statements: Sequence[str]) -> list[pa.Table]:
        """Return the rows of each of several SELECT statements; see `MessagesTable.query_all`."""
        return list(results_in_order(self._runner.run(partial(_query_in_task, self._lake, self._version), statements)))

    def feed_counters(self, broker: str, needed: Sequence[tuple[MessageCounter, Sequence[str]]]) -> None:
        """Feed counters the messages that they need; see `MessagesTable.feed_counters`."""
        # Pickled now, because the first results are added while later tasks are still to start.
        tasks = [
            (number, copy, sql)
            for number, (counter, statements) in enumerate(needed)
            for copy in [SharedValue(pickle.dumps(counter))]
            for sql in statements
        ]
        for _, (number, counts) in self._runner.run(partial(_count_in_task, self._lake, self._version, broker), tasks):
            needed[number][0].add_partial_counts(counts)


def _query_in_task(lake: Lake, version: int, sql: str) -> pa.Table:
    return run_sql(_open_messages(lake, version), "messages", sql).read_all()


def _count_in_task(lake: Lake, version: int, broker: str, task: tuple[int, SharedValue[bytes], str]) -> tuple[int, Any]:
    """Return the counts of the messages of one statement, with the number of the counter."""
    number, copy, sql = task
    counter: MessageCounter = pickle.loads(copy.value)  # noqa: S301 (from the driver)
    _count_messages(_open_messages(lake, version), lake.packs, broker, counter, [sql])
    return number, counter.partial_counts()


@lru_cache(maxsize=_MAX_OPEN_TABLES)
def _open_messages(lake: Lake, version: int) -> DeltaTable:
    """Open `messages` at a version, once for all tasks of a process."""
    # Reading a table's log takes longer than many a task.
    return lake.table_at("messages", version)


def _count_messages(
    table: DeltaTable, packs: PackLocation, broker: str, counter: MessageCounter, statements: Iterable[str]
) -> None:
    batches = (batch for sql in statements for batch in run_sql(table, "messages", sql))
    for prepared in _prepare_batches(batches, counter.columns, packs):
        counter.add_batch(broker, prepared)


def stored_columns(columns: Collection[str]) -> list[str]:
    """Return the columns of `messages` that are read for the columns of a counter."""
    names = [name for name in columns if name != BODY]
    return [*names, *_BODY_COLUMNS] if BODY in columns else names


def _prepare_batches(
    batches: Iterable[pa.RecordBatch], columns: Collection[str], packs: PackLocation
) -> Iterator[pa.RecordBatch]:
    """Yield the messages of the engine's batches in the form that a counter takes, with bodies if it needs them.

    If a body of a batch cannot be read, all bodies of the batch are null, and the counter reports that.

    Args:
        batches: Rows with the columns from `stored_columns`.
        columns: The columns of the counter.
        packs: Location of the packs.
    """
    schema = arrow_schema(MESSAGES.select_columns(stored_columns(columns)))
    store, cache = None, FrameCache()
    for batch in batches:
        # The engine returns strings and times in a form that not all functions of Arrow accept.
        prepared = [batch.cast(schema)]
        if BODY in columns:
            try:
                store = store or open_pack_store(packs)
                prepared = list(batches_with_bodies(prepared[0], store, cache))
            except PackError:
                prepared = [prepared[0].append_column(BODY, pa.nulls(batch.num_rows, pa.binary()))]
        yield from prepared
