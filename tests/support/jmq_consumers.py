"""Applications that consume the messages of a JMQ store, and a lake that follows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from commitlake.broker_lite.stores.jmq import Consuming, JournalStore
from commitlake.connectors.lake.delta import open_delta_table
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.runtime.local_runner import HERE
from commitlake.pipelines.archive.result import Result
from commitlake.pipelines.archive.run import Config, run_archive
from tests.support.journal_stores import CLIENT, SMALL, fill
from tests.support.small_stores import Clock


@dataclass
class JmqShop:
    """A JMQ store whose messages applications consume, and its lake.

    Attributes:
        folder: folder of store and lake.
        clock: clock of the broker.
    """

    folder: Path
    clock: Clock

    @property
    def store(self) -> Path:
        """Return the store's folder."""
        return self.folder / "broker-a"

    @property
    def lake(self) -> Lake:
        """Return the lake."""
        return Lake(str(self.folder / "lake"))

    @contextmanager
    def open(self) -> Iterator[tuple[JournalStore, Consuming]]:
        """Open the store, and the consumption state of its applications."""
        with JournalStore.open(self.store, SMALL, clock=self.clock) as store:
            consuming = Consuming(store)
            try:
                yield store, consuming
            finally:
                consuming.close()

    def send(self, start: int, count: int) -> None:
        """Store messages of the topic orders in two queues."""
        with self.open() as (store, _):
            fill(store, count, start)

    def consume(self, app: str, count: int, fails: Callable[[int], bool] = lambda _: False) -> None:
        """Consume the next messages of the first queue.

        Args:
            app: the application.
            count: number of messages.
            fails: whether the delivery of the message at a queue offset fails.
        """
        with self.open() as (_, consuming):
            batch = consuming.take_batch("orders", app, 0, CLIENT, count)
            assert batch is not None
            assert len(batch.messages) == count
            offsets = [message.queue_offset for message in batch.messages]
            consuming.finish_batch(batch, {offset: "no such address" for offset in offsets if fails(offset)})

    def retry(self, app: str, succeeds: bool) -> None:
        """Deliver failed messages once more."""
        self.clock.now_ms += 86_400_000
        with self.open() as (_, consuming):
            for retry in consuming.take_retries("orders", app, 100):
                consuming.finish_retry(retry, CLIENT, None if succeeds else "still none")

    def archive(self) -> Result:
        """Archive new messages."""
        return run_archive(HERE, Config(store=str(self.store), lake=self.lake, quality=False))

    def rows(self, table: str, columns: str, order: str, where: str = "true") -> list[tuple[object, ...]]:
        """Return columns of a table of the lake, in a fixed order."""
        sql = f"SELECT {columns} FROM {table} WHERE {where} ORDER BY {order}"
        found = run_sql(open_delta_table(f"{self.lake.root}/{table}"), table, sql)
        return [tuple(row.values()) for row in found.read_all().to_pylist()]
