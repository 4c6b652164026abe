"""Tests of headers, from ext fields and back."""

from __future__ import annotations

import inspect
from typing import Annotated, Any, NamedTuple

import pytest

from commitlake.schemas.remoting import admin_headers, headers, name_server_headers
from commitlake.schemas.remoting.codes import RequestCode
from commitlake.schemas.remoting.errors import CommandError
from commitlake.schemas.remoting.ext_fields import ExtFieldName, Long, from_ext_fields, to_ext_fields
from commitlake.schemas.remoting.frames import Command
from commitlake.schemas.remoting.headers import SendMessageRequest, has_one_letter_names, parse_send_request

V1 = {
    "producerGroup": "PG", "topic": "T", "defaultTopic": "TBW102", "defaultTopicQueueNums": "4", "queueId": "-1",
    "sysFlag": "0", "bornTimestamp": "1795247801799", "flag": "7", "properties": "TAGS\x01a\x02",
    "reconsumeTimes": "0", "unitMode": "false", "batch": "false", "bname": "broker-a",
}  # fmt: skip
V2 = dict(zip("abcdefghijkmn", V1.values(), strict=True))
HEADER = SendMessageRequest("PG", "T", "TBW102", 4, -1, 0, 1795247801799, 7, "TAGS\x01a\x02", 0, broker_name="broker-a")


class Example(NamedTuple):
    """One field of every kind."""

    queue_id: int
    queue_offset: Long
    topic: str
    is_on: bool = False
    client_id: Annotated[str | None, ExtFieldName("clientID")] = None
    timestamp: Long | None = None
    count_of: int | None = None


def test_a_send_is_read_by_names_and_by_letters() -> None:
    for code, fields in ((10, V1), (310, V2), (320, V2), (324, V1), (325, V2)):
        assert parse_send_request(Command(code, fields)) == HEADER
        assert to_ext_fields(HEADER, has_one_letter_names=has_one_letter_names(code)) == fields


def test_fields_have_rocketmqs_names() -> None:
    header = Example(1, 2, "T", True, "c", 3, 4)
    fields = to_ext_fields(header)
    assert fields == {
        "queueId": "1", "queueOffset": "2", "topic": "T", "isOn": "true", "clientID": "c", "timestamp": "3",
        "countOf": "4",
    }  # fmt: skip
    assert from_ext_fields(Example, fields | {"unknown": "x"}) == header


def test_fields_that_are_none_are_left_out() -> None:
    header = Example(1, 2, "T")
    assert to_ext_fields(header) == {"queueId": "1", "queueOffset": "2", "topic": "T", "isOn": "false"}
    assert from_ext_fields(Example, {"queueId": "1", "queueOffset": "2", "topic": "T"}) == header


@pytest.mark.parametrize(("text", "value"), [("true", True), ("TRUE", True), ("false", False), ("yes", False)])
def test_booleans_are_parsed_as_in_java(text: str, value: bool) -> None:
    fields = {"queueId": "1", "queueOffset": "2", "topic": "T", "isOn": text}
    assert from_ext_fields(Example, fields).is_on is value


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"queueId": "1", "queueOffset": "2"}, r"Example: expected the field 'topic', found none"),
        ({"queueId": "x"}, r"Example\.queueId: expected a whole number of 32 bits, found 'x'"),
        ({"queueId": ""}, "found ''"),
        ({"queueId": "1.0"}, "found '1.0'"),
        ({"queueId": "2147483648"}, "of 32 bits"),
        ({"queueId": "-2147483649"}, "of 32 bits"),
        ({"queueId": "1", "queueOffset": "9223372036854775808"}, r"queueOffset: expected a whole number of 64 bits"),
        ({"queueId": "9" * 5000}, "of 32 bits"),
    ],
)
def test_a_missing_or_wrong_field_is_named(fields: dict[str, str], message: str) -> None:
    with pytest.raises(CommandError, match=message) as caught:
        from_ext_fields(Example, fields)
    assert len(str(caught.value)) < 300


def test_numbers_at_their_bounds_are_read() -> None:
    fields = {"queueId": "-2147483648", "queueOffset": "9223372036854775807", "topic": ""}
    assert from_ext_fields(Example, fields) == Example(-(1 << 31), (1 << 63) - 1, "")


def declared() -> list[Any]:
    """Return all headers."""
    modules = (headers, admin_headers, name_server_headers)
    return [
        kind
        for module in modules
        for _, kind in inspect.getmembers(module, inspect.isclass)
        if hasattr(kind, "_fields") and kind.__module__ == module.__name__
    ]


@pytest.mark.parametrize("kind", declared())
def test_every_header_is_read_as_it_was_written(kind: Any) -> None:
    samples = {"str": "text", "int": 7, "bool": True}
    values = [
        next(sample for name, sample in samples.items() if name in str(hint) or (name == "int" and "Long" in str(hint)))
        for hint in kind.__annotations__.values()
    ]
    header = kind._make(values)
    assert from_ext_fields(kind, to_ext_fields(header)) == header


def test_fields_that_java_clients_send_are_kept_under_their_names() -> None:
    # As seen on the wire from Java's clients.
    pull = {
        "consumerGroup": "CG", "topic": "T", "queueId": "0", "queueOffset": "1", "maxMsgNums": "32", "sysFlag": "2",
        "commitOffset": "-1", "suspendTimeoutMillis": "15000", "subVersion": "1700000000000", "expressionType": "TAG",
        "maxMsgBytes": "262144", "bname": "broker-a",
    }  # fmt: skip
    assert to_ext_fields(from_ext_fields(headers.PullMessageRequest, pull)) == pull
    query = {
        "topic": "T", "key": "k", "maxNum": "64", "beginTimestamp": "0", "endTimestamp": "9",
        "_UNIQUE_KEY_QUERY": "true",
    }  # fmt: skip
    assert to_ext_fields(from_ext_fields(headers.QueryMessageRequest, query)) == query
    sent = {"queueId": "1", "TRACE_ON": "true", "MSG_REGION": "DefaultRegion", "msgId": "7F", "queueOffset": "4"}
    assert to_ext_fields(from_ext_fields(headers.SendMessageResponse, sent)) == sent
    assert RequestCode(310) is RequestCode.SEND_MESSAGE_V2
