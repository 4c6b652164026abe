"""A source database with one table, and the change events that connectors publish of it."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone

_FIRST_MS = 1_780_000_000_000
_SHANGHAI = timezone(timedelta(hours=8))
_COLUMNS = ("id", "name", "total", "at")


class OrdersSource:
    """The table `shop.orders` in SQLite, which makes an event of each change."""

    def __init__(self) -> None:
        self._table = sqlite3.connect(":memory:")
        self._table.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, name TEXT, total REAL, at TEXT)")
        self._random = random.Random(0)
        self._events = 0

    def rows(self) -> list[tuple[object, ...]]:
        """Return the rows of the table by id; times with their offset in UTC."""
        rows = self._table.execute("SELECT * FROM orders ORDER BY id").fetchall()
        return [
            (*row[:3], datetime.fromisoformat(row[3]).replace(tzinfo=_SHANGHAI).astimezone(UTC).isoformat())
            for row in rows
        ]

    def change_rows(self, count: int) -> list[bytes]:
        """Change the table a number of times, and return the events in Canal's form."""
        return [self._change(number) for number in range(count)]

    def _change(self, number: int) -> bytes:
        id_ = self._random.randrange(1, 400)
        new = (id_, f"größe {number}", None if number % 5 == 0 else number / 4, "2026-11-20 14:00:00")
        old = self._table.execute("SELECT * FROM orders WHERE id = ?", (id_,)).fetchone()
        if old is None:
            self._table.execute("INSERT INTO orders VALUES (?, ?, ?, ?)", new)
            return self.canal("INSERT", [_texts(new)])
        if number % 3 == 0:
            self._table.execute("DELETE FROM orders WHERE id = ?", (id_,))
            return self.canal("DELETE", [_texts(old)])
        other = self._random.randrange(1, 400)
        if number % 7 == 0 and not self._table.execute("SELECT 1 FROM orders WHERE id = ?", (other,)).fetchone():
            new = (other, *new[1:])  # a change of the primary key
        self._table.execute("UPDATE orders SET id = ?, name = ?, total = ?, at = ? WHERE id = ?", (*new, id_))
        before, after = _texts(old), _texts(new)
        return self.canal("UPDATE", [after], [{name: before[name] for name in _COLUMNS if before[name] != after[name]}])

    def canal(
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
        return json.dumps(event, ensure_ascii=False).encode()


def _texts(row: Sequence[object]) -> dict[str, str | None]:
    return {name: None if value is None else str(value) for name, value in zip(_COLUMNS, row, strict=True)}
