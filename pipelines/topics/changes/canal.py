"""Change events of Canal (class com.alibaba.otter.canal.protocol.FlatMessage, `canal.mq.flatMessage = true`).

    {"id": 7, "database": "shop", "table": "orders", "pkNames": ["id"], "isDdl": false, "type": "UPDATE",
     "es": 1600000000000, "ts": 1600000000123, "sql": "", "sqlType": {"id": 4}, "mysqlType": {"id": "int(11)"},
     "data": [{"id": "1", "total": "2.50"}], "old": [{"total": "2.00"}]}

`data` has a row for each changed row of the statement, after the change, or before it for a DELETE. `old` has the
values before an UPDATE, of the changed columns only. Values are texts or null. `es` is the time of the statement in the
binlog, `ts` the time at which Canal made the message, both in ms since 1970.
"""

from __future__ import annotations

from collections.abc import Iterator

from commitlake.pipelines.topics.changes.change_event import (
    Change,
    ChangeFormat,
    ChangeOp,
    EventFields,
    SourceEvent,
    SourceRow,
    merge_old_values,
)
from commitlake.pipelines.topics.document_check import FaultError, MisfitReason

_ROW_OPS = {"INSERT": ChangeOp.INSERT, "UPDATE": ChangeOp.UPDATE, "DELETE": ChangeOp.DELETE}
_DDL = frozenset(
    {"CREATE", "ALTER", "ERASE", "QUERY", "TRUNCATE", "RENAME", "CINDEX", "DINDEX", "GTID", "XACOMMIT", "XAROLLBACK"}
)


def _read_event(event: EventFields) -> SourceEvent:
    database, table = event.text("database"), event.text("table")
    return SourceEvent(list(_read_changes(event)), database, table or None, event.optional_names("pkNames"))


def _read_changes(event: EventFields) -> Iterator[Change]:
    kind, time_ms = event.text("type"), event.time_ms("es")
    order = [time_ms, event.time_ms("ts")]
    transaction = event.optional_text("gtid")
    if event.values.get("isDdl") is True or kind in _DDL:
        of_table = ChangeOp.TRUNCATE if kind == "TRUNCATE" else ChangeOp.DDL
        yield Change(of_table, time_ms, order, transaction=transaction, sql=event.text("sql"))
        return
    if (op := _ROW_OPS.get(kind)) is None:
        expected = ", ".join([*_ROW_OPS, "or a DDL"])
        raise FaultError(MisfitReason.NO_CHANGE, "type", expected, f"a string of {len(kind):,} characters")
    rows = event.rows("data")
    old_rows = event.rows("old") if op is ChangeOp.UPDATE else []
    if op is ChangeOp.UPDATE and len(old_rows) != len(rows):
        found = f"{len(old_rows):,}"
        raise FaultError(MisfitReason.NO_CHANGE, "old", f"as many rows as in data, {len(rows):,}", found)
    for number, row in enumerate(rows):
        found_row = SourceRow(row, f"data[{number}]")
        if op is ChangeOp.DELETE:
            yield Change(op, time_ms, order, before=found_row, transaction=transaction)
            continue
        before = merge_old_values(row, old_rows[number], f"old[{number}]") if old_rows else None
        yield Change(op, time_ms, order, before, found_row, transaction)


CANAL = ChangeFormat("canal-json", "`es`, `ts`", _read_event)
