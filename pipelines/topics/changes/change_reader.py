"""Reads bodies that are change events, whatever the connector, as one form in JSON text for Spark.

    {"changes": [{"_op": "update", "_source_database": "shop", ..., "before": {"id": 1}, "after": {"id": 1}}]}

`CHANGE_FORMATS` lists the formats: a new one is a module with a `ChangeFormat` and a line there.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property

from commitlake.pipelines.topics.changes.canal import CANAL
from commitlake.pipelines.topics.changes.change_event import (
    Change,
    ChangeFormat,
    EventFields,
    SourceEvent,
    SourceRow,
)
from commitlake.pipelines.topics.changes.debezium import DEBEZIUM
from commitlake.pipelines.topics.changes.maxwell import MAXWELL
from commitlake.pipelines.topics.document_check import (
    NUMBER,
    FaultError,
    JsonNumber,
    JsonObject,
    Judgement,
    MisfitReason,
    check_value,
    decode_document,
    describe_value,
    is_text,
    judge_body_text,
    to_dict,
    to_text,
)
from commitlake.pipelines.topics.json_schema import JsonKind, JsonType

CHANGE_FORMATS: Mapping[str, ChangeFormat] = {each.name: each for each in (CANAL, DEBEZIUM, MAXWELL)}
"""All formats of change events, by name."""
_LOCAL_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d(?:\.\d{1,6})?)", re.ASCII)


@dataclass(frozen=True)
class ChangeReader:
    """Reads bodies that are change events; can be pickled.

    Attributes:
        format: form of the events.
        row: type of the rows.
        source_table: pattern of `database.table`, whose changes are read.
        key: fields of the primary key; empty if none is configured.
        utc_offset: offset of times that are written without one, such as `+08:00`; None if none is configured.
        drop: names of fields that are not kept.
    """

    format: ChangeFormat
    row: JsonType
    source_table: str
    key: tuple[str, ...] = ()
    utc_offset: str | None = None
    drop: frozenset[str] = field(default=frozenset())

    def judge_body(self, body: bytes, keys: Sequence[str] = ()) -> Judgement:
        """Return the changes in a body as the document of the judgement, or what is wrong with it.

        Args:
            body: the body.
            keys: the keys of the message.
        """
        return judge_body_text(body, lambda text: self._judge_text(text, keys))

    def _judge_text(self, text: str, keys: Sequence[str]) -> Judgement:
        event = self._read_event(text)
        if event.database is not None:
            self._check_table(event.database, event.table)
        primary_key = self._primary_key(event, keys)
        if self.key and primary_key and {*self.key} != {*primary_key}:
            found = ", ".join(primary_key)[:80]
            raise FaultError(MisfitReason.OTHER_KEY, "", f"the primary key {', '.join(self.key)}", found)
        rows = [self._to_row(change, event, primary_key) for change in event.changes]
        return Judgement(to_text(JsonObject([("changes", rows)])), {})

    def _primary_key(self, event: SourceEvent, keys: Sequence[str]) -> tuple[str, ...]:
        if all(change.before is None and change.after is None for change in event.changes):
            return ()  # the key of a schema change or a heartbeat is not that of a row
        return event.primary_key or (self.format.read_key(keys) if self.format.read_key else ())

    def _read_event(self, text: str) -> SourceEvent:
        tombstone = self.format.tombstone
        document = decode_document(text) if text or tombstone is None else None
        if document is None and tombstone is not None:
            return tombstone
        if not isinstance(document, JsonObject):
            found = "no value" if document is None else describe_value(document)
            raise FaultError(MisfitReason.NO_CHANGE, "", "an object", found)
        return self.format.read_event(EventFields(to_dict(document, "")))

    def _check_table(self, database: str, table: str | None) -> None:
        # A statement about a whole database concerns each table of it.
        expected = self.source_table if table is not None else self.source_table.partition(".")[0]
        name = database if table is None else f"{database}.{table}"
        if not fnmatchcase(name, expected):
            raise FaultError(MisfitReason.OTHER_TABLE, "table", expected, name[:80])

    def _to_row(self, change: Change, event: SourceEvent, primary_key: Sequence[str]) -> JsonObject:
        unknown: dict[str, str] = {}
        key = self.key or tuple(name for name in primary_key if name in self._types and name not in self.drop)
        rows = {
            side: None if given is None else self._check_row(given, key, unknown)
            for side, given in (("before", change.before), ("after", change.after))
        }
        values = {
            "_op": change.op, "_source_database": event.database, "_source_table": event.table,
            "_event_time": None if change.time_ms is None else _to_time(change.time_ms),
            "_transaction": change.transaction, "_order": [JsonNumber(number) for number in change.order],
            "_primary_key": list(primary_key) or None, "_sql": change.sql, **rows,
            "_unknown": JsonObject(unknown.items()) if unknown else None,
        }  # fmt: skip
        return JsonObject(values.items())

    def _check_row(self, row: SourceRow, key: Sequence[str], unknown: dict[str, str]) -> object:
        typed = JsonObject(
            (name, self._to_json_value(row, name, value) if name in self._types else value)
            for name, value in row.values
        )
        found: dict[str, str] = {}
        kept = check_value(typed, self._partial_row if row.is_partial else self.row, row.place, found, [])
        assert isinstance(kept, JsonObject)
        values = dict(kept)
        for name in key:
            if values.get(name) is None:
                place = f"{row.place}.{name}"
                raise FaultError(MisfitReason.MISSING, place, "a value of the primary key", "none")
        for path, text in found.items():
            name = path.removeprefix(f"{row.place}.")
            if name not in self.drop:
                # The values after the change win over those before it, as they are added later.
                unknown[name] = text
        return JsonObject((name, value) for name, value in kept if name not in self.drop)

    @cached_property
    def _types(self) -> Mapping[str, JsonType]:
        return {each.name: each.type for each in self.row.fields}

    @cached_property
    def _partial_row(self) -> JsonType:
        optional = (
            replace(each, is_required=False, type=replace(each.type, is_nullable=True)) for each in self.row.fields
        )
        return replace(self.row, fields=tuple(optional))

    def _to_json_value(self, row: SourceRow, name: str, value: object) -> object:
        """Return a value of a source's row as the JSON value of its field; unchanged if it cannot be one."""
        json_type, place = self._types[name], f"{row.place}.{name}"
        if row.decode is not None:
            value = row.decode(name, value, json_type, place)
        kind = json_type.kind
        if kind is JsonKind.BOOLEAN and isinstance(value, str) and value in {"0", "1", "false", "true"}:
            return value in {"1", "true"}
        if not is_text(value):
            return value
        if kind in {JsonKind.INTEGER, JsonKind.NUMBER} and NUMBER.fullmatch(value):
            return JsonNumber(value)
        if kind is JsonKind.TIME and (found := _LOCAL_TIME.fullmatch(value)):
            if self.utc_offset is None:
                expected = "a time with an offset from UTC, or utc_offset in the file of topics"
                raise FaultError(MisfitReason.WRONG_TYPE, place, expected, "a time without an offset")
            return f"{found[1]}T{found[2]}{self.utc_offset}"
        if kind in {JsonKind.OBJECT, JsonKind.LIST}:
            try:
                return decode_document(value)
            except FaultError as fault:
                raise FaultError(MisfitReason.NOT_JSON, place, f"JSON text of {kind}", fault.misfit.found) from None
        return value


def _to_time(time_ms: int) -> str:
    time = datetime.datetime.fromtimestamp(time_ms // 1000, datetime.UTC)
    return f"{time:%Y-%m-%dT%H:%M:%S}.{time_ms % 1000:03}Z"
