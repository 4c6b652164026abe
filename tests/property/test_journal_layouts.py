"""The law of JMQ's formats: written values read back equal, and any bytes give a value or a documented error."""

from __future__ import annotations

import contextlib
import random
from dataclasses import asdict

from hypothesis import given
from hypothesis import strategies as st

from commitlake.schemas.layouts.errors import LayoutError
from commitlake.schemas.layouts.jmq.consume_records import (
    Consumption,
    DeliveryOutcome,
    parse_consumption,
    serialize_consumption,
)
from commitlake.schemas.layouts.jmq.journal import (
    NewJournalMessage,
    compress_body,
    parse_message,
    serialize_filler,
    serialize_message,
    stored_delay_ms,
)
from commitlake.schemas.layouts.jmq.offset_json import ConsumedQueue, ConsumerPosition, parse_offsets, serialize_offsets
from commitlake.schemas.layouts.jmq.properties import parse_properties, serialize_properties
from commitlake.schemas.layouts.jmq.queue_file import (
    ENTRY,
    JmqQueueEntry,
    MessageIdParts,
    count_valid_entries,
    parse_entry,
    parse_message_id,
    serialize_entry,
    serialize_message_id,
)
from commitlake.schemas.layouts.jmq.scan import JournalScanner
from commitlake.schemas.layouts.rocketmq.hosts import Host
from commitlake.schemas.layouts.rocketmq.scan import Fault, SegmentSpan, SizeLimits, SpanKind
from tests.support.hypothesis_profiles import load
from tests.support.journals import original_body
from tests.support.logs import damage

load()

