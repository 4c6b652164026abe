"""Tests of small parts of JMQ's layout, both ways: queue entries, offsets, consume records, properties, ids."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from commitlake.schemas.layouts.errors import LayoutError, UnserializableError
from commitlake.schemas.layouts.jmq import queue_file as jmq_queue
from commitlake.schemas.layouts.jmq.consume_records import (
    Consumption,
    DeliveryOutcome,
    parse_consumption,
    serialize_consumption,
)
from commitlake.schemas.layouts.jmq.journal import HEAD
from commitlake.schemas.layouts.jmq.offset_json import ConsumedQueue, ConsumerPosition, parse_offsets, serialize_offsets
from commitlake.schemas.layouts.jmq.properties import parse_properties, serialize_properties
from commitlake.schemas.layouts.jmq.queue_file import (
    JmqQueueEntry,
    MessageIdParts,
    count_valid_entries,
    parse_entry,
    parse_message_id,
    serialize_entry,
    serialize_message_id,
)
from commitlake.schemas.layouts.rocketmq.hosts import Host

ENTRIES = {
    "00000000000000000000006c00000000000090764b83": JmqQueueEntry(0, 108),
    "000000000000006c00000048000000000000e324832e": JmqQueueEntry(108, 72),
}
CONSUMPTION = Consumption(
    "order_paid", 1, 7, 4711, "mail", DeliveryOutcome.FAILED, 1_700_000_000_456, 2, Host.of("10.0.0.1", 50123)
)
CONSUMED = bytes.fromhex(
    "003a c05e 02 01 0000000000000007 0000000000001267 0000018bcfe569c8 0002 0a000001 c3cb cec71a8b"
    "0a 6f726465725f70616964 04 6d61696c"
)


@pytest.mark.parametrize("text", ENTRIES)
def test_entry_both_ways(text: str) -> None:
    assert serialize_entry(ENTRIES[text]).hex() == text
    assert parse_entry(b"xx" + bytes.fromhex(text), 2) == ENTRIES[text]


def test_entry_with_any_flipped_bit_is_an_error() -> None:
    entry = serialize_entry(JmqQueueEntry(108, 72))
    for data in flipped(entry):
        with pytest.raises(LayoutError, match="entry_crc"):
            parse_entry(data)


def flipped(data: bytes) -> list[bytes]:
    """Return the same bytes with each of their bits flipped."""
    number = int.from_bytes(data, "big")
    return [(number ^ 1 << bit).to_bytes(len(data), "big") for bit in range(len(data) * 8)]


def test_zeros_end_a_queue_and_an_entry_of_size_0_is_a_lost_message() -> None:
    assert parse_entry(bytes(22)) is None
    lost = parse_entry(serialize_entry(JmqQueueEntry(0, 0)))
    assert lost is not None
    assert lost.is_lost


def test_entries_are_counted_up_to_the_first_that_is_not_valid() -> None:
    data = b"".join(serialize_entry(JmqQueueEntry(100 * number, 100)) for number in range(10))
    assert count_valid_entries(data) == 10
    assert count_valid_entries(data[:66] + bytes(22) + data[88:]) == 3
    assert count_valid_entries(data[:70] + b"\xff" + data[71:]) == 3
    assert count_valid_entries(b"") == 0


def test_declarations_give_numpy_fields() -> None:
    data = b"".join(serialize_entry(JmqQueueEntry(100 * number, 99)) for number in range(10))
    entries = np.frombuffer(data, np.dtype(jmq_queue.ENTRY.numpy_fields))
    assert entries["journal_offset"].tolist() == list(range(0, 1000, 100))
    assert entries["size"].tolist() == [99] * 10
    assert np.dtype(HEAD.numpy_fields).itemsize == 63


def test_consumption_both_ways() -> None:
    assert serialize_consumption(CONSUMPTION) == CONSUMED
    assert parse_consumption(b"xx" + CONSUMED + b"yy", 2) == (CONSUMPTION, len(CONSUMED))


def test_consumption_cut_at_any_length_is_incomplete() -> None:
    assert all(parse_consumption(CONSUMED[:length]) is None for length in range(len(CONSUMED)))


def test_consumption_with_any_flipped_bit_is_an_error_or_incomplete() -> None:
    for data in flipped(CONSUMED):
        try:
            assert parse_consumption(data) is None
        except LayoutError as error:
            assert error.field in {"magic", "total_size", "record_crc"}


@pytest.mark.parametrize(
    "change",
    [
        {"topic": "t" * 256}, {"app": "ü" * 128}, {"app": "\ud800"}, {"queue_id": 256}, {"queue_offset": -1},
        {"attempt": 65536}, {"client_address": Host.of("::1", 1)}, {"client_address": Host.of("10.0.0.1", 70000)},
    ],
)  # fmt: skip
def test_consumption_with_values_that_are_too_large_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(UnserializableError):
        serialize_consumption(replace(CONSUMPTION, **change))  # type: ignore[arg-type]


POSITIONS = {
    ConsumedQueue("orders", "mail", 0): ConsumerPosition(120, 130, 1_700_000_000_000),
    ConsumedQueue("orders", "mail", 10): ConsumerPosition(0, 0, 0),
    ConsumedQueue("订单", "a b", 255): ConsumerPosition(1, 1, 1),
}


def test_offsets_both_ways() -> None:
    assert parse_offsets(serialize_offsets(POSITIONS, 17)) == (POSITIONS, 17)
    one = {ConsumedQueue("t", "a", 3): ConsumerPosition(120, 130, 1_700_000_000_000)}
    assert serialize_offsets(one, 1_700_000_000_000).decode() == (
        '{"version":1,"updated":1700000000000,"consumers":'
        '{"t":{"a":{"3":{"ack":120,"pull":130,"time":1700000000000}}}}}'
    )


def offsets(**changes: object) -> bytes:
    """Return an offset file with one position, and the given changes."""
    position = {"ack": 1, "pull": 2, "time": 3} | {
        name: changes[name] for name in changes if name in ConsumerPosition._fields
    }
    queues = {str(changes.get("queue", 0)): position}
    document = {"version": changes.get("version", 1), "updated": 1, "consumers": {"t": {"a": queues}}}
    return json.dumps(changes.get("document", document)).encode()


@pytest.mark.parametrize(
    "data",
    [
        b"", b"{", b"\xff", b"[" * 100_000, b"[]", offsets(version=2), offsets(queue=256), offsets(queue="01"),
        offsets(queue="x"), offsets(ack=3), offsets(ack=-1), offsets(ack="1"), offsets(ack=True), offsets(time=None),
        offsets(pull=1 << 63), offsets(document={"version": 1, "updated": 1}),
        offsets(document={"version": 1, "updated": 1, "consumers": {"t": []}}),
        offsets(document={"version": 1, "updated": 1, "consumers": {"t": {"a": {"0": 7}}}}),
    ],
)  # fmt: skip
def test_invalid_offset_file_is_an_error(data: bytes) -> None:
    with pytest.raises(LayoutError, match="expected"):
        parse_offsets(data)


@pytest.mark.parametrize(
    ("pairs", "data"),
    [
        ([], b""),
        ([("k", "v")], b"k=v"),
        ([("k", "")], b"k="),
        ([("k", "v"), ("k", "w")], b"k=v\nk=w"),
        ([("k", "a\nb")], b"k=a\\\nb"),
        ([("a=b", "c\nd")], b"a\\=b=c\\\nd"),
        ([("\\", "\\")], b"\\\\=\\\\"),
        ([("k", "a=b")], b"k=a\\=b"),
        ([("ü", "订单")], "ü=订单".encode()),
    ],
)
def test_properties_both_ways(pairs: list[tuple[str, str]], data: bytes) -> None:
    assert serialize_properties(pairs) == data
    assert parse_properties(data) == pairs


@pytest.mark.parametrize(
    ("data", "pairs"),
    [
        (b"k=a=b", [("k", "a=b")]),  # an equals sign in a value needs no backslash to be understood
        (b"no sign\nk=v\n\n=x", [("k", "v")]),
        (b"no\\=sign\nk=v", [("k", "v")]),
        (b"k=v\\", [("k", "v\\")]),
        (b"k\\", []),
        (b"\\n=v", [("n", "v")]),
        (b"k=\xff", [("k", "\ufffd")]),
    ],
)
def test_malformed_properties_are_read_as_far_as_possible(data: bytes, pairs: list[tuple[str, str]]) -> None:
    assert parse_properties(data) == pairs


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("order_paid/1/0@broker-a", MessageIdParts("order_paid", 1, 0, "broker-a")),
        (
            "a/b@c/255/18446744073709551615@10.0.0.2:50088",
            MessageIdParts("a/b@c", 255, (1 << 64) - 1, "10.0.0.2:50088"),
        ),
    ],
)
def test_message_id_both_ways(text: str, place: MessageIdParts) -> None:
    assert serialize_message_id(place) == text
    assert parse_message_id(text) == place


@pytest.mark.parametrize(
    "text",
    ["", "@", "t/1/0", "t/1/0@", "/1/0@b", "1/0@b", "t/256/0@b", "t/01/0@b", "t/1/-1@b", "t/1/ 1@b", "t/²/1@b"],
)
def test_invalid_message_id_is_an_error(text: str) -> None:
    with pytest.raises(LayoutError, match="message_id"):
        parse_message_id(text)


def test_broker_name_with_the_separator_of_a_message_id_is_refused() -> None:
    with pytest.raises(UnserializableError, match="broker"):
        serialize_message_id(MessageIdParts("t", 0, 0, "a@b"))
