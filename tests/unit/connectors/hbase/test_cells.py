"""Messages as cells and back: no value is lost, and the same message always gives the same cells."""

from __future__ import annotations

import datetime
import json
from typing import Any

import pyarrow as pa
import pytest

from commitlake.connectors.hbase.cells import (
    ARROW_SCHEMA,
    NEVER_EXPIRES_MS,
    REFERENCE,
    VALUE,
    MessageCells,
    cell_timestamp_ms,
    parse_row,
    to_batch,
    to_cells,
)
from commitlake.connectors.hbase.errors import HBaseError
from commitlake.connectors.lake.erasures import MARKER
from commitlake.schemas.tables.messages import MESSAGES

TIME = datetime.datetime(2026, 11, 21, 17, 18, 36, 446_000, tzinfo=datetime.UTC)
MESSAGE: dict[str, Any] = {
    "broker": "broker-a",
    "physical_offset": 4096,
    "size": 300,
    "topic": "orders",
    "queue_id": 3,
    "queue_offset": 12,
    "msg_id": "0A00000100002A9F0000000000001000",
    "unique_key": "0A000001000018B4AAC2000000000001",
    "keys": ["order-1", "order-2", "order-1"],
    "tags": "new",
    "kind": "normal",
    "born_timestamp": TIME,
    "store_timestamp": TIME,
    "born_host": "10.0.0.9:50123",
    "store_host": "[fe80::1]:10911",
    "sys_flag": 0,
    "flag": -1,
    "reconsume_times": 0,
    "priority": 4,
    "prepared_transaction_offset": 0,
    "body_size": 100,
    "body_crc": 2_147_483_647,
    "body_codec": "none",
    "properties": [("KEYS", "order-1 order-2"), ("nasty", '"\\\n\x01\x00 東京 \U0001f600'), ("", "")],
    "format": "rocketmq",
    "origin_topic": "orders",
    "producer_group": "shop",
    "body_ref": {"pack": "p", "frame_offset": 1 << 40, "frame_length": 2, "offset": 3, "length": None},
    "store_date": TIME.date(),
}
BARE = {**dict.fromkeys(MESSAGES.names), "broker": "b", "physical_offset": 0}
EMPTY: dict[str, Any] = {
    **BARE,
    "keys": [],
    "properties": [],
    "topic": "",
    "unique_key": "",
    "body_ref": dict.fromkeys(("pack",)),
}


def _batch(*rows: dict[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rows), ARROW_SCHEMA)


def _cells(row: dict[str, Any], salts: int = 16) -> MessageCells:
    (cells,) = to_cells(_batch(row), salts)
    return cells


@pytest.mark.parametrize("row", [MESSAGE, BARE, EMPTY], ids=["full", "bare", "empty"])
def test_a_message_round_trips(row: dict[str, Any]) -> None:
    batch = _batch(row)
    value = _cells(row).cells[0].value
    assert to_batch([parse_row(value)]).equals(batch)


def test_entries_refer_to_the_messages_row() -> None:
    message, *entries = _cells(MESSAGE).cells
    assert message.column == VALUE
    assert len(entries) == 4  # offset, unique key, and two keys, of which one is given twice
    assert {entry.column for entry in entries} == {REFERENCE}
    assert {entry.value for entry in entries} == {message.key}
    assert len({entry.key for entry in entries}) == 4


def test_a_missing_value_has_no_entry() -> None:
    assert len(_cells(BARE).cells) == 2


def test_the_value_is_json_without_nulls() -> None:
    assert json.loads(_cells(BARE).cells[0].value) == {"broker": "b", "physical_offset": 0}


def test_other_arrow_types_of_the_same_give_the_same_cells() -> None:
    batch = _batch(MESSAGE)
    encoded = {"topic": batch["topic"].dictionary_encode(), "tags": batch["tags"].cast(pa.string_view())}
    times = {"store_timestamp": batch["store_timestamp"].cast(pa.timestamp("ms", "Europe/Berlin"))}
    columns = {name: batch[name] for name in batch.schema.names}
    other = pa.RecordBatch.from_pydict({**columns, **encoded, **times})
    assert list(to_cells(other, 16)) == list(to_cells(batch, 16))


def test_all_columns_except_the_primary_key_may_be_missing() -> None:
    (cells,) = to_cells(_batch(MESSAGE).select(["physical_offset", "broker"]), 16)
    assert parse_row(cells.cells[0].value) == {"physical_offset": 4096, "broker": "broker-a"}
    with pytest.raises(HBaseError, match="physical_offset is missing"):
        list(to_cells(_batch(MESSAGE).select(["broker"]), 16))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"body": pa.array([b"x"])}, "a message has no columns body"),
        ({"queue_id": pa.array(["three"])}, "column queue_id: expected int32, found string"),
        ({"broker": pa.nulls(1, pa.string())}, "a message has the broker None and the physical_offset 4096"),
    ],
)
def test_invalid_columns_and_values_are_refused(changed: dict[str, pa.Array], message: str) -> None:
    batch = _batch(MESSAGE)
    other = pa.RecordBatch.from_pydict({**{name: batch[name] for name in batch.schema.names}, **changed})
    with pytest.raises(HBaseError, match=message):
        list(to_cells(other, 16))


@pytest.mark.parametrize("value", [b"", b"{", b"[]", b"\xff", b"7"])
def test_a_cell_without_a_message_is_an_error(value: bytes) -> None:
    with pytest.raises(HBaseError, match="expected the JSON object of a message"):
        parse_row(value)


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        (0, 86_399_999),
        (86_399_999_999, 86_399_999),
        (86_400_000_000, 2 * 86_400_000 - 1),
        (-1, 0),  # HBase knows no time before 1970
        (None, NEVER_EXPIRES_MS),
    ],
)
def test_cells_are_put_at_the_end_of_the_store_date(time: int | None, expected: int) -> None:
    assert cell_timestamp_ms(time) == expected


def test_columns_are_in_the_requested_order() -> None:
    batch = to_batch([parse_row(_cells(MESSAGE).cells[0].value)], ["topic", "broker"])
    assert batch.to_pylist() == [{"topic": "orders", "broker": "broker-a"}]


def test_erased_message_gets_a_later_timestamp() -> None:
    (before,) = to_cells(_batch(MESSAGE), 16)
    erased = {"keys": None, "unique_key": None, "body_ref": None, "properties": [(MARKER, "E")]}
    (after,) = to_cells(_batch({**MESSAGE, **erased}), 16)
    assert after.timestamp_ms == before.timestamp_ms + 1
    assert after.cells[0].key == before.cells[0].key
