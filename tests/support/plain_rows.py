"""Comparison of the compiled reader's rows with the plain reader's records, for logs of any format."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.reading.batches import read_split
from commitlake.connectors.reading.errors import DamagedLogError
from commitlake.connectors.reading.options import Mode
from commitlake.connectors.reading.read_request import Request
from commitlake.connectors.reading.splits import Split
from commitlake.schemas.layouts.rocketmq.scan import Fault, SpanKind
from commitlake.schemas.tables.messages import SOURCE

SCHEMA = arrow_schema(SOURCE)
SOFT = {str(fault) for fault in (Fault.TOPIC_ENCODING, Fault.PROPERTIES_ENCODING, Fault.TIMESTAMP)}


def read_all(splits: list[Split], mode: Mode, **request: int) -> list[dict[str, object]]:
    """Return the rows of a read, in physical order."""
    wanted = Request(SCHEMA, mode, **request)  # type: ignore[arg-type]
    batches = [batch for split in splits for batch in read_split(split, wanted)]
    table = pa.Table.from_batches(batches, schema=SCHEMA)
    table.validate(full=True)
    rows: list[dict[str, object]] = table.to_pylist()
    return sorted(rows, key=lambda row: (row["physical_offset"], row["size"] is None))


def check_row(row: dict[str, object], plain: dict[str, object], body: bytes) -> None:
    """Compare one row, column by column."""
    note = row["_corrupt_record"]
    for name, value in plain.items():
        if name in ("magic", "body_sha256"):
            continue
        found = row[name]
        if name in ("born_timestamp", "store_timestamp"):
            if note is not None and found is None:
                continue
            found = round(found.timestamp() * 1000)  # type: ignore[attr-defined]
        if name == "properties":
            found = dict(found)  # type: ignore[call-overload]
        assert found == value, name
    assert row["body"] == body
    assert note is None or note["reason"] in SOFT  # type: ignore[index]


def check_reads(
    splits: list[Split],
    plain: Sequence[Any],
    end: int,
    row_of: Callable[[Any, str], dict[str, object]],
    window: int,
) -> None:
    """Compare the compiled reader's result in each mode with the plain reader's.

    Args:
        splits: of the log of the store `b`.
        plain: findings of the plain reader: messages and faults.
        end: end of the snapshot; later records are not read yet.
        row_of: returns the row for a message and a broker's name.
        window: size of a batch, bytes.
    """
    expected = [found for found in plain if found.message is not None and found.span.start < end]
    rows = read_all(splits, Mode.PERMISSIVE, max_batch_bytes=window)
    good = [row for row in rows if row["size"] is not None]
    assert [row["physical_offset"] for row in good] == [found.span.start for found in expected]
    for row, found in zip(good, expected, strict=True):
        check_row(row, row_of(found.message, "b"), found.message.body)
    bad: list[Any] = [row["_corrupt_record"] for row in rows if row["size"] is None]
    assert sum(record["end"] - record["start"] for record in bad) == _bad_bytes(plain, end)
    assert all(record["reason"] and record["expected"] and record["found"] for record in bad)
    if bad:
        with pytest.raises(DamagedLogError, match="expected"):
            read_all(splits, Mode.FAILFAST)
    dropped = read_all(splits, Mode.DROPMALFORMED, max_batch_bytes=window)
    assert [row["physical_offset"] for row in dropped] == [
        row["physical_offset"] for row in good if row["_corrupt_record"] is None
    ]


def _bad_bytes(plain: Sequence[Any], end: int) -> int:
    """Return the number of bytes in bad ranges before the end of the snapshot, according to the plain reader."""
    return sum(
        min(found.span.end, end) - found.span.start
        for found in plain
        if found.span.kind is SpanKind.FAULT and found.span.start < end
    )
