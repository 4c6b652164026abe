"""Checks of a producer before it sends, and the properties that it adds."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pytest

from commitlake.connectors.rocketmq.errors import ClientOptionError, InvalidMessageError
from commitlake.connectors.rocketmq.producers.compression import check_codec, compress
from commitlake.connectors.rocketmq.producers.messages import (
    OutgoingMessage,
    check_group,
    check_message,
    stored_properties,
)
from commitlake.connectors.rocketmq.producers.unique_keys import UniqueKeys
from commitlake.schemas.layouts.rocketmq.properties import parse_properties
from commitlake.schemas.layouts.rocketmq.sysflag import BodyCodec, body_codec


def message(**changes: object) -> OutgoingMessage:
    return OutgoingMessage(**({"topic": "orders", "body": b"x"} | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changes",
    [
        {"topic": "a" * 127},
        {"topic": "%RETRY%group-1_A|b"},
        {"body": bytes(100)},
        {"delay_level": 18},
        {"keys": ("a", "北京")},
        {"properties": {"a": "b"}},
    ],
)  # fmt: skip
def test_valid_messages_are_accepted(changes: dict[str, object]) -> None:
    check_message(message(**changes), max_body_bytes=100)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"topic": ""}, "topic: expected a name"),
        ({"topic": " "}, "topic: expected a name"),
        ({"topic": "a" * 128}, "topic: expected at most 127 characters, found 128"),
        ({"topic": "a.b"}, "topic: expected only letters"),
        ({"topic": "orders\n"}, "topic: expected only letters"),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, "to which only brokers send"),
        ({"topic": "RMQ_SYS_TRANS_HALF_TOPIC"}, "to which only brokers send"),
        ({"body": b""}, "body: expected at least one byte"),
        ({"body": bytes(101)}, "body: expected at most 100 bytes, found 101"),
        ({"delay_level": 19}, "delay_level: expected 0 to 18"),
        ({"delay_level": -1}, "delay_level: expected 0 to 18"),
        ({"delay_level": 1, "deliver_at_ms": 1}, "found both"),
        ({"keys": ("a b",)}, "keys: expected keys without blanks"),
        ({"keys": ("",)}, "keys: expected keys without blanks"),
        ({"properties": {"UNIQ_KEY": "x"}}, "is a name that RocketMQ uses itself"),
        ({"properties": {"DELAY": "3"}}, "is a name that RocketMQ uses itself"),
        ({"properties": {"a": " "}}, "expected a name and a value"),
        ({"properties": {"": "a"}}, "expected a name and a value"),
    ],
)
def test_the_error_for_an_invalid_message_names_the_fault(changes: dict[str, object], error: str) -> None:
    with pytest.raises(InvalidMessageError, match=error):
        check_message(message(**changes), max_body_bytes=100)


def test_names_of_groups_follow_the_rules_of_topics() -> None:
    assert check_group("g" * 255) == "g" * 255
    for group in ("", "g" * 256, "a b"):
        with pytest.raises(InvalidMessageError, match="group"):
            check_group(group)


def test_properties_are_stored_with_those_that_rocketmq_needs() -> None:
    given = message(tags="paid", keys=("k1", "k2"), properties={"a": "1"}, delay_level=3, wait_store=False)
    assert dict(parse_properties(stored_properties(given, "KEY", {"TRAN_MSG": "true"}))) == {
        "a": "1", "KEYS": "k1 k2", "TAGS": "paid", "DELAY": "3", "UNIQ_KEY": "KEY", "WAIT": "false",
        "TRAN_MSG": "true",
    }  # fmt: skip
    timed = message(deliver_at_ms=1700000000000, system_properties={"ORIGIN_MESSAGE_ID": "x"})
    assert dict(parse_properties(stored_properties(timed, "KEY"))) == {
        "ORIGIN_MESSAGE_ID": "x", "TIMER_DELIVER_MS": "1700000000000", "UNIQ_KEY": "KEY", "WAIT": "true",
    }  # fmt: skip


@pytest.mark.parametrize("properties", [{"a": "\x01"}, {"a\x02": "b"}, {"a": "x" * 32768}])
def test_properties_that_cannot_be_stored_are_refused(properties: dict[str, str]) -> None:
    with pytest.raises(InvalidMessageError, match="properties"):
        stored_properties(message(properties=properties), "KEY")


@pytest.mark.parametrize("codec", [BodyCodec.ZLIB, BodyCodec.LZ4, BodyCodec.ZSTD])
def test_compressed_bodies_are_flagged_with_their_codec(codec: BodyCodec) -> None:
    body = b"again and " * 1000
    data, bits = compress(body, codec)
    assert body_codec(bits) is codec
    assert len(data) < 300
    if codec is not BodyCodec.ZLIB:
        assert pa.decompress(data, len(body), str(codec), asbytes=True) == body


def test_codecs_have_names() -> None:
    assert compress(b"body", check_codec("none")) == (b"body", 0)
    with pytest.raises(ClientOptionError, match="expected one of zlib, lz4, zstd, none, found 'gzip'"):
        check_codec("gzip")


def test_ids_are_made_of_address_process_time_and_counter() -> None:
    keys = UniqueKeys("10.0.0.5", process_id=0x1ABCD)
    begin = datetime.datetime(2026, 11, 1).astimezone()
    now_ms = int(begin.timestamp() * 1000) + 0x1234
    first, second = keys.next(now_ms), keys.next(now_ms)
    assert len(first) == 32
    assert first.startswith("0A000005ABCD")
    assert (first[20:], second[20:]) == ("000012340001", "000012340002")
    assert first[:20] == second[:20]
    assert len(UniqueKeys("::1").next()) == 56


def test_times_in_ids_start_again_each_month() -> None:
    keys = UniqueKeys("10.0.0.5")
    for month in (1, 12, 2):
        begin = int(datetime.datetime(2026, month, 1).astimezone().timestamp() * 1000)
        assert keys.next(begin + 7)[20:28] == "00000007"


def test_ids_late_in_a_month_have_the_highest_bit_of_the_time_set() -> None:
    keys = UniqueKeys("10.0.0.5")
    begin = int(datetime.datetime(2026, 12, 1).astimezone().timestamp() * 1000)
    elapsed = 31 * 86_400_000 - 1
    assert keys.next(begin + elapsed)[20:28] == f"{elapsed:08X}" == "9FA523FF"
    assert keys.next_batch(2, begin + 2**31)[1].as_py()[20:28] == "80000000"


def test_ids_are_never_the_same() -> None:
    keys = UniqueKeys("127.0.0.1")
    assert len({keys.next() for _ in range(50_000)}) == 50_000
