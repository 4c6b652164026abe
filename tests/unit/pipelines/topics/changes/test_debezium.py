"""Tests of events of Debezium: envelopes with and without their schema, and what else Debezium sends."""

from __future__ import annotations

import json
from typing import Any

import pytest

from commitlake.pipelines.topics.changes.change_reader import ChangeReader
from commitlake.pipelines.topics.changes.debezium import DEBEZIUM
from commitlake.pipelines.topics.json_schema import parse_json_schema
from tests.support.change_events import DebeziumConnector

SCHEMA = {
    "type": "object",
    "required": ["id", "name"],
    "properties": {
        "id": {"type": "integer"},
        "name": {"type": "string"},
        "total": {"type": ["number", "null"]},
        "at": {"type": ["string", "null"], "format": "date-time"},
    },
}
READER = ChangeReader(
    DEBEZIUM, parse_json_schema(json.dumps(SCHEMA), "test"), "shop.*orders", ("id",), utc_offset="+08:00"
)
PLAIN = DebeziumConnector(has_schemas=False)
WITH_SCHEMA = DebeziumConnector(has_schemas=True)
MYSQL = {"connector": "mysql", "db": "shop", "table": "orders", "ts_ms": 1_600_000_000_000}
POSTGRES = {
    "connector": "postgresql", "db": "shop", "schema": "public", "table": "orders", "ts_ms": 1_600_000_000_000,
    "txId": 556, "lsn": 24_023_128, "xmin": None, "snapshot": "false",
}  # fmt: skip


def change(event: object, keys: list[str] | None = None) -> dict[str, Any]:
    """Return the only change of an event that fits."""
    body = event if isinstance(event, bytes) else json.dumps(event).encode()
    judged = READER.judge_body(body, keys or [])
    assert judged.misfit is None
    assert judged.text is not None
    (found,) = json.loads(judged.text)["changes"]
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("connector", [PLAIN, WITH_SCHEMA])
@pytest.mark.parametrize(("op", "kind"), [("c", "insert"), ("r", "snapshot")])
def test_row_after_a_change(connector: DebeziumConnector, op: str, kind: str) -> None:
    row = connector.row((1, "a", 2.25, "2026-11-20 14:00:00"))
    found = change(connector.event(op, None, row, file="mysql-bin.000003", pos=154, row=2, gtid="u:5"))
    after = found["after"]
    assert (found["_op"], found["before"], after["id"], after["name"], after["total"]) == (kind, None, 1, "a", 2.25)
    assert after["at"] in {"2026-11-20T14:00:00+08:00", "2026-11-20T06:00:00Z"}
    assert (found["_order"], found["_transaction"]) == ([1, 3, 154, 2], "u:5")
    assert (found["_source_database"], found["_source_table"]) == ("shop", "orders")


def test_row_before_a_change() -> None:
    old, new = {"id": 1, "name": "a", "total": 1.5}, {"id": 1, "name": "b", "new": [1.50]}
    update = change(PLAIN.event("u", old, new))
    assert (update["before"], update["after"]) == (old, {"id": 1, "name": "b"})
    assert update["_unknown"] == {"new": "[1.5]"}
    delete = change(PLAIN.event("d", old, None))
    assert (delete["_op"], delete["before"], delete["after"]) == ("delete", old, None)


def test_postgresql_has_only_the_key_of_a_row_before_its_change() -> None:
    update = change({"op": "u", "before": None, "after": {"id": 1, "name": "b"}, "source": POSTGRES, "ts_ms": 5})
    assert (update["_op"], update["before"], update["_source_table"]) == ("update", None, "public.orders")
    assert (update["_order"], update["_transaction"]) == ([1, 24_023_128], "556")
    delete = change({"op": "d", "before": {"id": 1, "name": None}, "after": None, "source": POSTGRES})
    assert delete["before"] == {"id": 1}


def test_times_give_the_order_where_there_is_no_place_in_a_log() -> None:
    event = {"op": "c", "before": None, "after": {"id": 1, "name": "b"}, "source": MYSQL, "ts_ms": 1_600_000_000_007}
    found = change(event)
    assert found["_order"] == [0, 1_600_000_000_000, 1_600_000_000_007]
    assert found["_event_time"] == "2020-09-13T12:26:40.000Z"


def test_time_of_old_snapshots_is_that_of_the_event() -> None:
    found = change(
        {"op": "r", "after": {"id": 1, "name": "b"}, "source": {**MYSQL, "ts_ms": 0}, "ts_ms": 1_600_000_000_007}
    )
    assert found["_event_time"] == "2020-09-13T12:26:40.007Z"


def test_truncate_is_a_row() -> None:
    found = change({"op": "t", "source": POSTGRES, "ts_ms": 5})
    assert (found["_op"], found["before"], found["after"]) == ("truncate", None, None)


