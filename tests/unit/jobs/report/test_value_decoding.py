"""Tests of values of findings in readable form."""

from __future__ import annotations

import pytest

from commitlake.jobs.report.value_decoding import (
    bytes_text,
    decode_first_bytes,
    decode_value,
    ms_to_time_text,
    offset_text,
)
from commitlake.schemas.layouts.boltmq.dialect import Magic
from commitlake.schemas.layouts.rocketmq.commitlog import BLANK, NewMessage, serialize_message
from tests.support.logs import BROKER_HOST, new_message

BORN_MS = 1_795_183_200_123


def message() -> NewMessage:
    return new_message(1, topic="orders", queue_id=3, born_timestamp=BORN_MS)


@pytest.mark.parametrize(
    ("value", "code", "shown"),
    [
        ("DAA320A7", "magic", "DAA320A7 (message of RocketMQ)"),
        ("DAA320A7 or DAA320B7", "log_bad_magic", "DAA320A7 (message of RocketMQ) or DAA320B7 (message of BoltMQ)"),
        ("4F4F4F4F (no record for 3000 bytes)", "log_bad_magic",
         '4F4F4F4F (the text "OOOO") (no record for 3,000 bytes (2.9 KiB))'),
        ("00000000", "magic", "00000000 (zeros)"),
        ("00FF1234", "magic", "00FF1234"),
        ("1234 or BBBB", "magic", "1234 (message of JMQ) or BBBB (filler at a file's end)"),
        ("1795183200123 ms", "log_time_back", "2026-11-20 14:00:00.123 UTC (1795183200123 ms)"),
        ("99999999999999 ms", "log_time_back", "99999999999999 ms"),  # 14 digits: no time that a broker has
        ("12345", "body_crc", "00003039 (12345)"),
        ("-1 for these 9 bytes", "body_crc", "FFFFFFFF (-1) for these 9 bytes"),
        ("1048576 bytes of log", "hole", "1,048,576 bytes (1.0 MiB) of log"),
        ("1 bytes", "hole", "1 byte"),
        ("topic 'DAA320A7'", "log_bad_topic", "topic 'DAA320A7'"),
        ("", "magic", ""),
    ],
)  # fmt: skip
def test_codes_are_decoded_to_their_meaning(value: str, code: str, shown: str) -> None:
    assert decode_value(value, code) == shown


def test_times_and_sizes_are_decoded() -> None:
    assert ms_to_time_text(0) == "1970-01-01 00:00:00.000 UTC"
    assert ms_to_time_text(1 << 62) == f"{1 << 62} ms"
    assert bytes_text(1023) == "1,023 bytes"
    assert offset_text(4096) == "4096"
    assert offset_text(3 << 30) == f"{3 << 30} (3.0 GiB)"


def test_the_first_bytes_of_a_record_are_decoded() -> None:
    record = serialize_message(
        message(), queue_offset=7, physical_offset=4096, store_timestamp=BORN_MS, store_host=BROKER_HOST
    )
    found = decode_first_bytes(record[:256])
    assert found["first bytes"].startswith(record[:16].hex(" "))
    assert found["says of itself"] == (
        f"magic DAA320A7, message of RocketMQ; size {len(record)} bytes; queue 3, number 7; physical offset 4096; "
        "sent 2026-11-20 14:00:00.123 UTC"
    )
    blank = BLANK.pack(5000, Magic.BLANK)
    assert decode_first_bytes(blank)["says of itself"].endswith("filler at a segment's end; size 5,000 bytes (4.9 KiB)")


@pytest.mark.parametrize("size", range(0, 60, 3))
def test_bytes_of_any_length_are_shown(size: int) -> None:
    record = serialize_message(
        message(), queue_offset=7, physical_offset=0, store_timestamp=BORN_MS, store_host=BROKER_HOST
    )
    for data in (record[:size], b"\xff" * size, b"<b>" * size):
        assert ("first bytes" in decode_first_bytes(data)) == bool(data)
