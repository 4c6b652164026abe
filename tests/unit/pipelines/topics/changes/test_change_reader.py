"""Tests of what all formats of change events share: the source's table and key, and values of the topic's schema."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from commitlake.pipelines.topics.changes.canal import CANAL
from commitlake.pipelines.topics.changes.change_reader import CHANGE_FORMATS, ChangeReader
from commitlake.pipelines.topics.json_schema import parse_json_schema
from tests.support.change_events import CanalConnector, Connector, DebeziumConnector, MaxwellConnector

SCHEMA = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "region": {"type": "string"}, "open": {"type": "boolean"}},
}
READER = ChangeReader(CANAL, parse_json_schema(json.dumps(SCHEMA), "test"), "shop*.orders")
ORDERS = {
    "type": "object",
    "required": ["id"],
    "properties": {
        "id": {"type": "integer"},
        "name": {"type": "string"},
        "total": {"type": "number"},
        "at": {"type": "string", "format": "date-time"},
    },
}
HOSTILE: list[object] = [
    None,
    True,
    -1,
    1.5,
    1 << 70,
    "",
    "a",
    "\u0000",
    "9" * 5_000,
    [],
    [[]],
    [None],
    {},
    {"fields": [{}]},
    {"a": {"a": 1}},
]
ROW: list[object] = [{"id": "1", "region": "n"}]


def judged(reader: ChangeReader, **others: object) -> Any:
    """Return the only change of an insert, or the reason and the field at fault."""
    found = reader.judge_body(CanalConnector().event("INSERT", others.pop("data", ROW), **others))  # type: ignore[arg-type]
    if found.misfit is not None:
        return (found.misfit.reason, found.misfit.field)
    assert found.text is not None
    (change,) = json.loads(found.text)["changes"]
    return change


@pytest.mark.parametrize("name", CHANGE_FORMATS)
def test_readers_of_all_formats_can_be_sent_to_tasks(name: str) -> None:
    reader = replace(READER, format=CHANGE_FORMATS[name])
    assert pickle.loads(pickle.dumps(reader)) == reader


@pytest.mark.parametrize("name", CHANGE_FORMATS)
@pytest.mark.parametrize("body", [b"[]", b"5", b"{", b'{"database":"shop"}', b"\xff", b'{"op":"\\ud800"}', b"[" * 9999])
def test_bodies_that_are_no_events_are_misfits(name: str, body: bytes) -> None:
    assert replace(READER, format=CHANGE_FORMATS[name]).judge_body(body).misfit is not None


@pytest.mark.parametrize(
    ("database", "table", "is_read"),
    [
        ("shop", "orders", True),
        ("shop_7", "orders", True),
        ("shop", "carts", False),
        ("shop", "", True),
        ("x", "", False),
    ],
)
def test_pattern_of_the_source_table(database: str, table: str, is_read: bool) -> None:
    found = judged(READER, database=database, table=table)
    assert found == ("other_table", "table") or is_read


def test_key_of_the_event_is_checked() -> None:
    reader = replace(READER, key=("region", "id"))
    assert judged(reader, pkNames=["id", "region"])["_primary_key"] == ["id", "region"]
    assert judged(reader, pkNames=None)["_primary_key"] is None
    assert judged(reader, pkNames=["id"]) == ("other_key", "")


def test_rows_have_a_value_of_the_key_of_the_event() -> None:
    assert judged(READER, pkNames=["id"], data=[{"region": "n"}]) == ("missing", "data[0].id")
    # A key that the schema lacks cannot be checked.
    assert judged(READER, pkNames=["no"], data=[{"region": "n"}])["_primary_key"] == ["no"]


@pytest.mark.parametrize("names", ["id", [1], [["id"]], [None]])
def test_wrong_names_of_a_key_are_misfits(names: object) -> None:
    reason, field = judged(READER, pkNames=names)
    assert field == "pkNames"
    assert reason in {"no_change", "wrong_type"}


@pytest.mark.parametrize(("value", "expected"), [("1", True), (0, False), ("true", True), (True, True)])
def test_booleans_may_be_numbers(value: object, expected: bool) -> None:
    assert judged(READER, data=[{"open": value}], pkNames=None)["after"] == {"open": expected}


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each list or object in a value, with each index or name in it."""
    for place in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, place
        yield from places(value[place])


@pytest.mark.parametrize(
    "connector",
    [
        CanalConnector(), DebeziumConnector(has_schemas=True), DebeziumConnector(has_schemas=False),
        MaxwellConnector(has_positions=True), MaxwellConnector(has_positions=False),
    ],
)  # fmt: skip
def test_any_value_in_an_event_gives_a_change_or_a_misfit(connector: Connector) -> None:
    schema = parse_json_schema(json.dumps(ORDERS), "test")
    reader = ChangeReader(connector.format, schema, "shop.orders", ("id",), "+08:00")
    old, new = (1, "a", 1.5, "2026-11-20 14:00:00"), (1, "b", None, "2026-11-20 14:00:00")
    misfits = changes = 0
    for body in (*connector.publish(None, old), *connector.publish(old, new), *connector.publish(new, None)):
        event = json.loads(body or b"null")
        for parent, place in list(places(event)):
            kept = parent[place]
            for value in HOSTILE:
                parent[place] = value
                found = reader.judge_body(json.dumps(event).encode(), [json.dumps(value)])
                assert (found.text is None) == (found.misfit is not None)
                changes += 0 if found.text is None else len(json.loads(found.text)["changes"])
                misfits += found.misfit is not None
            parent[place] = kept
    assert (misfits > 50, changes > 50) == (True, True)
