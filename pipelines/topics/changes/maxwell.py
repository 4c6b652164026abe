"""Change events of Maxwell (class com.zendesk.maxwell.row.RowMap).

    {"database": "shop", "table": "orders", "type": "update", "ts": 1600000000, "xid": 71, "xoffset": 0,
     "position": "binlog.000003:154", "primary_key_columns": ["id"],
     "data": {"id": 1, "total": 2.50}, "old": {"total": 2.00}}

`data` is the row after the change, or before it for a delete. `old` has the values before an update, of the changed
columns only. `ts` is the time of the statement, in s since 1970; in events of statements (`table-alter`,
`database-drop`) in ms. `xid` is the transaction and `xoffset` the number of the row in it, which its last row, with
`"commit": true`, does not have. The settings `output_binlog_position`, `output_xoffset` and
`output_primary_key_columns` add `position`, `xoffset` and `primary_key_columns`. Times of columns have no offset, and
bytes are base64.

A bootstrap begins with `bootstrap-start`, has a `bootstrap-insert` for each row of the table, and ends with
`bootstrap-complete`. Newer versions of Maxwell give its events no position.
"""

from __future__ import annotations

import re

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
from commitlake.schemas.layouts.integer_parsing import INT64_MAX, parse_int64

_ROW_OPS = {
    "insert": ChangeOp.INSERT, "update": ChangeOp.UPDATE, "delete": ChangeOp.DELETE,
    "bootstrap-insert": ChangeOp.SNAPSHOT,
}  # fmt: skip
_CONTROL = frozenset({"bootstrap-start", "bootstrap-complete"})
_DDL = frozenset(f"{what}-{done}" for what in ("table", "database") for done in ("create", "alter", "drop"))
_POSITION = re.compile(r".*\.(\d+):(\d+)", re.ASCII | re.DOTALL)
_FIRST_MS = 100_000_000_000
"""The smallest time that is one in ms: as one in s, it would be in the year 5138."""


def _read_event(event: EventFields) -> SourceEvent:
    database, table = event.text("database"), event.optional_text("table")
    return SourceEvent([_read_change(event)], database, table, event.optional_names("primary_key_columns"))


def _read_change(event: EventFields) -> Change:
    kind, time_ms = event.text("type"), _time_ms(event)
    order, transaction = _order(event), _transaction(event)
    if kind in _DDL:
        return Change(ChangeOp.DDL, time_ms, order, transaction=transaction, sql=event.optional_text("sql"))
    if kind in _CONTROL:
        return Change(ChangeOp.CONTROL, time_ms, order, transaction=transaction)
    if (op := _ROW_OPS.get(kind)) is None:
        expected = "insert, update, delete, bootstrap-insert, or a statement such as table-alter"
        raise FaultError(MisfitReason.NO_CHANGE, "type", expected, f"a string of {len(kind):,} characters")
    row = SourceRow(event.row("data"), "data")
    if op is ChangeOp.DELETE:
        return Change(op, time_ms, order, before=row, transaction=transaction)
    before = None
    if op is ChangeOp.UPDATE:
        # An update of nothing that Maxwell publishes has no old values.
        has_old = event.values.get("old") is not None
        before = merge_old_values(row.values, event.row("old"), "old") if has_old else row
    return Change(op, time_ms, order, before, row, transaction)


def _time_ms(event: EventFields) -> int:
    number = event.time_ms("ts")
    return number if number >= _FIRST_MS else number * 1000


def _order(event: EventFields) -> list[int]:
    in_transaction = INT64_MAX if event.values.get("commit") is True else event.optional_number("xoffset") or 0
    if (position := event.optional_text("position")) is not None:
        found = _POSITION.fullmatch(position)
        numbers = [parse_int64(text) for text in found.groups()] if found is not None else [None]
        place = [number for number in numbers if number is not None]
        if len(place) < len(numbers):
            raise event.fault("position", "a binlog file and a position, such as binlog.000003:154")
        return [1, *place, in_transaction]
    return [0, _time_ms(event), event.optional_number("xid") or 0, in_transaction]


def _transaction(event: EventFields) -> str | None:
    if (gtid := event.optional_text("gtid")) is not None:
        return gtid
    number = event.optional_number("xid")
    return None if number is None else str(number)


MAXWELL = ChangeFormat(
    "maxwell-json",
    "1, the number of the binlog file and the position in it, and `xoffset`; 0, `ts` in ms, `xid` and `xoffset` if the "
    "event has no `position`. The last row of a transaction has the largest integer as `xoffset`",
    _read_event,
)
