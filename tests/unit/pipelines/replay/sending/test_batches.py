"""Messages as batches: the protocol's own parser reads the batches of the compiled code."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitlake.pipelines.replay.origin_properties import BROKERS_OWN, DELAYS, ORIGIN_PROPERTIES
from commitlake.pipelines.replay.sending.batches import EncodedPart, encode_part
from commitlake.schemas.layouts.rocketmq.properties import MAX_SIZE, parse_properties
from commitlake.schemas.remoting.batch import parse_batch
from tests.support.hypothesis_profiles import load
from tests.support.replays import rows_of

load()

texts = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1, max_size=8)
messages = st.tuples(
    st.dictionaries(texts, texts, max_size=4), st.binary(max_size=20), st.integers(-(2**31), 2**31 - 1)
)


def encode(rows: pa.Table, bodies: list[bytes]) -> EncodedPart:
    return encode_part(rows, pa.array(bodies, pa.large_binary()), "R1")


@given(st.lists(messages, min_size=1, max_size=6))
def test_the_protocols_parser_reads_every_message(given_messages: list[tuple[dict[str, str], bytes, int]]) -> None:
    properties, bodies, flags = zip(*given_messages, strict=True)
    part = encode(rows_of(list(properties), list(flags)), list(bodies))
    items = parse_batch(bytes(part.data))
    assert [item.body for item in items] == list(bodies)
    assert [item.flag for item in items] == list(flags)
    for item, found in zip(items, properties, strict=True):
        kept = {
            name: value for name, value in found.items() if name not in BROKERS_OWN | DELAYS | set(ORIGIN_PROPERTIES)
        }
        sent = dict(parse_properties(item.properties))
        assert {name: value for name, value in sent.items() if name not in ORIGIN_PROPERTIES} == kept


def test_a_message_has_properties_of_its_origin() -> None:
    part = encode(rows_of([{"KEYS": "order-1"}, {}]), [b"a", b"b"])
    sent = [dict(parse_properties(item.properties)) for item in parse_batch(bytes(part.data))]
    assert sent[1] == {
        "REPLAY_ID": "R1",
        "ORIGIN_MSG_ID": "ID1",
        "ORIGIN_TOPIC": "orders",
        "ORIGIN_QUEUE_ID": "1",
        "ORIGIN_STORE_TIMESTAMP": "1794924000123",
        "ORIGIN_BORN_TIMESTAMP": "1794923999123",
        "ORIGIN_BROKER": "broker-a",
        "ORIGIN_PHYSICAL_OFFSET": "100",
    }
    assert sent[0]["KEYS"] == "order-1"


def test_properties_of_brokers_and_earlier_replays_are_not_sent() -> None:
    own = dict.fromkeys(sorted(BROKERS_OWN | DELAYS), "1") | {"REPLAY_ID": "R0", "ORIGIN_TOPIC": "other"}
    part = encode(rows_of([own | {"UNIQ_KEY": "U", "TAGS": "paid", "mine": "x"}]), [b"a"])
    (item,) = parse_batch(bytes(part.data))
    sent = parse_properties(item.properties)
    assert dict(sent) | {"REPLAY_ID": "R1", "ORIGIN_TOPIC": "orders"} == dict(sent)
    assert {name for name, _ in sent} == {"UNIQ_KEY", "TAGS", "mine", *ORIGIN_PROPERTIES}
    assert len(sent) == len(dict(sent))


def test_keys_and_tags_become_properties() -> None:
    rows = rows_of([{}], format="jmq", keys=["order-1", "order-2"], tags="7")
    (item,) = parse_batch(bytes(encode(rows, [b"a"]).data))
    sent = dict(parse_properties(item.properties))
    assert (sent["KEYS"], sent["TAGS"]) == ("order-1 order-2", "7")


def test_properties_without_room_are_named() -> None:
    part = encode(rows_of([{}, {"long": "x" * (MAX_SIZE - 100)}, {}]), [b"a", b"b", b"c"])
    assert list(part.refused) == [1]


@pytest.mark.parametrize(
    ("properties", "others"),
    [
        ({"mine": "x\x02REPLAY_ID\x01R0"}, {}),
        ({"mine\x02REPLAY_ID": "R0"}, {}),
        ({"mine\x01x": "y"}, {}),
        ({}, {"topic": "orders\x02ORIGIN_TOPIC\x01pay"}),
        ({}, {"keys": ["order-1", "k\x02ORIGIN_PHYSICAL_OFFSET\x017"], "format": "jmq"}),
        ({}, {"tags": "t\x02DELAY\x013", "format": "jmq"}),
    ],
)
def test_a_text_that_would_add_a_property_is_not_sent(properties: dict[str, str], others: dict[str, object]) -> None:
    rows = pa.concat_tables([rows_of([{"a": "b\x01c"}]), rows_of([properties], None, **others)])
    part = encode(rows, [b"a", b"b"])
    assert list(part.refused) == [1]
    assert "0x01 or 0x02" in part.refused[1]


@pytest.mark.parametrize(("max_bytes", "max_messages"), [(1, 100), (400, 100), (10**6, 3), (10**6, 100)])
def test_batches_keep_the_order_and_their_limits(max_bytes: int, max_messages: int) -> None:
    bodies = [bytes([number]) * (number % 5 * 20) for number in range(20)]
    part = encode(rows_of([{}] * 20), bodies)
    rows = np.array([1, 2, 3, 5, 8, 9, 10, 11, 19])
    batches = list(part.iterate_batches(rows, max_bytes, max_messages))
    assert [row for batch in batches for row in batch.rows.tolist()] == rows.tolist()
    for batch in batches:
        body = batch.body()
        assert [item.body for item in parse_batch(body)] == [bodies[row] for row in batch.rows]
        assert len(batch) == 1 or (len(body) <= max_bytes and len(batch) <= max_messages)
    for first, second in pairwise(batches):
        assert len(first) == max_messages or len(first.body()) + len(next(second.split_by_message()).body()) > max_bytes


def test_messages_of_one_batch_have_one_compression() -> None:
    rows = rows_of([{}] * 4)
    flags = pa.array([0, 0x101, 0x101, 0x10], pa.int32())
    part = encode(rows.set_column(rows.schema.get_field_index("sys_flag"), "sys_flag", flags), [b"a"] * 4)
    batches = list(part.iterate_batches(np.arange(4), 10**6, 100))
    assert [(batch.sys_flag, batch.rows.tolist()) for batch in batches] == [(0, [0]), (0x101, [1, 2]), (0, [3])]


def test_messages_can_be_removed_from_a_batch() -> None:
    part = encode(rows_of([{}] * 4), [b"a", b"b", b"c", b"d"])
    (batch,) = part.iterate_batches(np.arange(4), 10**6, 100)
    assert [item.body for item in parse_batch(batch.drop_rows([0, 2]).body())] == [b"b", b"d"]
