"""Change events of databases, in the JSON forms in which connectors publish them, as rows before and after a change.

`ChangeReader` converts a body to one form, whatever the connector, as JSON text for Spark:

    {"changes": [{"_op": "update", "_source_database": "shop", ..., "before": {"id": 1}, "after": {"id": 1}}]}

Canal, `canal-json` (class com.alibaba.otter.canal.protocol.FlatMessage, `canal.mq.flatMessage = true`):

    {"id": 7, "database": "shop", "table": "orders", "pkNames": ["id"], "isDdl": false, "type": "UPDATE",
     "es": 1600000000000, "ts": 1600000000123, "sql": "", "sqlType": {"id": 4}, "mysqlType": {"id": "int(11)"},
     "data": [{"id": "1", "total": "2.50"}], "old": [{"total": "2.00"}]}

`data` has a row for each changed row of the statement, after the change, or before it for a DELETE. `old` has the
values before an UPDATE, of the changed columns only. Values are texts or null. `es` is the time of the statement in the
binlog, `ts` the time at which Canal made the message, both in ms since 1970.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase

from commitlake.pipelines.topics.document_check import (
    FaultError,
    JsonNumber,
    JsonObject,
    Judgement,
    MisfitReason,
    check_value,
    decode_document,
    describe_value,
    judge_body_text,
    to_dict,
    to_text,
)
from commitlake.pipelines.topics.json_schema import JsonKind, JsonType
from commitlake.schemas.layouts.integer_parsing import parse_int64

_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?", re.ASCII)
_LOCAL_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d(?:\.\d{1,6})?)", re.ASCII)
_MAX_TIME_MS = 253_402_300_800_000
"""The start of the year 10000, which is no time of a column."""
_TEXT = JsonType(JsonKind.STRING)
_CANAL_ROWS = {"INSERT": "insert", "UPDATE": "update", "DELETE": "delete"}
_CANAL_DDL = frozenset(
    {"CREATE", "ALTER", "ERASE", "QUERY", "TRUNCATE", "RENAME", "CINDEX", "DINDEX", "GTID", "XACOMMIT", "XAROLLBACK"}
)


class TopicFormat(StrEnum):
    """Format of the bodies of a topic."""

    JSON = "json"
    """A document, which is a row."""
    CANAL = "canal-json"
    """Change events of Canal."""

    @property
    def is_changes(self) -> bool:
        """True if the bodies are change events."""
        return self is not TopicFormat.JSON


@dataclass(frozen=True, slots=True)
class _Change:
    """A change of a row, or of a table.

    Attributes:
        op: see `_op` of the table.
        time_ms: time in the source, ms since 1970; None if the event does not say it.
        order: place in the order of the source's changes.
        before: the row before, and the place of this object in the document.
        after: the row after, likewise.
        transaction: see `_transaction`.
        sql: the statement of a DDL.
    """

    op: str
    time_ms: int | None
    order: Sequence[int]
    before: tuple[JsonObject, str] | None = None
    after: tuple[JsonObject, str] | None = None
    transaction: str | None = None
    sql: str | None = None


@dataclass(frozen=True)
class ChangeReader:
    """Reads bodies that are change events; can be pickled.

    Attributes:
        row: type of the rows.
        source_table: pattern of `database.table`, whose changes are read.
        key: fields of the primary key; empty if none is configured.
        utc_offset: offset of times that are written without one, such as `+08:00`; None if none is configured.
        drop: names of fields that are not kept.
    """

    row: JsonType
    source_table: str
    key: tuple[str, ...] = ()
    utc_offset: str | None = None
    drop: frozenset[str] = frozenset()

    def judge_body(self, body: bytes) -> Judgement:
        """Return the changes in a body as the document of the judgement, or what is wrong with it."""
        return judge_body_text(body, self._judge_text)

    def _judge_text(self, text: str) -> Judgement:
        document = decode_document(text)
        if not isinstance(document, JsonObject):
            raise FaultError(MisfitReason.NO_CHANGE, "", "an object", _describe(document))
        event = _Event(to_dict(document, ""))
        database, table = event.text("database"), event.text("table")
        name = f"{database}.{table}"
        if not fnmatchcase(name, self.source_table):
            raise FaultError(MisfitReason.OTHER_TABLE, "table", self.source_table, name[:80])
        rows = [self._to_row(change, database, table) for change in _read_canal(event)]
        return Judgement(to_text(JsonObject([("changes", rows)])), {})

    def _to_row(self, change: _Change, database: str, table: str) -> JsonObject:
        unknown: dict[str, str] = {}
        rows = {
            side: None if given is None else self._check_row(*given, unknown)
            for side, given in (("before", change.before), ("after", change.after))
        }
        values = {
            "_op": change.op, "_source_database": database, "_source_table": table,
            "_event_time": None if change.time_ms is None else _to_time(change.time_ms),
            "_transaction": change.transaction, "_order": [JsonNumber(number) for number in change.order],
            "_sql": change.sql, **rows, "_unknown": JsonObject(unknown.items()) if unknown else None,
        }  # fmt: skip
        return JsonObject(values.items())

    def _check_row(self, row: JsonObject, place: str, unknown: dict[str, str]) -> object:
        types = {field.name: field.type for field in self.row.fields}
        typed = JsonObject(
            (name, _to_json_value(value, types[name], f"{place}.{name}", self.utc_offset) if name in types else value)
            for name, value in row
        )
        found: dict[str, str] = {}
        kept = check_value(typed, self.row, place, found, [])
        assert isinstance(kept, JsonObject)
        values = dict(kept)
        for name in self.key:
            if values.get(name) is None:
                raise FaultError(MisfitReason.MISSING, f"{place}.{name}", "a value of the primary key", "none")
        for path, text in found.items():
            field = path.removeprefix(f"{place}.")
            if field not in self.drop:
                # The values after the change win over those before it, as they are added later.
                unknown[field] = text
        return JsonObject((name, value) for name, value in kept if name not in self.drop)


def _read_canal(event: _Event) -> Iterator[_Change]:
    """Yield the changes of a Canal message."""
    kind, time_ms = event.text("type"), event.time_ms("es")
    order = [time_ms, event.time_ms("ts")]
    transaction = event.text("gtid") if event.values.get("gtid") else None
    if event.values.get("isDdl") is True or kind in _CANAL_DDL:
        of_table = "truncate" if kind == "TRUNCATE" else "ddl"
        yield _Change(of_table, time_ms, order, transaction=transaction, sql=event.text("sql"))
        return
    if (op := _CANAL_ROWS.get(kind)) is None:
        expected = ", ".join([*_CANAL_ROWS, "or a DDL"])
        raise FaultError(MisfitReason.NO_CHANGE, "type", expected, f"a string of {len(kind):,} characters")
    rows = event.rows("data")
    old_rows = event.rows("old") if op == "update" else []
    if op == "update" and len(old_rows) != len(rows):
        found = f"{len(old_rows):,}"
        raise FaultError(MisfitReason.NO_CHANGE, "old", f"as many rows as in data, {len(rows):,}", found)
    for number, row in enumerate(rows):
        place = f"data[{number}]"
        if op == "delete":
            yield _Change(op, time_ms, order, before=(row, place), transaction=transaction)
            continue
        before = None
        if op == "update":
            old = to_dict(old_rows[number], f"old[{number}]")
            whole = JsonObject((name, old.pop(name, value)) for name, value in row)
            before = (JsonObject([*whole, *old.items()]), f"old[{number}]")
        yield _Change(op, time_ms, order, before, (row, place), transaction)


@dataclass(frozen=True, slots=True)
class _Event:
    """The fields of an event around its rows."""

    values: dict[str, object]

    def text(self, name: str) -> str:
        value = self.values.get(name)
        if not isinstance(value, str) or isinstance(value, JsonNumber):
            raise self._fault(name, "a string")
        check_value(value, _TEXT, name, {}, [])
        return value

    def time_ms(self, name: str) -> int:
        value = self.values.get(name)
        number = parse_int64(value) if isinstance(value, JsonNumber) else None
        if number is None or not 0 <= number < _MAX_TIME_MS:
            raise self._fault(name, "a time in ms since 1970")
        return number

    def rows(self, name: str) -> list[JsonObject]:
        value = self.values.get(name)
        if type(value) is not list or not value or not all(isinstance(row, JsonObject) for row in value):
            raise self._fault(name, "an array of rows")
        return value

    def _fault(self, name: str, expected: str) -> FaultError:
        value = self.values.get(name)
        reason = MisfitReason.MISSING if value is None else MisfitReason.NO_CHANGE
        return FaultError(reason, name, expected, _describe(value))


def _describe(value: object) -> str:
    return "no value" if value is None else describe_value(value)


def _to_json_value(value: object, json_type: JsonType, place: str, utc_offset: str | None) -> object:
    """Return a value of a source's row as the JSON value of its field; unchanged if it is no text for such a value."""
    if not isinstance(value, str) or isinstance(value, JsonNumber):
        return value
    kind = json_type.kind
    if kind in {JsonKind.INTEGER, JsonKind.NUMBER} and _NUMBER.fullmatch(value):
        return JsonNumber(value)
    if kind is JsonKind.BOOLEAN and value in {"0", "1", "false", "true"}:
        return value in {"1", "true"}
    if kind is JsonKind.TIME and (found := _LOCAL_TIME.fullmatch(value)):
        if utc_offset is None:
            expected = "a time with an offset from UTC, or utc_offset in the file of topics"
            raise FaultError(MisfitReason.WRONG_TYPE, place, expected, "a time without an offset")
        return f"{found[1]}T{found[2]}{utc_offset}"
    if kind in {JsonKind.OBJECT, JsonKind.LIST}:
        try:
            return decode_document(value)
        except FaultError as fault:
            raise FaultError(MisfitReason.NOT_JSON, place, f"JSON text of {kind}", fault.misfit.found) from None
    return value


def _to_time(time_ms: int) -> str:
    time = datetime.datetime.fromtimestamp(time_ms // 1000, datetime.UTC)
    return f"{time:%Y-%m-%dT%H:%M:%S}.{time_ms % 1000:03}Z"
