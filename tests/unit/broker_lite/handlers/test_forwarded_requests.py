"""Tests of the offsets that the members of a group report (223)."""

from __future__ import annotations

from functools import partial

import pytest

from commitlake.broker_lite.broker.limits import MAX_STATUS_BYTES
from commitlake.broker_lite.handlers.dispatcher import Dispatcher
from commitlake.broker_lite.handlers.forwarded_requests import parse_member_offsets
from commitlake.schemas.remoting.codes import RequestCode, ResponseCode
from commitlake.schemas.remoting.fastjson import parse_fastjson
from tests.support.brokers import Peer
from tests.support.machine_speed import takes_at_most

STATUS = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
ASKED = {"topic": "orders", "group": "consumers"}
QUEUE = '{"brokerName":"broker-a","queueId":1,"topic":"orders"}'
TABLE = f"{{{QUEUE}:17,{QUEUE.replace('1', '2')}:0}}"


def ask(peer: Peer, dispatcher: Dispatcher, members: int) -> Peer:
    """Ask for the status of a group with members on one connection, and return that connection."""
    consumer = Peer(dispatcher)
    for number in range(members):
        consumer.heartbeat(f"client{number}", "consumers", "orders")
    assert peer.ask_later(STATUS, ASKED) == []
    return consumer


def answer_all(consumer: Peer, body: bytes) -> None:
    """Answer all questions for a status with the same body."""
    for question in [one for one in consumer.sent if one.code == RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT]:
        consumer.channel.deliver_answer(question.reply(ResponseCode.SUCCESS, body=body))


@pytest.mark.parametrize(
    "body",
    [
        f'{{"consumerTable":{{}},"messageQueueTable":{TABLE}}}',
        f'{{"messageQueueTable":{TABLE},"consumerTable":{{}}}}',
        f' {{ "messageQueueTable" : {TABLE} }}\n',
    ],
)
def test_the_answer_contains_the_offsets_of_all_members(peer: Peer, dispatcher: Dispatcher, body: str) -> None:
    consumer = ask(peer, dispatcher, 2)
    answer_all(consumer, body.encode())
    answer = peer.sent[-1]
    assert (answer.code, bytes(answer.body).decode()) == (
        ResponseCode.SUCCESS,
        f'{{"consumerTable":{{"client0":{TABLE},"client1":{TABLE}}},"messageQueueTable":{{}}}}',
    )
    assert dispatcher.broker.kept_answers.total == 0


@pytest.mark.parametrize(
    ("table", "is_taken"),
    [
        ("{}", True),
        ("{ }", True),
        ('{"a text":1}', True),
        ('{"a \\" text\\u00e9":-1 , "ä":0}', True),
        (f"{{{QUEUE}:9223372036854775807}}", True),
        ("[]", False),
        ('{"a":[]}', False),
        ('{"a":{}}', False),
        ('{"a":1.5}', False),
        ('{"a":01}', False),
        ('{"a":1,}', False),
        ('{"a\n":1}', False),
        ('{"a\\x":1}', False),
        ('{{"a":{}}:1}', False),
        ("{{}:1}", False),
        (f"{{{QUEUE}:{'9' * 20}}}", False),
        ('{"a":1}}', False),
        ('{"a":1', False),
    ],
)
def test_only_tables_of_offsets_are_passed_on(table: str, is_taken: bool) -> None:
    body = f'{{"messageQueueTable":{table}}}'.encode()
    assert parse_member_offsets(body) == (table.encode() if is_taken else b"{}")
    if is_taken:
        parse_fastjson(body)


@pytest.mark.parametrize("body", [b"", b"{}", b"null", b"\xff", b'{"messageQueueTable":{"\xff":1}}', b'{"other":{}}'])
def test_other_answers_count_as_no_offsets(body: bytes) -> None:
    assert parse_member_offsets(body) == b"{}"


@pytest.mark.parametrize(
    "piece", [b"[],", b'{"a":', b'"', b'"a":1,', b"\\", b" ", b"{{", b'{"a":1,', b'{"a":"b"}:1,', b"1"]
)
def test_a_large_answer_of_any_kind_is_checked_quickly(piece: bytes) -> None:
    body = b'{"messageQueueTable":{' + piece * (MAX_STATUS_BYTES // len(piece) - 20)
    for whole in (body, body + b'"a":1}}'):
        assert takes_at_most(0.25, partial(parse_member_offsets, whole))  # linear in its size; 10 ms are usual


def test_an_answer_that_is_too_large_is_an_error_at_once(peer: Peer, dispatcher: Dispatcher) -> None:
    consumer = ask(peer, dispatcher, 40)
    table = ",".join(f'"{number:032d}":1' for number in range(6000))
    questions = [one for one in consumer.sent if one.code == RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT]
    assert len(questions) == 40
    for question in questions[:30]:
        body = f'{{"messageQueueTable":{{{table}}}}}'.encode()
        consumer.channel.deliver_answer(question.reply(ResponseCode.SUCCESS, body=body))
        assert dispatcher.broker.kept_answers.total <= 4 << 20
    assert [(answer.code, "expected at most 4194304 bytes" in str(answer.remark)) for answer in peer.sent] == [
        (ResponseCode.SYSTEM_ERROR, True)
    ]
    answer_all(consumer, b"{}")
    assert len(peer.sent) == 1
    assert dispatcher.broker.kept_answers.total == 0


def test_nothing_is_kept_for_a_client_that_has_left(peer: Peer, dispatcher: Dispatcher) -> None:
    consumer = ask(peer, dispatcher, 3)
    questions = [one for one in consumer.sent if one.code == RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT]
    body = f'{{"messageQueueTable":{TABLE}}}'.encode()
    consumer.channel.deliver_answer(questions[0].reply(ResponseCode.SUCCESS, body=body))
    assert dispatcher.broker.kept_answers.total == len(TABLE)
    peer.channel.on_connection_lost()
    consumer.channel.deliver_answer(questions[1].reply(ResponseCode.SUCCESS, body=body))
    assert dispatcher.broker.kept_answers.total == 0
    consumer.channel.deliver_answer(questions[2].reply(ResponseCode.SUCCESS, body=body))
    assert (peer.sent, dispatcher.broker.kept_answers.total) == ([], 0)


def test_a_group_with_too_many_members_is_not_asked(
    peer: Peer, dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("commitlake.broker_lite.handlers.forwarded_requests.MAX_MEMBERS_ASKED", 20)
    consumers = [Peer(dispatcher) for _ in range(3)]
    for number in range(21):
        consumers[number // 8].heartbeat(f"client{number}", "consumers", "orders")
    answer = peer.ask(STATUS, ASKED)
    assert (answer.code, "members asked at once" in str(answer.remark)) == (ResponseCode.SYSTEM_ERROR, True)
    codes = {command.code for consumer in consumers for command in consumer.sent}
    assert RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT not in codes
    assert len(dispatcher.broker.relayed) == 0
    assert peer.ask_later(STATUS, ASKED | {"clientAddr": "client7"}) == []
    assert consumers[0].sent[-1].code == RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT


def test_members_are_asked_without_the_other_fields_of_the_request(peer: Peer, dispatcher: Dispatcher) -> None:
    consumer = Peer(dispatcher)
    consumer.heartbeat("one", "consumers", "orders")
    assert peer.ask_later(STATUS, ASKED | {"more": "x" * 60_000}) == []
    assert consumer.sent[-1].ext_fields == ASKED
