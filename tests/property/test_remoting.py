"""Any bytes from the network are a value or a documented error, and written values read back equal."""

from __future__ import annotations

import contextlib
import zlib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from commitlake.connectors.rocketmq.pending_requests import PendingRequests
from commitlake.schemas.layouts.errors import LayoutError
from commitlake.schemas.remoting.batch import BatchItem, parse_batch, serialize_batch
from commitlake.schemas.remoting.errors import BodyError, CommandError
from commitlake.schemas.remoting.ext_fields import from_ext_fields, to_ext_fields
from commitlake.schemas.remoting.fastjson import parse_fastjson, serialize_compact
from commitlake.schemas.remoting.frames import Command, Language, SerializeType, parse_command, serialize_command
from commitlake.schemas.remoting.headers import PullMessageRequest, SendMessageRequest
from commitlake.schemas.remoting.heartbeats import ConsumerConnection, Heartbeat, LockBatch
from commitlake.schemas.remoting.json_fields import parse_body, serialize_body
from commitlake.schemas.remoting.routes import MessageQueue, TopicRoute
from commitlake.schemas.remoting.statistics_bodies import ConsumerRunningInfo, ConsumeStats, QueueOffsetPair
from tests.support.hypothesis_profiles import load
from tests.support.registrations import parse_registration

