"""Dead letters by cause, compared with a plain loop over the sent messages."""

from __future__ import annotations

import datetime
import json
from collections import Counter

import pytest

from commitlake.connectors.lake.packs.pack_stores import open_pack_store
from commitlake.pipelines.dead_letters import causes
from commitlake.pipelines.dead_letters.causes import (
    MAX_BODY_BYTES,
    MAX_PATHS,
    GroupCount,
    count_dead_letters_by_group,
    describe_body_shape,
    group_by_cause,
)
from commitlake.pipelines.replay import origin_properties
from commitlake.schemas.layouts.rocketmq.commitlog import NewMessage
from commitlake.schemas.selection import Selection
from tests.support.lakes import MIDNIGHT_MS, GrowingLake
from tests.support.logs import new_message

HOSTILE = "it's $x^2$ \\ <b>"


def dead(
    number: int, group: str, origin: str | None, tag: str | None, attempts: int, body: bytes = b"body", **more: str
) -> NewMessage:
    named = {"RETRY_TOPIC": origin, "TAGS": tag, **more}
    return new_message(
        number,
        topic=f"%DLQ%{group}",
        queue_id=0,
        body=body,
        born_timestamp=MIDNIGHT_MS + 60_000 * number,
        reconsume_times=attempts,
        properties=tuple((name, value) for name, value in named.items() if value is not None),
    )


SENT = [
    dead(0, "shipping", "orders", "paid", 17),
    dead(1, "shipping", "orders", "paid", 17, b'{"id": 1}', KEYS="order-1"),
    dead(2, "shipping", "orders", "paid", 1, REPLAY_ID="r"),  # given up at once, after a replay
    dead(3, "shipping", "payments", None, 17),
    dead(4, "shipping", None, None, 17),  # no property names the topic
    dead(5, HOSTILE, HOSTILE, HOSTILE, 3, EXCEPTION="x" * 500),
    dead(6, HOSTILE, HOSTILE, HOSTILE, 3, error="x" * 300),  # the same by its first 200 characters
]


@pytest.fixture(scope="module")
def growing(tmp_path_factory: pytest.TempPathFactory) -> GrowingLake:
    """These, and messages that are no dead letters."""
    growing = GrowingLake(tmp_path_factory.mktemp("dead"))
    growing.write([*SENT, new_message(7, topic="orders", born_timestamp=MIDNIGHT_MS)])
    growing.archive()
    return growing


def test_a_cause_is_group_topic_tag_attempts_and_reason(growing: GrowingLake) -> None:
    found = group_by_cause(growing.lake)
    counts = {(one.group, one.topic, one.tag, one.attempts, one.reason): one.messages for one in found.causes}
    expected: Counter[tuple[str, str | None, str | None, int, str | None]] = Counter()
    for message in SENT:
        named = dict(message.properties)
        reason = named.get("EXCEPTION", named.get("error"))
        key = (message.topic.removeprefix("%DLQ%"), named.get("RETRY_TOPIC"), named.get("TAGS"))
        expected[(*key, message.reconsume_times, reason and reason[:200])] += 1
    assert counts == expected
    assert found.messages == len(SENT)
    assert found.causes[0].messages == 2


def test_a_cause_has_its_times_and_its_newest_message(growing: GrowingLake) -> None:
    found = group_by_cause(growing.lake, Selection(groups=["shipping"]))
    assert {one.group for one in found.causes} == {"shipping"}
    worst = found.causes[0]
    start = datetime.datetime.fromtimestamp(MIDNIGHT_MS / 1000, datetime.UTC)
    assert (worst.first, worst.last) == (start, start + datetime.timedelta(minutes=1))
    assert len(worst.example) == 32


def test_dead_letters_are_selected_by_time_and_store(growing: GrowingLake) -> None:
    start = datetime.datetime.fromtimestamp(MIDNIGHT_MS / 1000, datetime.UTC)
    minute = datetime.timedelta(minutes=1)
    assert group_by_cause(growing.lake, Selection(start=start + minute, end=start + 4 * minute)).messages == 3
    assert group_by_cause(growing.lake, Selection(brokers=["another"])).messages == 0
    assert group_by_cause(growing.lake, Selection(groups=["it's"])).causes == []


