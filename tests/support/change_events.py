"""A source database with one table, and the change events that connectors publish of it."""

from __future__ import annotations

import base64
import json
import random
import sqlite3
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, Protocol

from commitlake.pipelines.topics.changes.canal import CANAL
from commitlake.pipelines.topics.changes.change_event import ChangeFormat
from commitlake.pipelines.topics.changes.debezium import DEBEZIUM
from commitlake.pipelines.topics.changes.maxwell import MAXWELL

_FIRST_MS = 1_780_000_000_000
_SHANGHAI = timezone(timedelta(hours=8))
_COLUMNS = ("id", "name", "total", "at")

Row = Sequence[Any]


class Connector(Protocol):
    """Makes messages of the changes of a table."""

    format: ChangeFormat

    def publish(self, before: Row | None, after: Row | None) -> list[bytes]:
        """Return the bodies of the messages of a change, which is later than those before."""


class OrdersSource:
    """The table `shop.orders` in SQLite, whose changes a connector publishes."""

    def __init__(self, connector: Connector) -> None:
        self._connector = connector
        self._table = sqlite3.connect(":memory:")
        self._table.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, name TEXT, total REAL, at TEXT)")
        self._random = random.Random(0)

    def rows(self) -> list[tuple[object, ...]]:
        """Return the rows of the table by id; times with their offset in UTC."""
        rows = self._table.execute("SELECT * FROM orders ORDER BY id").fetchall()
        return [
            (*row[:3], datetime.fromisoformat(row[3]).replace(tzinfo=_SHANGHAI).astimezone(UTC).isoformat())
            for row in rows
        ]

    def change_rows(self, count: int) -> list[bytes]:
        """Change the table a number of times, and return the bodies of the connector's messages."""
        return [body for number in range(count) for body in self._change(number)]

    def _change(self, number: int) -> list[bytes]:
        id_ = self._random.randrange(1, 400)
        new = (id_, f"größe {number}", None if number % 5 == 0 else number / 4, "2026-11-20 14:00:00")
        old = self._table.execute("SELECT * FROM orders WHERE id = ?", (id_,)).fetchone()
        if old is None:
            self._table.execute("INSERT INTO orders VALUES (?, ?, ?, ?)", new)
            return self._connector.publish(None, new)
        if number % 3 == 0:
            self._table.execute("DELETE FROM orders WHERE id = ?", (id_,))
            return self._connector.publish(old, None)
        other = self._random.randrange(1, 400)
        if number % 7 == 0 and not self._table.execute("SELECT 1 FROM orders WHERE id = ?", (other,)).fetchone():
            new = (other, *new[1:])  # a change of the primary key
        self._table.execute("UPDATE orders SET id = ?, name = ?, total = ?, at = ? WHERE id = ?", (*new, id_))
        return self._connector.publish(old, new)


class CanalConnector:
    """Canal, with a message for each statement."""

    format = CANAL

    def __init__(self) -> None:
        self._events = 0

    def publish(self, before: Row | None, after: Row | None) -> list[bytes]:
        """Return the messages of a change."""
        if before is None or after is None:
            kind, row = ("INSERT", after) if after is not None else ("DELETE", before)
            assert row is not None
            return [self.event(kind, [_texts(row)])]
        old, new = _texts(before), _texts(after)
        changed = {name: old[name] for name in _COLUMNS if old[name] != new[name]}
        return [self.event("UPDATE", [new], [changed])]

    def event(
        self, kind: str, data: Sequence[object] | None, old: Sequence[object] | None = None, **others: object
    ) -> bytes:
        """Return an event as Canal's FlatMessage, later than those before."""
        self._events += 1
        event = {
            "id": self._events, "database": "shop", "table": "orders", "pkNames": ["id"] if data else None,
            "isDdl": data is None, "type": kind,
            # Several changes in a second, which is the resolution of MySQL.
            "es": _FIRST_MS + self._events // 10 * 1000, "ts": _FIRST_MS + self._events * 10, "sql": "",
            "sqlType": {"id": -5, "name": 12, "total": 3, "at": 93} if data else None,
            "mysqlType": {"id": "bigint", "name": "varchar(50)", "total": "double", "at": "datetime"} if data else None,
            "data": data, "old": old, **others,
        }  # fmt: skip
        return _to_json(event)