load()

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
INTS = st.integers(-(1 << 31), (1 << 31) - 1)
SHORTS = st.integers(-(1 << 15), (1 << 15) - 1)
LONGS = st.integers(-(1 << 63), (1 << 63) - 1)
COMMANDS = st.builds(
    Command,
    code=SHORTS,
    ext_fields=st.dictionaries(TEXTS, TEXTS, max_size=5),
    body=st.binary(max_size=50),
    remark=st.none() | TEXTS.filter(bool),
    opaque=INTS,
    flag=INTS,
    language=st.sampled_from(Language),
    version=SHORTS,
    serialize_type=st.sampled_from(SerializeType),
)
SCALARS = INTS | TEXTS | st.booleans() | st.none()
KEYS = (
    LONGS
    | TEXTS.filter(lambda text: not text.startswith("\0"))
    | st.dictionaries(TEXTS, SCALARS, max_size=3).map(lambda found: tuple(found.items()))
)
DOCUMENTS = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=15
)
BODIES = (Heartbeat, TopicRoute, ConsumeStats, LockBatch, ConsumerConnection, ConsumerRunningInfo)
BODY_KEYS = st.sampled_from(
    sorted({key for kind in BODIES for key in ("clientID", "producerDataSet", "consumerDataSet", "queueDatas",
     "brokerDatas", "brokerAddrs", "offsetTable", "mqSet", "groupName", "topic", "queueId", "brokerName", "mqTable",
     "subscriptionTable", "properties", "statusTable", "connectionSet", "tagsSet", "codeSet")})
)  # fmt: skip
LIKE_BODIES = st.recursive(
    SCALARS | st.floats(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(BODY_KEYS, inner, max_size=6),
    max_leaves=20,
)


@given(command=COMMANDS)
def test_commands_round_trip(command: Command) -> None:
    data = serialize_command(command)
    assert parse_command(data) == (command, len(data))
    assert parse_command(bytearray(b"x" + data + b"y"), 1) == (command, len(data))


@given(command=COMMANDS, cut=st.floats(0, 1, exclude_max=True))
def test_a_cut_command_is_incomplete(command: Command, cut: float) -> None:
    data = serialize_command(command)
    assert parse_command(data[: int(len(data) * cut)]) is None


@given(data=st.binary(max_size=80))
def test_any_bytes_are_a_command_or_a_layout_error(data: bytes) -> None:
    with contextlib.suppress(LayoutError):
        parse_command(data)


@given(header=st.binary(max_size=80) | st.text('{}[]":,code0123extFilds\\ué -.', max_size=80).map(str.encode),
       body=st.binary(max_size=5), serialize_type=st.integers(0, 2))  # fmt: skip
def test_any_header_is_a_command_or_a_layout_error(header: bytes, body: bytes, serialize_type: int) -> None:
    length = 4 + len(header) + len(body)
    data = length.to_bytes(4, "big") + (serialize_type << 24 | len(header)).to_bytes(4, "big") + header + body
    with contextlib.suppress(LayoutError):
        parsed = parse_command(data)
        assert parsed is not None
        assert parsed[1] == len(data)
        again = parse_command(serialize_command(parsed[0]))
        assert again is not None
        if serialize_type == SerializeType.JSON:
            assert again[0] == parsed[0]


@given(command=COMMANDS, position=st.integers(0, 400), value=st.integers(0, 255))
def test_a_command_with_a_wrong_byte_is_a_command_or_a_layout_error(
    command: Command, position: int, value: int
) -> None:
    data = bytearray(serialize_command(command))
    data[position % len(data)] = value
    with contextlib.suppress(LayoutError):
        parse_command(data)


@given(commands=st.lists(COMMANDS, max_size=5), cuts=st.lists(st.integers(1, 60), max_size=40))
def test_an_exchange_reads_the_same_however_the_bytes_arrive(commands: list[Command], cuts: list[int]) -> None:
    data = b"".join(map(serialize_command, commands))
    exchange: PendingRequests[str] = PendingRequests()
    seen: list[Command] = []
    for cut in [*cuts, len(data)]:
        seen += exchange.receive(data[:cut])[1]
        data = data[cut:]
    assert seen == [command for command in commands if not command.is_response]


@given(document=DOCUMENTS)
def test_bodies_round_trip(document: object) -> None:
    assert parse_fastjson(serialize_compact(document)) == document


@given(text=st.text('{}[]",:012-a\\ \n\0é', max_size=60))
def test_any_text_is_a_document_or_a_value_error(text: str) -> None:
    with contextlib.suppress(ValueError):
        parse_fastjson(text)


@given(fields=st.dictionaries(st.sampled_from([*"abcdefghijklmn", "topic", "queueId"]), TEXTS | INTS.map(str)))
def test_any_fields_are_a_header_or_a_header_error(fields: dict[str, str]) -> None:
    for kind, one_letter in ((SendMessageRequest, True), (PullMessageRequest, False)):
        with contextlib.suppress(CommandError):
            header: Any = from_ext_fields(kind, fields, has_one_letter_names=one_letter)
            assert (
                from_ext_fields(
                    kind, to_ext_fields(header, has_one_letter_names=one_letter), has_one_letter_names=one_letter
                )
                == header
            )


@given(document=LIKE_BODIES, kind=st.sampled_from(BODIES))
def test_any_document_is_a_body_or_a_body_error(document: object, kind: Any) -> None:
    with contextlib.suppress(BodyError):
        body = parse_body(kind, serialize_compact(document))
        assert parse_body(kind, serialize_body(body)) == body


QUEUES = st.builds(MessageQueue, TEXTS, TEXTS, INTS)
PROGRESS = st.builds(QueueOffsetPair, LONGS, LONGS, LONGS, pull_offset=st.none() | LONGS)


@given(table=st.dictionaries(QUEUES, PROGRESS))
def test_tables_of_queues_round_trip(table: dict[MessageQueue, QueueOffsetPair]) -> None:
    stats = ConsumeStats(table)
    assert parse_body(ConsumeStats, serialize_body(stats)) == stats


@given(data=st.binary(max_size=60), compressed=st.booleans())
def test_any_document_is_a_registration_or_a_body_error(data: bytes, compressed: bool) -> None:
    for body in (data, zlib.compress(data)):
        with contextlib.suppress(BodyError):
            parse_registration(body, is_compressed=compressed)


ITEMS = st.builds(BatchItem, INTS, st.binary(max_size=20), st.binary(max_size=20))


@given(items=st.lists(ITEMS, max_size=5))
def test_batches_round_trip(items: list[BatchItem]) -> None:
    assert parse_batch(serialize_batch(items)) == items


@given(items=st.lists(ITEMS, max_size=3), position=st.integers(0, 200), value=st.integers(0, 255), more=st.binary())
def test_any_bytes_are_a_batch_or_a_layout_error(
    items: list[BatchItem], position: int, value: int, more: bytes
) -> None:
    data = bytearray(serialize_batch(items) + more)
    if data:
        data[position % len(data)] = value
    with contextlib.suppress(LayoutError):
        parse_batch(data)
