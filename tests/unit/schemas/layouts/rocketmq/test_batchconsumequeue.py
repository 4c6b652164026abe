"""Tests of BatchConsumeQueue entries, both ways."""

from __future__ import annotations

from commitlake.schemas.layouts.rocketmq.batchconsumequeue import ENTRY, BatchQueueEntry, parse_entry, serialize_entry

VECTOR = bytes.fromhex(
    "0000000000000000"  # physical offset 0
    "000001f4"  # 500 bytes
    "000000000027a807"  # TagA
    "0000018bcfe569c8"  # stored at 1700000000456
    "0000000000000064"  # the first message is number 100
    "0003"  # of 3
    "ffffffff"  # not compacted
    "00000000"
)
ENTRY_A = BatchQueueEntry(0, 500, 2598919, 1700000000456, 100, 3)


def test_an_entry_is_written_and_read() -> None:
    assert serialize_entry(ENTRY_A) == VECTOR
    assert parse_entry(b"." + VECTOR, 1) == ENTRY_A


def test_an_unused_entry_is_not_valid() -> None:
    assert ENTRY_A.is_valid
    assert not parse_entry(bytes(ENTRY.size)).is_valid
    assert not ENTRY_A._replace(batch_size=0).is_valid
    assert not ENTRY_A._replace(message_base_offset=-1).is_valid
