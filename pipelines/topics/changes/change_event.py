"""Classes for a change event: the changes in it, and checked access to its fields. All formats share them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from commitlake.pipelines.topics.document_check import (
    FaultError,
    JsonNumber,
    JsonObject,
    MisfitReason,
    check_value,
    describe_value,
    is_text,
    to_dict,
)
from commitlake.pipelines.topics.json_schema import JsonKind, JsonType
from commitlake.schemas.layouts.integer_parsing import parse_int64

_MAX_TIME_MS = 253_402_300_800_000
"""The start of the year 10000, which is no time of a column."""
_TEXT = JsonType(JsonKind.STRING)


class ChangeOp(StrEnum):
    """Kind of a change, which is the value of the column `_op`."""

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"
    SNAPSHOT = "snapshot"
    """A row as a snapshot of the table found it."""
    TRUNCATE = "truncate"
    DDL = "ddl"
    CONTROL = "control"
    """An event of the connector that changes nothing, such as a tombstone."""


@dataclass(frozen=True, slots=True)
class SourceRow:
    """A row of the source in an event.

    Attributes:
        values: its values as the event has them.
        place: place of the row in the event, such as `data[0]`.
        decode: returns the JSON value of a column's value by the column's name, the type of its field, and its place;
            None if the values need no decoding.
        is_partial: True if the source may leave out values that are not of the key.
    """

    values: JsonObject
    place: str
    decode: Callable[[str, object, JsonType, str], object] | None = None
    is_partial: bool = False


def merge_old_values(row: JsonObject, old: JsonObject, place: str) -> SourceRow:
    """Return the row before an update: the row after it, with the old values of the changed columns."""
    changed = to_dict(old, place)
    whole = JsonObject((name, changed.pop(name, value)) for name, value in row)
    return SourceRow(JsonObject([*whole, *changed.items()]), place)


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a row, or of a table.

    Attributes:
        op: kind of the change.
        time_ms: time in the source, ms since 1970; None if the event does not say it.
        order: place in the order of the source's changes, see `ChangeFormat.order`.
        before: the row before.
        after: the row after.
        transaction: see `_transaction`.
        sql: the statement of a DDL.
    """

    op: ChangeOp
    time_ms: int | None = None
    order: Sequence[int] = ()
    before: SourceRow | None = None
    after: SourceRow | None = None
    transaction: str | None = None
    sql: str | None = None


@dataclass(frozen=True, slots=True)
class SourceEvent:
    """The changes in a message.

    Attributes:
        changes: the changes, in their order.
        database: database of the changes; None if the event concerns none.
        table: table of the changes; None if the event concerns the database, or none.
        primary_key: names of the columns of the table's primary key; empty if the event does not say them.
    """

    changes: Sequence[Change]
    database: str | None = None
    table: str | None = None
    primary_key: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EventFields:
    """Fields of an event, or of an object in it.

    Attributes:
        values: values by name.
        place: place of the object in the event; empty for the event itself.
    """

    values: dict[str, object]
    place: str = ""

    def text(self, name: str) -> str:
        """Return the text in a field."""
        value = self.values.get(name)
        if not is_text(value):
            raise self.fault(name, "a string")
        check_value(value, _TEXT, self.path(name), {}, [])
        return value

    def optional_text(self, name: str) -> str | None:
        """Return the text in a field; None if it is null, empty or missing."""
        value = self.values.get(name)
        return None if value is None or value == "" else self.text(name)

    def number(self, name: str, expected: str = "an integer of 64 bits") -> int:
        """Return the integer in a field, from 0 on."""
        value = self.values.get(name)
        number = parse_int64(value) if isinstance(value, JsonNumber) else None
        if number is None or number < 0:
            raise self.fault(name, expected)
        return number

    def optional_number(self, name: str) -> int | None:
        """Return the integer in a field, from 0 on; None if it is null or missing."""
        return None if self.values.get(name) is None else self.number(name)

    def time_ms(self, name: str) -> int:
        """Return the time in a field."""
        expected = "a time in ms since 1970"
        number = self.number(name, expected)
        if number >= _MAX_TIME_MS:
            raise self.fault(name, expected)
        return number

    def row(self, name: str) -> JsonObject:
        """Return the object in a field."""
        value = self.values.get(name)
        if not isinstance(value, JsonObject):
            raise self.fault(name, "a row")
        return value

    def rows(self, name: str) -> list[JsonObject]:
        """Return the objects of a list in a field, of which there is at least one."""
        value = self.values.get(name)
        if type(value) is not list or not value or not all(isinstance(row, JsonObject) for row in value):
            raise self.fault(name, "an array of rows")
        return value

    def fields(self, name: str) -> EventFields:
        """Return the fields of the object in a field."""
        value = self.values.get(name)
        if not isinstance(value, JsonObject):
            raise self.fault(name, "an object")
        return EventFields(to_dict(value, self.path(name)), self.path(name))

    def optional_names(self, name: str) -> tuple[str, ...]:
        """Return the texts of a list in a field; none if it is null or missing."""
        value = self.values.get(name)
        if value is None:
            return ()
        if type(value) is not list:
            raise self.fault(name, "a list of names")
        for each in value:
            check_value(each, _TEXT, self.path(name), {}, [])
        return tuple(value)

    def path(self, name: str) -> str:
        """Return the place of a field in the event."""
        return f"{self.place}.{name}" if self.place else name

    def fault(self, name: str, expected: str) -> FaultError:
        """Return the error for a field that is not what the format has there."""
        value = self.values.get(name)
        reason = MisfitReason.MISSING if value is None else MisfitReason.NO_CHANGE
        return FaultError(reason, self.path(name), expected, "no value" if value is None else describe_value(value))


@dataclass(frozen=True, slots=True)
class ChangeFormat:
    """A form in which a connector publishes change events. It can be pickled.

    Attributes:
        name: the value of `format` in the file of topics.
        order: what `_order` has, for the documentation.
        read_event: reads an event; raises FaultError if it is none.
        read_key: returns the names of the primary key from the keys of the message; none if these do not say it.
        tombstone: what a message without a body is; None if the connector does not send such messages.
    """

    name: str
    order: str
    read_event: Callable[[EventFields], SourceEvent]
    read_key: Callable[[Sequence[str]], tuple[str, ...]] | None = None
    tombstone: SourceEvent | None = None
