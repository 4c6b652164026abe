"""Answers to pulls as rows: whole records from anywhere in a log, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from commitlake.connectors.formats.rocketmq.pulled_records import PulledRecords
from commitlake.connectors.reading.errors import DamagedLogError
from commitlake.connectors.reading.read_request import Request
from commitlake.schemas.layouts.boltmq.dialect import BOLTMQ
from commitlake.schemas.layouts.rocketmq.commitlog import convert_to_dialect, serialize_message
from commitlake.schemas.layouts.rocketmq.sysflag import INNER_BATCH
from tests.support.batches import source_schema
from tests.support.message_stores import BROKER, message
from tests.support.small_stores import STORED_MS

OFFSETS = (7, 90_000, 1 << 40)


def record(number: int, physical_offset: int, **changes: Any) -> bytes:
    return serialize_message(
        message(number, **changes),
        queue_offset=number,
        physical_offset=physical_offset,
        store_timestamp=STORED_MS,
        store_host=BROKER,
    )


def rows(*answers: bytes) -> list[dict[str, object]]:
    records = PulledRecords("broker-a", Request(source_schema("physical_offset", "queue_offset", "tags")))
    return [row for batch in records.decode_answers(answers) for row in batch.to_pylist()]


def test_rows_have_the_offsets_stored_in_their_records() -> None:
    answers = [record(number, offset) for number, offset in enumerate(OFFSETS)]
    expected = [
        {"physical_offset": offset, "queue_offset": number, "tags": f"tag{number}"}
        for number, offset in enumerate(OFFSETS)
    ]
    assert rows(*answers) == rows(b"".join(answers)) == expected
    assert rows() == rows(b"") == []


def test_long_topics_and_the_other_dialect_are_read() -> None:
    long, other = record(0, 5, topic="t" * 200), convert_to_dialect(record(1, 9), BOLTMQ)
    assert [row["physical_offset"] for row in rows(long + other)] == [5, 9]


def test_an_answer_that_is_cut_is_an_error_at_every_length() -> None:
    data = record(0, 5) + record(1, 300)
    first = len(record(0, 5))
    for length in range(1, len(data)):
        if length == first:
            continue
        with pytest.raises(DamagedLogError, match=rf"found cut.* at byte {first if length > first else 0} of {length}"):
            rows(data[:length])


def test_lengths_that_do_not_add_up_are_an_error() -> None:
    data = bytearray(record(0, 5))
    data[84:88] = (1 << 30).to_bytes(4)  # the body's length
    with pytest.raises(DamagedLogError, match=r"found part.lengths at byte 0"):
        rows(bytes(data))


def test_inner_batches_are_counted_by_message() -> None:
    properties = (("INNER_BASE", "10"), ("INNER_NUM", "5"))
    batch = record(10, 5, sys_flag=INNER_BATCH, properties=properties)
    records = PulledRecords("broker-a", Request(source_schema("queue_offset")))
    assert sum(found.num_rows for found in records.decode_answers([batch, record(15, 300)])) == 2
    assert (records.messages, records.has_inner_batches) == (6, True)
