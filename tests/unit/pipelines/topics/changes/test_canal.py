"""Tests of events of Canal: what becomes a change, and what is wrong with the others."""

from __future__ import annotations

import json
from typing import Any

import pytest

from commitlake.pipelines.topics.changes.canal import CANAL
from commitlake.pipelines.topics.changes.change_reader import ChangeReader
from commitlake.pipelines.topics.json_schema import parse_json_schema
from tests.support.change_events import CanalConnector

SCHEMA = {
    "type": "object",
    "required": ["id"],
    "properties": {
        "id": {"type": "integer"},
        "open": {"type": "boolean"},
        "at": {"type": "string", "format": "date-time"},
        "more": {"type": "object", "properties": {"a": {"type": "number"}}},
        "card": {"type": "string"},
    },
}
READER = ChangeReader(
    CANAL, parse_json_schema(json.dumps(SCHEMA), "test"), "shop*.orders", ("id",), "+08:00", drop=frozenset({"card"})
)


def changes(body: bytes) -> list[dict[str, Any]]:
    """Return the changes of a body that fits."""
    judged = READER.judge_body(body)
    assert judged.misfit is None
    assert judged.text is not None
    found: list[dict[str, Any]] = json.loads(judged.text)["changes"]
    return found


def test_texts_become_values_of_the_schema() -> None:
    row = {"id": "1", "open": "0", "at": "2026-11-20 14:00:00.5", "more": '{"a":1.50}', "card": "4711", "new": "x"}
    (change,) = changes(CanalConnector().event("INSERT", [row]))
    assert change["after"] == {"id": 1, "open": False, "at": "2026-11-20T14:00:00.5+08:00", "more": {"a": 1.5}}
    assert (change["before"], change["_unknown"], change["_op"]) == (None, {"new": '"x"'}, "insert")


def test_row_before_an_update_has_the_unchanged_values() -> None:
    (change,) = changes(CanalConnector().event("UPDATE", [{"id": "1", "open": "1"}], [{"open": None}]))
    assert (change["before"], change["after"]) == ({"id": 1}, {"id": 1, "open": True})


@pytest.mark.parametrize(
    ("kind", "data", "others", "reason", "field"),
    [
        ("INSERT", [{"open": "1"}], {}, "missing", "data[0].id"),
        ("INSERT", [{"id": None}], {}, "missing", "data[0].id"),
        ("INSERT", [{"id": "1"}, {"id": "x"}], {}, "wrong_type", "data[1].id"),
        ("INSERT", [{"id": "1", "more": "{"}], {}, "not_json", "data[0].more"),
        ("INSERT", [{"id": "1", "at": "0000-00-00 00:00:00"}], {}, "out_of_range", "data[0].at"),
        ("INSERT", {"id": "1"}, {}, "no_change", "data"),
        ("INSERT", [], {}, "no_change", "data"),
        ("INSERT", [{"id": "1"}], {"es": "soon"}, "no_change", "es"),
        ("INSERT", [{"id": "1"}], {"es": 1 << 62}, "no_change", "es"),
        ("INSERT", [{"id": "1"}], {"table": "carts"}, "other_table", "table"),
        ("INSERT", [{"id": "1"}], {"gtid": 5}, "no_change", "gtid"),
        ("UPDATE", [{"id": "1"}], {}, "missing", "old"),
        ("UPDATE", [{"id": "1"}], {"old": [{}, {}]}, "no_change", "old"),
        ("UPDATE", [{"id": "1"}], {"old": [{"id": None}]}, "missing", "old[0].id"),
        ("MERGE", [{"id": "1"}], {}, "no_change", "type"),
    ],
)
def test_other_events_are_misfits(kind: str, data: Any, others: dict[str, Any], reason: str, field: str) -> None:
    judged = READER.judge_body(CanalConnector().event(kind, data, **others))
    assert judged.misfit is not None
    assert (judged.text, judged.misfit.reason, judged.misfit.field) == (None, reason, field)


@pytest.mark.parametrize("body", [b"[]", b"5", b"{", b"null", b'{"database":"shop"}', b"\xff", b'{"table":"\\ud800"}'])
def test_bodies_that_are_no_events_are_misfits(body: bytes) -> None:
    assert READER.judge_body(body).misfit is not None


def test_half_of_a_surrogate_pair_is_a_misfit() -> None:
    body = CanalConnector().event("ALTER", None).replace(b'"sql": ""', b'"sql": "\\ud800"')
    judged = READER.judge_body(body)
    assert judged.misfit is not None
    assert (judged.misfit.reason, judged.misfit.field) == ("out_of_range", "sql")
