"""Change events of Debezium as JSON: the envelope (class io.debezium.data.Envelope), with its schema or without.

    {"schema": {"type": "struct", "fields": [...]}, "payload": {
        "op": "u", "before": {"id": 1, "total": "AMg="}, "after": {"id": 1, "total": "APo="}, "ts_ms": 1600000000456,
        "source": {"connector": "mysql", "db": "shop", "table": "orders", "ts_ms": 1600000000000, "snapshot": "false",
                   "gtid": null, "file": "mysql-bin.000003", "pos": 154, "row": 0}}}

With `schemas.enable = false`, which both Debezium Server and Kafka Connect's JSON converter know, the event is the
payload alone. `op` is c (insert), u, d, r (row of a snapshot), t (truncate) or m (a message in the log of PostgreSQL).
The change of a primary key is a delete of the old row and an insert of the new one.

Order: MySQL and MariaDB give `file`, `pos` and `row` in the binlog, PostgreSQL gives `lsn`, each with `schema` and
`txId`. Other sources have the times only.

Messages without a change are also events of Debezium: schema changes (`ddl`, `tableChanges`), the borders of
transactions (`status`, `id`), heartbeats (`ts_ms` alone), and tombstones: null or nothing after a delete, for Kafka's
compaction. The RocketMQ sink of Debezium Server and RocketMQ Connect fail at a tombstone without a schema, as
RocketMQ's client refuses an empty body, so `tombstones.on.delete` is mostly false there; other producers send them.
The sink of Debezium Server sends the key as the message's key, as JSON; RocketMQ Connect does not send it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial

from commitlake.pipelines.topics.changes.change_event import (
    Change,
    ChangeFormat,
    ChangeOp,
    EventFields,
    SourceEvent,
    SourceRow,
)
from commitlake.pipelines.topics.changes.connect_values import decode_column, find_column_types
from commitlake.pipelines.topics.document_check import FaultError, JsonObject, MisfitReason, parse_document
from commitlake.schemas.layouts.integer_parsing import parse_int64

_ROW_OPS = {"c": ChangeOp.INSERT, "u": ChangeOp.UPDATE, "d": ChangeOp.DELETE, "r": ChangeOp.SNAPSHOT}
_BINLOG_FILE = re.compile(r".*\.(\d+)", re.ASCII | re.DOTALL)
_HEARTBEAT = frozenset({"ts_ms", "ts_us", "ts_ns"})
_CONTROL = SourceEvent([Change(ChangeOp.CONTROL)])


def _read_event(event: EventFields) -> SourceEvent:
    schema = None
    if "payload" in event.values and "op" not in event.values:
        if event.values["payload"] is None:
            return _CONTROL
        schema, event = event.values.get("schema"), event.fields("payload")
    if event.values.get("op") is None:
        return _read_event_without_op(event)
    op = event.text("op")
    if op == "m":
        return _CONTROL
    source = event.fields("source")
    database, table = source.text("db"), _table_name(source, source.text("table"))
    return SourceEvent([_read_change(op, event, source, schema)], database, table)


def _read_event_without_op(event: EventFields) -> SourceEvent:
    names = event.values.keys()
    if "ddl" in names or "tableChanges" in names:
        source = event.fields("source")
        database = event.optional_text("databaseName") or source.text("db")
        table = source.optional_text("table")
        change = Change(
            ChangeOp.DDL, _event_time(event, source), _order(event, source), transaction=_transaction(event, source),
            sql=event.optional_text("ddl"),
        )  # fmt: skip
        return SourceEvent([change], database, table and _table_name(source, table))
    if {"status", "id"} <= names or (names and names <= _HEARTBEAT):
        return _CONTROL
    raise event.fault("op", "c, u, d, r, t or m")


def _table_name(source: EventFields, table: str) -> str:
    schema = source.optional_text("schema")
    return f"{schema}.{table}" if schema else table


def _read_change(op: str, event: EventFields, source: EventFields, schema: object) -> Change:
    time_ms, order, transaction = _event_time(event, source), _order(event, source), _transaction(event, source)
    if op == "t":
        return Change(ChangeOp.TRUNCATE, time_ms, order, transaction=transaction)
    if (kind := _ROW_OPS.get(op)) is None:
        expected = "c, u, d, r, t or m"
        raise FaultError(MisfitReason.NO_CHANGE, event.path("op"), expected, f"a string of {len(op):,} characters")
    before = after = None
    if kind is ChangeOp.DELETE or (kind is ChangeOp.UPDATE and event.values.get("before") is not None):
        # Without REPLICA IDENTITY FULL, PostgreSQL has only the key of a row before its change.
        before = _read_row(event, "before", schema, is_partial=True)
    if kind is not ChangeOp.DELETE:
        after = _read_row(event, "after", schema)
    return Change(kind, time_ms, order, before, after, transaction)


def _read_row(event: EventFields, side: str, schema: object, *, is_partial: bool = False) -> SourceRow:
    decode = partial(decode_column, find_column_types(schema, side))
    return SourceRow(event.row(side), event.path(side), decode, is_partial)


def _event_time(event: EventFields, source: EventFields) -> int | None:
    for fields in (source, event):
        if fields.values.get("ts_ms") is not None and (time_ms := fields.time_ms("ts_ms")):  # 0 in old snapshots
            return time_ms
    return None


def _order(event: EventFields, source: EventFields) -> list[int]:
    if (file := source.optional_text("file")) is not None:
        found = _BINLOG_FILE.fullmatch(file)
        if found is None or (number := parse_int64(found[1])) is None:
            raise source.fault("file", "the name of a binlog file, such as mysql-bin.000003")
        return [1, number, source.number("pos"), source.optional_number("row") or 0]
    if (lsn := source.optional_number("lsn")) is not None:
        return [1, lsn]
    time_ms = source.time_ms("ts_ms")
    return [0, time_ms, time_ms if event.values.get("ts_ms") is None else event.time_ms("ts_ms")]


def _transaction(event: EventFields, source: EventFields) -> str | None:
    if (gtid := source.optional_text("gtid")) is not None:
        return gtid
    if event.values.get("transaction") is not None:
        return event.fields("transaction").optional_text("id")
    number = source.optional_number("txId")
    return None if number is None else str(number)


def _read_key(keys: Sequence[str]) -> tuple[str, ...]:
    # A broker divides the keys of a message at spaces, which texts in the key may have.
    key: object = parse_document(" ".join(keys).encode())
    if isinstance(key, JsonObject) and {"schema", "payload"} == {name for name, _ in key}:
        key = dict(key)["payload"]
    return tuple(dict(key)) if isinstance(key, JsonObject) else ()


DEBEZIUM = ChangeFormat(
    "debezium-json",
    "1 and the place in the source's log, which is the number of the binlog file, `pos` and `row`, or `lsn`; "
    "0, `source.ts_ms` and `ts_ms` if the event has no place",
    _read_event,
    _read_key,
    tombstone=_CONTROL,
)
