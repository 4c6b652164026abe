"""What measures lag, and what it measures it from: counts take messages, and a lake or a store gives them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from commitlake.pipelines.lag.counting import Queue
from commitlake.pipelines.lag.queues import QueueSpan, Times

BODY = "body"
"""A column that is read on purpose only: bodies lie outside the tables. Null where a body cannot be had."""


class Count(Protocol):
    """Counts messages of some queues.

    Attributes:
        starts: The queues, each with the offset from which on messages are needed; other messages may come, too.
        columns: The columns that batches must have; others may be there.
        until_ms: Messages that were stored later are not needed, ms since 1970; None for no such time.
        since_ms: Messages that were stored earlier are not needed; None for no such time.
        log_start: Records that begin before this physical offset are not needed; None for none such.
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
        """Count a batch of a store's messages, of these queues or others."""


class Messages(Protocol):
    """The messages of one store: `LakeMessages` or `StoreMessages`."""

    def measure(self, times: Times, topics: Collection[str], counts: Sequence[Count]) -> dict[Queue, QueueSpan]:
        """Give each count the messages that it needs.

        Args:
            times: The times of interest for the queues' ends.
            topics: The topics whose queues are of interest.
            counts: What is to be counted.

        Returns:
            Where the queues of these topics begin and end.

        Raises:
            QueryError: A table cannot be read.
            CommitLogError: A log cannot be read.
        """
