"""Bodies of traces give entries; bodies in another form are counted and skipped."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from commitlake.pipelines.edges.client_actions import ENTRIES, MAX_BODY_BYTES, MAX_ENTRIES, ParsedTraces, parse_traces
from commitlake.pipelines.edges.step_records import TIME
from tests.support.logs import START_MS
from tests.support.message_families import begun, decided, ended, offset_id, pub

STORED = START_MS + 9000


def body(*records: Sequence[object]) -> bytes:
    return "".join("\x01".join(map(str, columns)) + "\x02" for columns in records).encode()


def parsed(*bodies: bytes | None) -> ParsedTraces:
    """Return the parsed bodies."""
    count = len(bodies)
    parents = pa.table(
        {
            "broker": pa.array(["a"] * count, pa.string()),
            "physical_offset": pa.array(range(count), pa.int64()),
            "store_timestamp": pa.array([STORED * 1000] * count, TIME),
            "client_host": pa.array(["10.0.0.9:1"] * count, pa.string()),
        }
    )
    found = parse_traces(parents, pa.array(bodies, pa.binary()))
    assert found.entries.schema == ENTRIES
    return found


def entries_of(
    *bodies: bytes | None, names: Sequence[str] = ("action", "unique_key", "group", "outcome")
) -> list[tuple[Any, ...]]:
    """Return some columns of the entries of bodies."""
    return [tuple(row[name] for name in names) for row in parsed(*bodies).entries.to_pylist()]


def test_each_kind_of_record_is_an_entry() -> None:
    records = [
        pub("U1", 4096, 1),
        begun("U1", "r", 2, 2),
        ended("U1", "r", 3, 3),
        decided("T1", "COMMIT_MESSAGE", 4),
        ["Recall", START_MS, "R", "producers", "orders", "U3", "true"],
    ]
    assert entries_of(body(*records)) == [
        ("Pub", "U1", "producers", "success"),
        ("SubBefore", "U1", "shop", None),
        ("SubAfter", "U1", "shop", "returned_null"),
        ("EndTransaction", "T1", "producers", "committed"),
        ("Recall", "U3", "producers", "success"),
    ]
    rows = parsed(b"", body(*records)).entries.to_pylist()
    assert [row["entry"] for row in rows] == [0, 1, 2, 3, 4]
    assert {row["physical_offset"] for row in rows} == {1}
    assert rows[0]["sent_offset"] == 4096
    assert rows[0]["event_timestamp"] == datetime.datetime.fromtimestamp(START_MS / 1000 + 1, datetime.UTC)
    assert (rows[1]["attempt"], rows[1]["request_id"], rows[2]["cost_ms"]) == (2, "r", 7)


@pytest.mark.parametrize(
    ("tail", "expected"),
    [
        (["true"], ("success", None)),  # before 4.4, no offset id
        ([offset_id(99), "false"], ("failed", 99)),
        ([offset_id(99), "true", "10.0.0.1"], ("success", 99)),  # some write the client's host, too
    ],
)
def test_each_form_of_a_pub_trace_is_parsed(tail: Sequence[str], expected: tuple[str, int | None]) -> None:
    columns = pub("U1", 0)[:12]
    assert entries_of(body([*columns, *tail]), names=("outcome", "sent_offset")) == [expected]


def test_an_end_of_an_old_consumer_has_no_group_and_time() -> None:
    (row,) = parsed(body(ended("U1", "r", 1)[:7])).entries.to_pylist()
    assert (row["group"], row["outcome"]) == (None, "time_out")
    assert row["event_timestamp"] == row["store_timestamp"]


def test_a_batch_is_an_entry_for_each_message() -> None:
    columns = pub("U1,U2,U3", 0)
    columns[12] = ",".join(map(offset_id, (1, 2, 3)))
    assert entries_of(body(columns), names=("unique_key", "sent_offset")) == [("U1", 1), ("U2", 2), ("U3", 3)]
    columns[12] = offset_id(1)  # fewer ids than messages: it is unknown whose it is
    assert entries_of(body(columns), names=("unique_key", "sent_offset")) == [("U1", None), ("U2", None), ("U3", None)]


@pytest.mark.parametrize(
    "hostile",
    [
        b"\xff\xfe\x01\x02",  # no text
        b"Pub\x02",  # no columns
        b"Pub" + b"\x01" * 5000 + b"\x02",  # thousands of them, all empty
        body(["Pub", *["x"] * 4]),  # too few
        body(["SubAfter", "null", "U1", "7", "true", "k", "0"]),  # without a request nothing can be joined
        body(begun("", "r")),
        body(["Drop", "table"]),
    ],
)
def test_another_form_is_skipped_and_counted(hostile: bytes) -> None:
    found = parsed(hostile, body(pub("U1", 1)))
    assert (found.entries.num_rows, found.passed_over) == (1, 1)


def test_invalid_numbers_are_left_out() -> None:
    columns = pub("U1", 1)
    columns[1], columns[10] = "9" * 5000, "-1"
    (row,) = parsed(body(columns)).entries.to_pylist()
    assert row["cost_ms"] is None
    assert row["event_timestamp"] == row["store_timestamp"]
    columns[1] = "9" * 18  # beyond the year 9999
    (row,) = parsed(body(columns)).entries.to_pylist()
    assert row["event_timestamp"] == row["store_timestamp"]


def test_text_that_is_not_utf8_makes_its_column_null() -> None:
    data = body(pub("U1", 1)).replace(b"producers", b"\xff\xff")
    assert entries_of(data) == [("Pub", "U1", None, "success")]


def test_bodies_beyond_the_limits_are_skipped() -> None:
    large = body(pub("U1", 1)) + b"x" * MAX_BODY_BYTES
    many = b"x\x02" * (MAX_ENTRIES + 1)
    wide = body(begun("," * MAX_ENTRIES, "r"))
    found = parsed(large, many, wide, body(pub("U2", 1)))
    assert (found.entries.num_rows, found.passed_over) == (1, 3)


def test_an_unreadable_body_gives_no_entries() -> None:
    assert entries_of(None, body(pub("U1", 1))) == [("Pub", "U1", "producers", "success")]
