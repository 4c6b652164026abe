"""Stream readers whose micro-batches have a start and a limit, on every Spark version that CommitLake supports.

Spark 4.1, unlike 4.2, has no admission control in Python's stream readers: it passes no start and no limit to
`latestOffset`, and it has no module `pyspark.sql.streaming.datasource`.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyspark
from pyspark.sql.datasource import DataSourceStreamReader

from commitlake.connectors.spark.versions import HAS_READ_LIMITS, SparkVersionError
from commitlake.connectors.worker_errors import forward_worker_errors

if TYPE_CHECKING or HAS_READ_LIMITS:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
else:

    class ReadLimit:
        """Substitute for Spark 4.2's class of this name: the limit of a micro-batch."""

    @dataclass
    class ReadAllAvailable(ReadLimit):
        """Limit for a micro-batch that reads all available data."""

    @dataclass
    class ReadMaxBytes(ReadLimit):
        """Limit of a micro-batch in bytes."""

        max_bytes: int

    @dataclass
    class ReadMaxRows(ReadLimit):
        """Limit of a micro-batch in rows."""

        max_rows: int

    class SupportsTriggerAvailableNow:
        """Substitute for Spark 4.2's class of this name, for stream readers that fix their end at a query's start."""


__all__ = ["LimitedStreamReader", "ReadAllAvailable", "ReadLimit", "ReadMaxBytes", "ReadMaxRows", "check_limit"]

Offset = dict[str, Any]


class LimitedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Stream reader whose micro-batches have a start and a limit, also on Spark 4.1.

    Spark 4.1 asks for the end of the next micro-batch without its start. The start is the end of the last one, which
    Spark has asked for, or, after a restart, has passed to `partitions` as an empty range.
    """

    _reached: Offset | None = None

    @abstractmethod
    def first_offset(self) -> Offset:
        """Return the offset at which a new stream starts."""

    @abstractmethod
    def next_offset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Return the end of the micro-batch that begins at `start`; `start` itself if there is nothing new."""

    @abstractmethod
    def partitions_between(self, start: Offset, end: Offset) -> list[Any]:
        """Return the partitions of a micro-batch."""

    @forward_worker_errors()
    def initialOffset(self) -> Offset:  # noqa: N802 (Spark's name)
        """Return the offset at which a new stream starts."""
        self._reached = self.first_offset()
        return self._reached

    @forward_worker_errors()
    def latestOffset(self, start: Offset | None = None, limit: ReadLimit | None = None) -> Offset:  # noqa: N802 (Spark's name)
        """Return the end of the next micro-batch; its start if there is nothing new."""
        if start is None:
            start = self.initialOffset() if self._reached is None else self._reached
        if limit is None:
            limit = self.getDefaultReadLimit()
            check_limit(limit)
        self._reached = self.next_offset(start, limit)
        return self._reached

    @forward_worker_errors()
    def partitions(self, start: Offset, end: Offset) -> list[Any]:
        """Return the partitions between two offsets; none if the offsets are equal."""
        self._reached = end
        return [] if start == end else self.partitions_between(start, end)


def check_limit(limit: ReadLimit) -> None:
    """Refuse a limit for micro-batches on a Spark version that does not support limits.

    Raises:
        SparkVersionError: if there is a limit. Spark 4.1 with Trigger.AvailableNow would stop after one micro-batch.
    """
    if not isinstance(limit, ReadAllAvailable):
        raise SparkVersionError(
            f"Spark {pyspark.__version__} cannot limit a stream's micro-batches: remove the option maxBytesPerTrigger "
            "or maxOffsetsPerTrigger, or use Spark 4.2"
        )