SIZE = 4096
BYTE, SHORT, LONG = st.integers(0, 255), st.integers(0, 65535), st.integers(0, (1 << 64) - 1)
SIGNED = st.integers(-(1 << 63), (1 << 63) - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
NAMES = TEXTS.filter(bool)
HOSTS = st.builds(Host, st.binary(min_size=4, max_size=4), SHORT)
PAIRS = st.lists(st.tuples(st.text("ab\\=\nü", min_size=1, max_size=5) | NAMES, st.text("ab\\=\nü", max_size=5)))
MESSAGES = st.builds(
    NewJournalMessage,
    topic=NAMES,
    body=st.binary(max_size=300) | st.integers(0, 900).map(lambda size: b"x" * size),
    send_timestamp=SIGNED,
    client_address=HOSTS,
    app=TEXTS,
    business_id=TEXTS,
    business_tag=SHORT,
    priority=BYTE,
    is_compressed=st.booleans(),
    is_ordered=st.booleans(),
    properties=PAIRS,
)
CONSUMPTIONS = st.builds(
    Consumption,
    topic=NAMES,
    queue_id=BYTE,
    queue_offset=LONG,
    journal_offset=LONG,
    app=TEXTS,
    outcome=st.sampled_from(DeliveryOutcome),
    consume_timestamp=SIGNED,
    attempt=SHORT,
    client_address=HOSTS,
)
NEAR = st.one_of(st.binary(max_size=400), st.binary(max_size=300).map(lambda rest: b"\0\0\0\x60\x12\x34" + rest))


@given(MESSAGES, BYTE, LONG, LONG, SIGNED, SIGNED, HOSTS)
def test_any_message_round_trips(
    new: NewJournalMessage, queue_id: int, number: int, offset: int, received: int, stored: int, server: Host
) -> None:
    record = serialize_message(
        new,
        queue_id=queue_id,
        queue_offset=number,
        journal_offset=offset,
        receive_timestamp=received,
        store_timestamp=stored,
        server_address=server,
    )
    parsed = parse_message(record)
    assert parsed is not None
    message, size = parsed
    assert size == len(record)
    for field, value in asdict(new).items():
        if field not in {"properties", "client_address"}:
            assert getattr(message, field) == value, field
    assert message.property_pairs == list(new.properties)
    assert (message.client_address, message.server_address) == (new.client_address, server)
    assert (message.queue_id, message.queue_offset, message.journal_offset) == (queue_id, number, offset)
    assert message.receive_timestamp == new.send_timestamp + stored_delay_ms(received, new.send_timestamp)
    assert message.store_timestamp == new.send_timestamp + stored_delay_ms(stored, new.send_timestamp)


@given(st.binary(max_size=2000))
def test_any_body_round_trips(body: bytes) -> None:
    stored, compressed = compress_body(body)
    new = NewJournalMessage("t", stored, 0, Host.of("1.2.3.4", 5), is_compressed=compressed)
    record = serialize_message(
        new,
        queue_id=0,
        queue_offset=0,
        journal_offset=0,
        receive_timestamp=0,
        store_timestamp=0,
        server_address=new.client_address,
    )
    parsed = parse_message(record)
    assert parsed is not None
    assert original_body(parsed[0]) == body
    assert len(stored) <= len(body)


@given(NEAR, st.integers(0, 10))
def test_any_bytes_give_a_message_or_a_documented_error(data: bytes, offset: int) -> None:
    try:
        parsed = parse_message(data, min(offset, len(data)))
        if parsed is None:
            return
        assert parsed[1] <= len(data)
    except LayoutError as error:
        assert error.expected
        assert error.found


@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_of_the_small_files_give_a_value_or_a_documented_error(data: bytes, near: bool) -> None:
    with contextlib.suppress(LayoutError):
        parse_entry(data.ljust(ENTRY.size, b"\0"))
    with contextlib.suppress(LayoutError):
        parse_consumption(b"\0\x40\xc0\x5e" + data if near else data)
    with contextlib.suppress(LayoutError):
        parse_offsets(data)
    for key, _ in parse_properties(data):
        assert key
    whole = len(data) - len(data) % ENTRY.size
    assert 0 <= count_valid_entries(data[:whole]) <= whole // ENTRY.size


@given(st.text(max_size=40) | st.from_regex(r"[a/@]{1,4}/[0-9]{1,3}/[0-9]{1,4}@[a-z]", fullmatch=True))
def test_any_text_is_an_id_or_a_documented_error(text: str) -> None:
    with contextlib.suppress(LayoutError):
        assert serialize_message_id(parse_message_id(text)) == text


@given(NAMES, BYTE, LONG, NAMES.filter(lambda name: "@" not in name))
def test_any_id_round_trips(topic: str, queue_id: int, number: int, broker: str) -> None:
    place = MessageIdParts(topic, queue_id, number, broker)
    assert parse_message_id(serialize_message_id(place)) == place


@given(PAIRS)
def test_any_properties_round_trip(pairs: list[tuple[str, str]]) -> None:
    assert parse_properties(serialize_properties(pairs)) == pairs


@given(CONSUMPTIONS)
def test_any_consumption_round_trips(consumption: Consumption) -> None:
    record = serialize_consumption(consumption)
    assert parse_consumption(record) == (consumption, len(record))


@given(st.builds(JmqQueueEntry, LONG, st.integers(0, (1 << 32) - 1), SHORT))
def test_any_entry_round_trips(entry: JmqQueueEntry) -> None:
    assert parse_entry(serialize_entry(entry)) == entry


@given(
    st.dictionaries(
        st.builds(ConsumedQueue, TEXTS, TEXTS, BYTE),
        st.builds(lambda a, b, c: ConsumerPosition(min(a, b), max(a, b), c), *[st.integers(0, (1 << 63) - 1)] * 3),
    )
)
def test_any_positions_round_trip(positions: dict[ConsumedQueue, ConsumerPosition]) -> None:
    assert parse_offsets(serialize_offsets(positions, 1)) == (positions, 1)


def journal_file(chance: random.Random, closed: bool) -> tuple[bytes, list[int]]:
    """Return a journal file of random records, and their ends; some bodies hold records with correct offsets."""
    offset, number, out = 0, 0, []
    ends = []
    while True:
        body = chance.randbytes(chance.randrange(200))
        if chance.random() < 0.3:
            inner = NewJournalMessage("fake", b"evil", 0, Host.of("1.2.3.4", 5))
            body = serialized(inner, offset + 67, number) + body
        record = serialized(NewJournalMessage("orders", body, 0, Host.of("1.2.3.4", 5)), offset, number)
        if offset + len(record) + 6 > SIZE:
            break
        out.append(record)
        offset += len(record)
        ends.append(offset)
        number += 1
    data = b"".join(out)
    return (data + serialize_filler(SIZE - len(data)) if closed else data).ljust(SIZE, b"\0"), ends


def serialized(new: NewJournalMessage, offset: int, number: int) -> bytes:
    """Return a record with this journal offset and number in its queue."""
    return serialize_message(
        new,
        queue_id=0,
        queue_offset=number,
        journal_offset=offset,
        receive_timestamp=0,
        store_timestamp=0,
        server_address=new.client_address,
    )


def scan(data: bytes, window: int) -> list[SegmentSpan]:
    """Return all spans of a file, read in windows of a size."""
    scanner, spans, size = JournalScanner(0, SizeLimits(SIZE, len(data))), list[SegmentSpan](), window
    while not scanner.done:
        position = scanner.position
        spans += list(scanner.feed(data[position : position + size]))
        if scanner.position == position:
            size *= 2
    return spans


@given(seed=st.integers(0, 2**32), faults=st.integers(0, 4), window=st.integers(16, SIZE), closed=st.booleans())
def test_every_intact_record_of_a_damaged_file_is_found(seed: int, faults: int, window: int, closed: bool) -> None:
    chance = random.Random(seed)
    whole, ends = journal_file(chance, closed)
    data = whole
    for _ in range(faults):
        data = damage(data, chance)[:SIZE]
    spans = scan(data, window)
    assert spans == scan(data, SIZE)
    assert [span.start for span in spans[1:]] == [span.end for span in spans[:-1]]
    if spans:
        assert (spans[0].start, spans[-1].end) in {(0, len(data)), (0, SIZE)}
    found = {(span.start, span.end) for span in spans if span.kind is SpanKind.RECORD}
    if not faults:
        assert sorted(found) == list(zip([0, *ends], ends, strict=False))
        return
    # A record with unchanged bytes is found, unless a record before it has a plausible size that covers it.
    trusted = [span for span in spans if span.kind is not SpanKind.FAULT or span.fault is Fault.BODY_CRC]
    for start, end in zip([0, *ends], ends, strict=False):
        if data[start:end] == whole[start:end] and (start, end) not in found:
            assert any(span.start < start < span.end for span in trusted)