class DebeziumConnector:
    """Debezium's connector for MySQL, with tombstones.

    Args:
        has_schemas: whether events have their schema. If not, decimals are doubles and times have a time zone.
    """

    format = DEBEZIUM

    def __init__(self, *, has_schemas: bool) -> None:
        self._has_schemas = has_schemas
        self._events = 0

    def publish(self, before: Row | None, after: Row | None) -> list[bytes]:
        """Return the messages of a change; that of a primary key is a delete and an insert at the same place."""
        self._events += 1
        old = None if before is None else self.row(before)
        new = None if after is None else self.row(after)
        if old is None or new is None:
            return [self.event("c", None, new)] if new is not None else [self.event("d", old, None), b""]
        if old["id"] == new["id"]:
            return [self.event("u", old, new)]
        return [self.event("d", old, None), b"", self.event("c", None, new)]

    def row(self, row: Row) -> dict[str, object]:
        """Return a row as the values of an event."""
        id_, name, total, at = row
        if not self._has_schemas:
            zoned = datetime.fromisoformat(at).replace(tzinfo=_SHANGHAI).astimezone(UTC)
            return {"id": id_, "name": name, "total": total, "at": zoned.strftime("%Y-%m-%dT%H:%M:%SZ")}
        local_ms = int(datetime.fromisoformat(at).replace(tzinfo=UTC).timestamp() * 1000)
        return {"id": id_, "name": name, "total": None if total is None else to_decimal(str(total), 2), "at": local_ms}

    def event(self, op: str, before: object, after: object, **source: object) -> bytes:
        """Return an event at the place of the newest change."""
        number = self._events
        place = {"file": f"mysql-bin.{number // 300 + 8:06}", "pos": number % 300 // 3 * 100 + 4, "row": number % 3}
        # Some statements begin before others, but end after them.
        time_ms = _FIRST_MS + (number - number % 20 * 2) * 1000
        payload = {
            "before": before, "after": after, "op": op, "ts_ms": _FIRST_MS + number, "transaction": None,
            "source": {
                "version": "2.7.0.Final", "connector": "mysql", "name": "shop", "ts_ms": time_ms, "snapshot": "false",
                "db": "shop", "sequence": None, "table": "orders", "server_id": 1, "gtid": None, **place, "thread": 7,
                "query": None, **source,
            },
        }  # fmt: skip
        return _to_json({"schema": envelope_schema(ORDER_TYPES), "payload": payload} if self._has_schemas else payload)


class MaxwellConnector:
    """Maxwell, with positions or without; three changes are a transaction."""

    format = MAXWELL

    def __init__(self, *, has_positions: bool) -> None:
        self._has_positions = has_positions
        self._events = -1

    def publish(self, before: Row | None, after: Row | None) -> list[bytes]:
        """Return the messages of a change."""
        if before is None or after is None:
            kind, row = ("insert", after) if after is not None else ("delete", before)
            assert row is not None
            return [self.event(kind, dict(zip(_COLUMNS, row, strict=True)))]
        old, new = (dict(zip(_COLUMNS, row, strict=True)) for row in (before, after))
        return [self.event("update", new, old={name: old[name] for name in _COLUMNS if old[name] != new[name]})]

    def event(self, kind: str, data: object, **others: object) -> bytes:
        """Return an event, later than those before."""
        self._events += 1
        transaction, row = divmod(self._events, 3)
        # Without positions, a later transaction has a later time, or a larger number in the same second.
        seconds = transaction - transaction % 20 * 2 if self._has_positions else transaction // 7
        place = {"commit": True} if row == 2 else {"xoffset": row}
        event = {
            "database": "shop", "table": "orders", "type": kind, "ts": _FIRST_MS // 1000 + seconds,
            "xid": 4_000 + transaction, **place, "primary_key_columns": ["id"], "data": data, **others,
        }  # fmt: skip
        if self._has_positions:
            event["position"] = f"binlog.{transaction // 300 + 8:06}:{transaction % 300 * 100 + 4}"
        return _to_json(event)


ORDER_TYPES: Mapping[str, Mapping[str, object]] = {
    "id": {"type": "int64"},
    "name": {"type": "string"},
    "total": {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}},
    "at": {"type": "int64", "name": "io.debezium.time.Timestamp"},
}


def envelope_schema(types: Mapping[str, Mapping[str, object]]) -> dict[str, object]:
    """Return the schema of an envelope, as Kafka Connect's JSON converter writes it."""
    fields = [{**each, "optional": True, "field": name} for name, each in types.items()]
    sides = [{"type": "struct", "fields": fields, "optional": True, "field": side} for side in ("before", "after")]
    others = [{"type": "struct", "field": "source"}, {"type": "string", "optional": False, "field": "op"}]
    return {"type": "struct", "fields": [*sides, *others], "optional": False, "name": "shop.orders.Envelope"}


def to_decimal(text: str, scale: int) -> str:
    """Return a decimal as Kafka Connect encodes it: the base64 of its digits without the point."""
    whole, _, fraction = text.partition(".")
    unscaled = int(whole + fraction.ljust(scale, "0"))
    length = (unscaled + (unscaled < 0)).bit_length() // 8 + 1
    return base64.b64encode(unscaled.to_bytes(length, signed=True)).decode()


def _texts(row: Row) -> dict[str, str | None]:
    return {name: None if value is None else str(value) for name, value in zip(_COLUMNS, row, strict=True)}


def _to_json(event: object) -> bytes:
    return json.dumps(event, ensure_ascii=False).encode()
