"""The body of a batch, as RocketMQ writes it."""

from __future__ import annotations

import pytest

from commitlake.schemas.layouts.errors import LayoutError, UnserializableError
from commitlake.schemas.layouts.rocketmq.properties import serialize_properties
from commitlake.schemas.remoting.batch import BatchItem, parse_batch, serialize_batch

BODY = bytes.fromhex(
    "00000042 00000000 00000000 00000000 00000002 6d31 002a 554e49515f4b4559 01" + "41" * 32 + "02"
    "0000001f 00000000 00000000 00000000 00000002 6d32 0007 54414753 01 74 02"
)
ITEMS = [
    BatchItem(0, b"m1", serialize_properties([("UNIQ_KEY", "A" * 32)])),
    BatchItem(0, b"m2", serialize_properties([("TAGS", "t")])),
]


def test_a_batch_has_the_bytes_of_rocketmq() -> None:
    assert len(BODY) == 97
    assert serialize_batch(ITEMS) == BODY
    assert parse_batch(BODY) == parse_batch(memoryview(BODY)) == ITEMS
    assert parse_batch(b"") == []


def test_a_truncated_batch_is_an_error() -> None:
    for length in range(1, len(BODY)):
        if length != 0x42:  # the first message alone
            with pytest.raises(LayoutError):
                parse_batch(BODY[:length])


@pytest.mark.parametrize(
    ("position", "value", "field"),
    [
        (0, "00000000", "total_size"),
        (0, "00000015", "total_size"),
        (0, "7fffffff", "total_size"),
        (0, "ffffffff", "total_size"),
        (16, "ffffffff", "body_length"),
        (16, "0000002d", "body_length"),
        (22, "0029", "properties_length"),
        (22, "ffff", "properties_length"),
    ],
)
def test_a_wrong_length_is_named(position: int, value: str, field: str) -> None:
    data = bytes.fromhex(value)
    with pytest.raises(LayoutError) as caught:
        parse_batch(BODY[:position] + data + BODY[position + len(data) :])
    assert (caught.value.field, caught.value.offset) == (field, position)


def test_properties_over_the_limit_are_refused() -> None:
    with pytest.raises(UnserializableError, match="at most 32767 bytes, found 32768"):
        serialize_batch([BatchItem(0, b"", bytes(32768))])
