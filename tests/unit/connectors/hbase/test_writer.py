"""Calls are bounded by messages and by bytes, and each has one timestamp."""

from __future__ import annotations

import datetime
from typing import Any, cast

import pyarrow as pa

from commitlake.connectors.hbase.cells import ARROW_SCHEMA, FAMILY, Cell, cell_timestamp_ms
from commitlake.connectors.hbase.client import Client
from commitlake.connectors.hbase.options import HBaseOptions
from commitlake.connectors.hbase.writer import CALL_BYTES, delete_messages, write_messages

DAY = datetime.datetime(2026, 11, 20, tzinfo=datetime.UTC)


class _Recorder:
    """Keeps calls instead of sending them."""

    def __init__(self, batch_rows: int) -> None:
        self.options = HBaseOptions(batch_rows=batch_rows)
        self.calls: list[tuple[list[bytes], int]] = []
        self.largest = 0

    def write(self, cells: list[Cell], timestamp_ms: int) -> None:
        self.calls.append(([cell.key for cell in cells], timestamp_ms))
        self.largest = max(self.largest, sum(len(cell.key) + len(cell.value) for cell in cells))

    def delete(self, keys: list[bytes], family: bytes, timestamp_ms: int) -> None:
        assert family == FAMILY
        self.calls.append((keys, timestamp_ms))


def _batch(count: int, days: int = 1, tags: str = "t") -> pa.RecordBatch:
    rows = [
        {"broker": "b", "physical_offset": number, "topic": "orders", "tags": tags,
         "store_timestamp": DAY + datetime.timedelta(days=number % days), "keys": [f"k{number}"]}
        for number in range(count)
    ]  # fmt: skip
    return pa.RecordBatch.from_pylist(rows, ARROW_SCHEMA)


def _write(batch_rows: int, *batches: pa.RecordBatch, delete: bool = False) -> tuple[int, Any]:
    recorder = _Recorder(batch_rows)
    send = delete_messages if delete else write_messages
    return send(cast("Client", recorder), batches, 4), recorder


def test_calls_have_the_maximum_of_messages_and_the_last_has_the_rest() -> None:
    count, recorder = _write(10, _batch(25), _batch(3))
    assert count == 28
    assert [len(keys) for keys, _ in recorder.calls] == [30, 30, 24]  # a row and two entries each


def test_messages_of_each_day_are_written_in_a_separate_call() -> None:
    _, recorder = _write(100, _batch(10, days=3))
    days = [cell_timestamp_ms(int((DAY + datetime.timedelta(days=day)).timestamp() * 1_000_000)) for day in range(3)]
    assert sorted((time, len(keys)) for keys, time in recorder.calls) == list(zip(days, [12, 9, 9], strict=True))


def test_large_messages_make_small_calls() -> None:
    count, recorder = _write(1000, _batch(100, tags="x" * 200_000))
    assert count == 100
    assert len(recorder.calls) > 4
    assert recorder.largest < CALL_BYTES + 300_000


def test_a_delete_covers_exactly_the_written_cells() -> None:
    written = _write(7, _batch(20, days=2))[1].calls
    deleted = _write(7, _batch(20, days=2), delete=True)[1].calls
    assert deleted == [(keys, at + 1) for keys, at in written]  # an erased message's cells are a millisecond newer


def test_no_messages_make_no_call() -> None:
    assert _write(10)[0] == 0
    assert _write(10, _batch(0))[1].calls == []
