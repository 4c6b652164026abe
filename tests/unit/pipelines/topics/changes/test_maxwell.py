"""Tests of events of Maxwell."""

from __future__ import annotations

import json
from typing import Any

import pytest

from commitlake.pipelines.topics.changes.change_reader import ChangeReader
from commitlake.pipelines.topics.changes.maxwell import MAXWELL
from commitlake.pipelines.topics.json_schema import parse_json_schema
from commitlake.schemas.layouts.integer_parsing import INT64_MAX

SCHEMA = {
    "type": "object",
    "required": ["id"],
    "properties": {
        "id": {"type": "integer"},
        "m": {"type": "number"},
        "c": {"type": "string", "format": "date-time"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "open": {"type": "boolean"},
    },
}
READER = ChangeReader(MAXWELL, parse_json_schema(json.dumps(SCHEMA), "test"), "test.e", ("id",), "+08:00")
ROW = {"id": 1, "m": 4.2341, "c": "2016-10-21 05:33:37.523000"}
INSERT = {"database": "test", "table": "e", "type": "insert", "ts": 1_477_053_217, "xid": 23_396, "data": ROW}
VALUES = {"id": 1, "m": 4.2341, "c": "2016-10-21T05:33:37.523000+08:00"}


def change(**others: object) -> dict[str, Any]:
    """Return the change of an event that fits."""
    judged = READER.judge_body(json.dumps({**INSERT, **others}).encode())
    assert judged.misfit is None
    assert judged.text is not None
    (found,) = json.loads(judged.text)["changes"]
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize(("kind", "op"), [("insert", "insert"), ("bootstrap-insert", "snapshot")])
def test_row_after_a_change(kind: str, op: str) -> None:
    found = change(type=kind, data={**ROW, "tags": ["a", "b"], "open": 1, "new": None})
    assert (found["_op"], found["before"], found["after"]) == (op, None, {**VALUES, "tags": ["a", "b"], "open": True})
    assert (found["_event_time"], found["_transaction"]) == ("2016-10-21T12:33:37.000Z", "23396")
    assert (found["_unknown"], found["_primary_key"]) == ({"new": "null"}, None)


def test_row_before_an_update_has_the_unchanged_values() -> None:
    found = change(type="update", old={"id": 7, "m": None})
    assert (found["before"], found["after"]) == ({"id": 7, "c": VALUES["c"]}, VALUES)


def test_update_without_old_values_changes_nothing() -> None:
    found = change(type="update")
    assert (found["before"], found["after"]) == (VALUES, VALUES)


def test_row_before_a_delete() -> None:
    found = change(type="delete", primary_key_columns=["id"])
    assert (found["before"], found["after"], found["_primary_key"]) == (VALUES, None, ["id"])


@pytest.mark.parametrize(
    ("others", "order"),
    [
        ({}, [0, 1_477_053_217_000, 23_396, 0]),
        ({"xoffset": 3}, [0, 1_477_053_217_000, 23_396, 3]),
        ({"commit": True}, [0, 1_477_053_217_000, 23_396, INT64_MAX]),
        ({"position": "master.000006:800911", "xoffset": 3}, [1, 6, 800_911, 3]),
        ({"position": "master.000006:800911", "commit": True}, [1, 6, 800_911, INT64_MAX]),
        ({"xid": None, "type": "bootstrap-insert"}, [0, 1_477_053_217_000, 0, 0]),
    ],
)
def test_order_of_changes(others: dict[str, object], order: list[int]) -> None:
    assert change(**others)["_order"] == order


def test_statements_are_rows() -> None:
    found = change(type="table-alter", ts=1_477_053_126_000, sql="alter table e add x int", data=None, old={"id": 5})
    assert (found["_op"], found["_sql"], found["before"]) == ("ddl", "alter table e add x int", None)
    assert found["_event_time"] == "2016-10-21T12:32:06.000Z"
    whole = change(type="database-drop", table=None, sql="drop database test")
    assert (whole["_op"], whole["_source_table"]) == ("ddl", None)


@pytest.mark.parametrize("kind", ["bootstrap-start", "bootstrap-complete"])
def test_borders_of_a_bootstrap_change_nothing(kind: str) -> None:
    found = change(type=kind, data={})
    assert (found["_op"], found["before"], found["after"]) == ("control", None, None)


@pytest.mark.parametrize(
    ("others", "reason", "field"),
    [
        ({"data": None}, "missing", "data"),
        ({"data": [ROW]}, "no_change", "data"),
        ({"data": {"m": 1}}, "missing", "data.id"),
        ({"data": {**ROW, "c": "0000-00-00 00:00:00"}}, "out_of_range", "data.c"),
        ({"data": {**ROW, "id": 1 << 63}}, "out_of_range", "data.id"),
        ({"type": "update", "old": [ROW]}, "no_change", "old"),
        ({"type": "update", "old": {"id": None}}, "missing", "old.id"),
        ({"type": "merge"}, "no_change", "type"),
        ({"type": None}, "missing", "type"),
        ({"ts": None}, "missing", "ts"),
        ({"ts": 1 << 60}, "no_change", "ts"),
        ({"xid": "a"}, "no_change", "xid"),
        ({"position": "master:5"}, "no_change", "position"),
        ({"position": 5}, "no_change", "position"),
        ({"position": f"master.000006:{1 << 63}"}, "no_change", "position"),
        ({"primary_key_columns": "id"}, "no_change", "primary_key_columns"),
        ({"primary_key_columns": ["m"]}, "other_key", ""),
        ({"table": "f"}, "other_table", "table"),
        ({"data": None, "encrypted": {"iv": "", "bytes": ""}}, "missing", "data"),
    ],
)
def test_other_events_are_misfits(others: dict[str, object], reason: str, field: str) -> None:
    judged = READER.judge_body(json.dumps({**INSERT, **others}).encode())
    assert judged.misfit is not None
    assert (judged.text, judged.misfit.reason, judged.misfit.field) == (None, reason, field)