def test_causes_beyond_the_limit_are_counted(growing: GrowingLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(causes, "MAX_CAUSES", 2)
    found = group_by_cause(growing.lake)
    assert (len(found.causes), found.messages, found.left_out_count) == (2, len(SENT), 3)


def test_too_many_causes_are_not_distinguished(growing: GrowingLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(causes, "MAX_COUNTED_CAUSES", 2)
    monkeypatch.setattr(causes, "MAX_HOURS", 1)
    found = group_by_cause(growing.lake)
    assert (len(found.causes), found.messages) == (2, len(SENT))
    assert sum(sum(cause.hours.values()) for cause in found.causes) < sum(cause.messages for cause in found.causes)


def test_dead_letters_are_selected_by_topic_tag_key_and_sql(growing: GrowingLake) -> None:
    assert group_by_cause(growing.lake, Selection(topics=["orders", HOSTILE])).messages == 5
    assert group_by_cause(growing.lake, Selection(tags=["paid"])).messages == 3
    assert group_by_cause(growing.lake, Selection(keys=["order-1"])).messages == 1
    assert group_by_cause(growing.lake, Selection(where="reconsume_times < 17")).messages == 3


def test_the_shape_of_a_body_is_part_of_its_cause(growing: GrowingLake) -> None:
    found = group_by_cause(growing.lake, packs=open_pack_store(growing.lake.packs), max_samples=5)
    paid = {one.shape: one for one in found.causes if one.tag == "paid" and one.attempts == 17}
    assert set(paid) == {"id:number", "(text)"}
    assert len({one.digest for one in found.causes}) == len(found.causes)
    assert [sample.body for sample in paid["id:number"].samples] == [b'{"id": 1}']
    (hostile,) = (one for one in found.causes if one.group == HOSTILE)
    start = datetime.datetime.fromtimestamp(MIDNIGHT_MS / 1000, datetime.UTC)
    assert hostile.hours == {start: 2}
    assert [sample.stored_at.minute for sample in hostile.samples] == [6, 5]


def test_messages_that_died_again_after_a_replay_are_counted(growing: GrowingLake) -> None:
    assert {one.replayed for one in group_by_cause(growing.lake).causes if one.tag != "paid"} == {0}
    assert sum(one.replayed for one in group_by_cause(growing.lake).causes) == 1


def test_rows_of_earlier_versions_have_the_same_causes(growing: GrowingLake, monkeypatch: pytest.MonkeyPatch) -> None:
    found = group_by_cause(growing.lake)
    monkeypatch.setattr(origin_properties, "ORIGIN_COLUMN", "not_there")
    assert group_by_cause(growing.lake) == found


def test_groups_are_counted_from_minutes(growing: GrowingLake) -> None:
    assert count_dead_letters_by_group(growing.lake) == [
        GroupCount("broker-a", HOSTILE, 2),
        GroupCount("broker-a", "shipping", 5),
    ]


@pytest.mark.parametrize(
    ("value", "shape"),
    [
        ({"b": 1, "a": "x"}, "a:string, b:number"),
        ({"b": 2.5, "a": "y"}, "a:string, b:number"),
        ({"customer": {"name": "A", "id": None}}, "customer.id:null, customer.name:string"),
        ({"items": [{"sku": "x"}, {"sku": None}]}, "items[].sku:null|string"),
        ({"a": True, "b": [], "c": {}}, "a:boolean, b:array, c:object"),
        ({"a": {"b": {"c": {"d": {"e": {"f": 1}}}}}}, "a.b.c.d.e:object"),  # no deeper
        ([[1, "x"]], "[][]:number|string"),
        (7, "number"),
        ("x", "string"),
        # Names that are ids are one name.
        ({"4711": {"n": 1}, "4712": {"n": 2}}, "*.n:number"),
        ({"0f8fad5b-d9cb-469f-a165-70867728950e": 1, "deadbeef00112233": 1}, "*:number"),
        ({"deadbeef": 1}, "deadbeef:number"),
        ({"x" * 60: 1}, "x" * 40 + "…:number"),
        ({"\ud800": 1}, "\\ud800:number"),
    ],
)  # fmt: skip
def test_a_shape_has_sorted_paths_with_types(value: object, shape: str) -> None:
    assert describe_body_shape(json.dumps(value).encode()) == shape


@pytest.mark.parametrize(
    ("body", "shape"),
    [
        (None, "(none)"),
        (b"", "(empty)"),
        (b"hello", "(text)"),
        (b'{"a": 1', "(text)"),
        (b"\xff\x00\x01", "(binary)"),
        (b"a\x00b", "(binary)"),
        (b"[" * 100_000, "(text)"),
        (b'{"n": ' + b"9" * 5000 + b"}", "n:number"),
        (b" " * (MAX_BODY_BYTES + 1), "(large)"),
    ],
)
def test_bodies_that_are_not_json_have_the_shape_of_their_kind(body: bytes | None, shape: str) -> None:
    assert describe_body_shape(body) == shape


def test_a_shape_is_bounded() -> None:
    many = {f"name{chr(97 + number // 26)}{chr(97 + number % 26)}": 1 for number in range(100)}
    shape = describe_body_shape(json.dumps(many).encode())
    assert shape.endswith(f", and {100 - MAX_PATHS} more")
    wide: object = 1
    for _ in range(5):
        wide = [wide] * 16
    assert describe_body_shape(json.dumps(wide).encode()) in {"[][][][][]:number", "(large)"}


@pytest.mark.parametrize(
    ("time_us", "expected"),
    [
        (0, datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)),
        (-(1 << 62), datetime.datetime.min.replace(tzinfo=datetime.UTC)),
        (1 << 62, datetime.datetime.max.replace(tzinfo=datetime.UTC)),
    ],
)
def test_a_time_of_a_wrong_clock_is_shown_as_the_nearest_date(time_us: int, expected: datetime.datetime) -> None:
    assert causes._to_datetime(time_us) == expected
