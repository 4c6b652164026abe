"""Streams on Spark 4.1 and 4.2: each path is tested with the installed Spark, as if it were the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from commitlake.connectors.spark.limited_stream_reader import (
    LimitedStreamReader,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
)
from commitlake.connectors.spark.versions import SparkVersionError


class Numbers(LimitedStreamReader):
    """A stream of the numbers up to `end`."""

    def __init__(self, limit: ReadLimit | None = None) -> None:
        self.end = 10
        self.limit = limit or ReadAllAvailable()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 (Spark's name)
        """Return the given limit."""
        return self.limit

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 (Spark's name)
        """Do nothing: the numbers have a fixed end."""

    def read(self, partition: Any) -> Iterator[Any]:
        """Yield a number."""
        yield partition

    def first_offset(self) -> dict[str, Any]:
        """Return 3."""
        return {"at": 3}

    def next_offset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end, or what the limit allows."""
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else self.end
        return {"at": min(self.end, start["at"] + most)}

    def partitions_between(self, start: dict[str, Any], end: dict[str, Any]) -> list[Any]:
        """Return the numbers."""
        return list(range(start["at"], end["at"]))


def test_spark_4_2_gives_start_and_limit() -> None:
    assert Numbers().latestOffset({"at": 5}, ReadMaxRows(2)) == {"at": 7}


def test_without_a_start_each_micro_batch_follows_the_last() -> None:
    reader = Numbers()
    assert reader.initialOffset() == {"at": 3}
    assert reader.latestOffset() == {"at": 10}
    reader.end = 12
    assert reader.latestOffset() == {"at": 12}
    assert reader.partitions({"at": 10}, {"at": 12}) == [10, 11]


def test_without_a_start_a_restarted_stream_continues_at_its_checkpoint() -> None:
    reader = Numbers()
    assert reader.partitions({"at": 12}, {"at": 12}) == []  # Spark 4.1 passes the checkpoint so
    reader.end = 15
    assert reader.latestOffset() == {"at": 15}


def test_without_a_start_a_new_stream_asks_for_its_first_offset() -> None:
    assert Numbers().latestOffset() == {"at": 10}


def test_a_limit_that_spark_would_ignore_is_refused() -> None:
    with pytest.raises(SparkVersionError, match=r"cannot limit .* remove the option .* or use Spark 4\.2"):
        Numbers(ReadMaxRows(2)).latestOffset()