def test_schema_change_is_a_row_with_its_statement() -> None:
    event: dict[str, Any] = {
        "source": {**MYSQL, "file": "b.000001", "pos": 4}, "databaseName": "shop", "schemaName": None,
        "ddl": "ALTER TABLE orders ADD x int", "tableChanges": [],
    }  # fmt: skip
    found = change({"schema": {}, "payload": event})
    assert (found["_op"], found["_sql"], found["_source_table"]) == ("ddl", "ALTER TABLE orders ADD x int", "orders")
    whole = change({**event, "source": {**MYSQL, "table": ""}, "ddl": "DROP DATABASE shop"})
    assert (whole["_source_database"], whole["_source_table"]) == ("shop", None)


@pytest.mark.parametrize(
    "event",
    [
        b"",  # a tombstone
        b"null",
        {"schema": None, "payload": None},
        {"schema": {"type": "struct"}, "payload": None},
        {"op": "m", "ts_ms": 5, "source": {**POSTGRES, "table": ""}, "message": {"prefix": "a", "content": "YQ=="}},
        {"status": "BEGIN", "id": "556", "ts_ms": 5, "event_count": None},
        {"ts_ms": 5},  # a heartbeat
        {"schema": {}, "payload": {"ts_ms": 5}},
    ],
)
def test_events_that_change_nothing(event: object) -> None:
    found = change(event)
    assert (found["_op"], found["before"], found["after"]) == ("control", None, None)


@pytest.mark.parametrize(
    ("keys", "names"),
    [
        (['{"id":1}'], ["id"]),
        (['{"schema":{"type":"struct"},"payload":{"id":1}}'], ["id"]),
        (['{"id":"a', 'b"}'], ["id"]),  # divided by the broker
        (["order-1"], None),
        (["[1]"], None),
        ([], None),
    ],
)
def test_key_of_the_message_names_the_primary_key(keys: list[str], names: list[str] | None) -> None:
    found = change(PLAIN.event("c", None, {"id": 1, "name": "a"}), keys)
    assert found["_primary_key"] == names


def test_keys_of_messages_without_a_row_are_not_primary_keys() -> None:
    ddl = {
        "source": {**MYSQL, "file": "b.000001", "pos": 4},
        "databaseName": "shop",
        "ddl": "ALTER TABLE orders ADD x int",
    }
    for event, key in (({"ts_ms": 5}, '{"serverName":"shop"}'), (ddl, '{"databaseName":"shop"}'), (b"", '{"id":1}')):
        assert change(event, [key])["_primary_key"] is None


@pytest.mark.parametrize(
    ("event", "reason", "field"),
    [
        ({"op": "c", "after": {"id": 1}, "source": MYSQL}, "missing", "after.name"),
        ({"op": "c", "after": None, "source": MYSQL}, "missing", "after"),
        ({"op": "c", "after": [1], "source": MYSQL}, "no_change", "after"),
        ({"op": "d", "before": None, "source": POSTGRES}, "missing", "before"),
        ({"op": "d", "before": {"name": "a"}, "source": MYSQL}, "missing", "before.id"),
        ({"op": "x", "source": MYSQL}, "no_change", "op"),
        ({"op": 5, "source": MYSQL}, "no_change", "op"),
        ({"op": "c", "after": {}}, "missing", "source"),
        ({"op": "c", "after": {}, "source": "a"}, "no_change", "source"),
        ({"op": "c", "after": {}, "source": {**MYSQL, "table": "carts"}}, "other_table", "table"),
        ({"op": "c", "after": {}, "source": {**MYSQL, "file": "binlog"}}, "no_change", "source.file"),
        ({"op": "c", "after": {}, "source": {**MYSQL, "file": f"b.{1 << 63}"}}, "no_change", "source.file"),
        ({"op": "c", "after": {}, "source": {**MYSQL, "file": "b.1"}}, "missing", "source.pos"),
        ({"op": "c", "after": {}, "source": {**MYSQL, "file": "b.1", "pos": -1}}, "no_change", "source.pos"),
        ({"op": "c", "after": {}, "source": {**MYSQL, "ts_ms": 1 << 70}}, "no_change", "source.ts_ms"),
        ({"op": "c", "after": {}, "source": {**MYSQL, "gtid": []}}, "no_change", "source.gtid"),
        ({"op": "c", "after": {}, "source": {**POSTGRES, "lsn": "a"}}, "no_change", "source.lsn"),
        ({"schema": None, "payload": [1]}, "no_change", "payload"),
        ({"id": 1, "name": "without its envelope"}, "missing", "op"),
        ({}, "missing", "op"),
        ([1], "no_change", ""),
    ],
)
def test_other_events_are_misfits(event: object, reason: str, field: str) -> None:
    judged = READER.judge_body(json.dumps(event).encode())
    assert judged.misfit is not None
    assert (judged.text, judged.misfit.reason, judged.misfit.field) == (None, reason, field)
