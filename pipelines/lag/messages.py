"""Protocols of lag: a `Count` counts messages, and `Messages` reads them from a lake or a store."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from commitlake.pipelines.lag.counting import Queue
from commitlake.pipelines.lag.queues import QueueSpan, Times

BODY = "body"
"""A column that is read only if a count needs it: bodies are outside the tables. Null if a body cannot be read."""


class Count(Protocol):
    """Counts messages of queues.

    Attributes:
        starts: The queues, each with the offset of the first message that is needed. Other messages may come as well.
        columns: Columns that batches must have; they may have others.
        until_ms: Messages that were stored later are not needed, ms since 1970; None for no limit.
        since_ms: Messages that were stored earlier are not needed, ms since 1970; None for no limit.
        log_start: Records that begin before this physical offset are not needed; None for no limit.
    """

    @property
    def starts(self) -> Mapping[Queue, int]: ...  # noqa: D102
    @property
    def columns(self) -> Collection[str]: ...  # noqa: D102
    @property
    def until_ms(self) -> int | None: ...  # noqa: D102
    @property
    def since_ms(self) -> int | None: ...  # noqa: D102
    @property
    def log_start(self) -> int | None: ...  # noqa: D102

    def add(self, broker: str, batch: pa.RecordBatch) -> None:
        """Count a batch of a store's messages. Messages of other queues are ignored."""


class Messages(Protocol):
    """The messages of one store: `LakeMessages` or `StoreMessages`.

    Attributes:
        has_deleted: True if messages that the broker has deleted can still be read.
    """

    has_deleted: bool

    def measure(self, times: Times, topics: Collection[str], counts: Sequence[Count]) -> dict[Queue, QueueSpan]:
        """Give each count the messages that it needs.

        Args:
            times: Times at which the ends of queues are wanted.
            topics: Topics whose queues are measured.
            counts: Counters to feed with messages.

        Returns:
            First and end offsets of the queues of these topics.

        Raises:
            QueryError: A table cannot be read.
            CommitLogError: A log cannot be read.
        """
