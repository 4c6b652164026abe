"""The judge of documents: whether a body is a JSON document of a schema, and which field is at fault if it is not.

A document that fits is one that each reader of JSON understands alike, and whose values the columns hold as they are.
So the judge refuses what readers accept in silence: text after the document, a name that is repeated, NaN, a number
that overflows, a time without an offset. Fields that the schema does not have are no fault: they are returned beside
the document.
"""

from __future__ import annotations

import datetime
import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple, TypeGuard

from commitlake.connectors.lake.packs.body_batches import MAX_JSON_BYTES
from commitlake.pipelines.topics.json_schema import JsonKind, JsonType

_SHOWN_CHARACTERS = 60
_MAX_NUMBER_CHARACTERS = 1_000
"""Length of the longest number that Spark reads."""
_INT64 = 1 << 63
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?(?:Z|[+-](?:0\d|1[0-7]):[0-5]\d|[+-]18:00)", re.ASCII)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?", re.ASCII)
"""Text that is a number of JSON."""
_SURROGATE = re.compile("[\ud800-\udfff]")


class MisfitReason(StrEnum):
    """Reason why a message is not a row of its topic's table."""

    NO_BODY = "no_body"
    """The lake has no body of the message."""
    BODY_UNREADABLE = "body_unreadable"
    """The body does not match its compression."""
    TOO_LARGE = "too_large"
    """The body is larger than a document may be."""
    NOT_UTF8 = "not_utf8"
    """The body is not text in UTF-8."""
    NOT_JSON = "not_json"
    """The body is not exactly one JSON document."""
    TOO_DEEP = "too_deep"
    """Its lists and objects are nested too deeply."""
    REPEATED_NAME = "repeated_name"
    """An object has a name twice."""
    WRONG_TYPE = "wrong_type"
    """A value does not have the type of its field."""
    OUT_OF_RANGE = "out_of_range"
    """A value is one that the column cannot hold without a change."""
    MISSING = "missing"
    """A required field is missing, or null."""
    NO_CHANGE = "no_change"
    """The document is no change event of the topic's format."""
    OTHER_TABLE = "other_table"
    """The change is one of another source table."""
    OTHER_KEY = "other_key"
    """The source's primary key is not the configured key."""
    NEEDS_SCHEMA = "needs_schema"
    """A value of a change event cannot be decoded without the connector's schema."""
    NOT_SENT = "not_sent"
    """The connector did not send a value, because it did not change."""
    NOT_PARSED = "not_parsed"
    """Spark could not parse the document, although it fits."""


class Misfit(NamedTuple):
    """Fault of a message that does not fit the schema of its topic.

    Attributes:
        reason: what is wrong.
        field: the field at fault, such as `lines[2].sku`; empty for the whole document.
        expected: what the schema expects.
        found: what the document has, without the value of a text.
    """

    reason: MisfitReason
    field: str
    expected: str
    found: str


class Judgement(NamedTuple):
    """Result of judging a body.

    Attributes:
        text: the document with the fields of the schema; None if it does not fit.
        unknown: JSON texts of the fields that the schema does not have, by path.
        misfit: the fault; None if the document fits.
    """

    text: str | None
    unknown: dict[str, str]
    misfit: Misfit | None = None


class FaultError(Exception):
    """Error for the first fault of a document, which becomes the misfit of its message."""

    def __init__(self, reason: MisfitReason, field: str, expected: str, found: str) -> None:
        super().__init__(reason, field, expected, found)
        self.misfit = Misfit(reason, field, expected, found)


class JsonNumber(str):
    """The text of a number in a document."""

    __slots__ = ()


class JsonObject(list[tuple[str, object]]):
    """The names and values of an object in a document, in their order."""


def is_text(value: object) -> TypeGuard[str]:
    """Return True if a value of a document is a string."""
    return isinstance(value, str) and not isinstance(value, JsonNumber)


def _refuse_constant(name: str) -> object:
    raise ValueError(name)


_decoder = json.JSONDecoder(
    object_pairs_hook=JsonObject, parse_int=JsonNumber, parse_float=JsonNumber, parse_constant=_refuse_constant
)


def judge_body(body: bytes, schema: JsonType) -> Judgement:
    """Judge the body of a message.

    Args:
        body: the body as its producer sent it.
        schema: type of the documents.
    """

    def judge(text: str) -> Judgement:
        unknown: dict[str, str] = {}
        changes: list[str] = []
        kept = check_value(decode_document(text), schema, "", unknown, changes)
        return Judgement(to_text(kept) if unknown or changes else text, unknown)

    return judge_body_text(body, judge)


def judge_body_text(body: bytes, judge: Callable[[str], Judgement]) -> Judgement:
    """Return what a judge says of the text of a body; a misfit if there is none, or the judge raises FaultError."""
    if len(body) > MAX_JSON_BYTES:
        expected, found = f"at most {MAX_JSON_BYTES:,} bytes", f"{len(body):,} bytes"
        return Judgement(None, {}, Misfit(MisfitReason.TOO_LARGE, "", expected, found))
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        found = f"byte 0x{body[error.start]:02x} at {error.start}"
        return Judgement(None, {}, Misfit(MisfitReason.NOT_UTF8, "", "text in UTF-8", found))
    try:
        return judge(text)
    except FaultError as fault:
        return Judgement(None, {}, fault.misfit)
    except RecursionError:
        misfit = Misfit(MisfitReason.TOO_DEEP, "", "lists and objects that are nested less deeply", "deeper ones")
        return Judgement(None, {}, misfit)


def parse_document(body: bytes) -> JsonObject | None:
    """Return the document in a body; None if it is none, or no object."""
    try:
        document = _decoder.decode(body.decode())
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, JsonObject) else None


def kind_of_value(value: object) -> JsonKind:
    """Return the kind of a value of a document that is not null; ANY for a number that no column can hold."""
    if isinstance(value, JsonObject):
        return JsonKind.OBJECT
    if isinstance(value, list):
        return JsonKind.LIST
    if isinstance(value, bool):
        return JsonKind.BOOLEAN
    if isinstance(value, JsonNumber):
        kinds: Sequence[JsonKind] = (JsonKind.INTEGER,) if value.lstrip("-").isdecimal() else (JsonKind.NUMBER,)
    else:
        kinds = (JsonKind.TIME, JsonKind.DATE, JsonKind.STRING)
    for kind in kinds:
        try:
            _check_scalar(value, kind, "")
        except FaultError:
            continue
        return kind
    return JsonKind.ANY


def decode_document(text: str) -> object:
    """Return the one JSON document in a text.

    Raises:
        FaultError: if there is none.
    """
    try:
        return _decoder.decode(text)
    except ValueError as error:
        # Without the text, which may be what masks are to hide.
        found = str(error) if isinstance(error, json.JSONDecodeError) else f"{error}, which JSON does not have"
        raise FaultError(MisfitReason.NOT_JSON, "", "one JSON document", found) from None


def check_value(value: object, schema: JsonType, place: str, unknown: dict[str, str], changes: list[str]) -> object:
    """Check a value, and return it with the fields of the schema only.

    Args:
        value: the value.
        schema: its type.
        place: the place of the value in the document.
        unknown: gets the JSON texts of fields that the schema lacks, by place.
        changes: gets the places where the result differs otherwise.

    Raises:
        FaultError: if it does not fit.
    """
    kind = schema.kind
    if value is None:
        if not schema.is_nullable:
            raise FaultError(MisfitReason.WRONG_TYPE, place, kind, "null")
        return None
    if kind is JsonKind.ANY:
        _check_names(value, place)
        changes.append(place)
        return to_text(value)
    if kind is JsonKind.OBJECT and isinstance(value, JsonObject):
        return _check_object(value, schema, place, unknown, changes)
    if kind is JsonKind.LIST and type(value) is list:
        element = schema.element
        assert element is not None
        return [check_value(each, element, f"{place}[{n}]", unknown, changes) for n, each in enumerate(value)]
    _check_scalar(value, kind, place)
    return value


def _check_scalar(value: object, kind: JsonKind, place: str) -> None:
    if isinstance(value, JsonNumber) and kind in {JsonKind.INTEGER, JsonKind.NUMBER}:
        _check_number(value, kind, place)
    elif is_text(value) and kind in _TEXT_KINDS:
        _check_text(value, kind, place)
    elif not isinstance(value, bool) or kind is not JsonKind.BOOLEAN:
        raise FaultError(MisfitReason.WRONG_TYPE, place, kind, describe_value(value))


_TEXT_KINDS = frozenset({JsonKind.STRING, JsonKind.TIME, JsonKind.DATE})


def _check_object(
    pairs: JsonObject, schema: JsonType, place: str, unknown: dict[str, str], changes: list[str]
) -> JsonObject:
    values = to_dict(pairs, place)
    prefix = f"{place}." if place else ""
    kept = JsonObject()
    for field in schema.fields:
        value = values.pop(field.name, None)
        if value is not None:
            kept.append((field.name, check_value(value, field.type, prefix + field.name, unknown, changes)))
        elif field.is_required and not (field.type.is_nullable and any(name == field.name for name, _ in pairs)):
            raise FaultError(MisfitReason.MISSING, prefix + field.name, field.type.kind, "no value")
    for name, value in values.items():
        _check_names(value, prefix + name)
        _check_surrogates(name, prefix)
        unknown[prefix + name] = to_text(value)
    return kept


def to_dict(pairs: JsonObject, place: str) -> dict[str, object]:
    """Return an object's values by name.

    Raises:
        FaultError: if it has a name twice.
    """
    values = dict(pairs)
    if len(values) < len(pairs):
        seen = set[str]()
        name = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise FaultError(MisfitReason.REPEATED_NAME, f"{place}.{name}" if place else name, "each name once", "twice")
    return values


def _check_names(value: object, place: str) -> None:
    """Refuse repeated names and broken texts in a value of any type."""
    if isinstance(value, JsonObject):
        for name, each in to_dict(value, place).items():
            _check_surrogates(name, place)
            _check_names(each, f"{place}.{name}")
    elif isinstance(value, list):
        for number, each in enumerate(value):
            _check_names(each, f"{place}[{number}]")
    elif isinstance(value, str):
        _check_surrogates(value, place)


def _check_number(text: str, kind: JsonKind, place: str) -> None:
    if len(text) > _MAX_NUMBER_CHARACTERS:
        expected = f"a number of at most {_MAX_NUMBER_CHARACTERS:,} characters"
        raise FaultError(MisfitReason.OUT_OF_RANGE, place, expected, f"{len(text):,} characters")
    if kind is JsonKind.NUMBER:
        number = float(text)
        if math.isinf(number):
            raise FaultError(MisfitReason.OUT_OF_RANGE, place, "a number of 64 bits", _short(text))
        return
    if not text.lstrip("-").isdecimal():
        raise FaultError(MisfitReason.WRONG_TYPE, place, kind, f"the number {_short(text)}")
    if len(text) > 20 or not -_INT64 <= int(text) < _INT64:
        raise FaultError(MisfitReason.OUT_OF_RANGE, place, "an integer of 64 bits", _short(text))


def _check_text(text: str, kind: JsonKind, place: str) -> None:
    _check_surrogates(text, place)
    if kind is JsonKind.STRING:
        return
    form, parse = (_TIME, datetime.datetime) if kind is JsonKind.TIME else (_DATE, datetime.date)
    if form.fullmatch(text) is None:
        form_text = "2026-11-20T14:00:00.123456Z" if kind is JsonKind.TIME else "2026-11-20"
        raise FaultError(MisfitReason.WRONG_TYPE, place, f"a {kind}, such as {form_text}", describe_value(text))
    try:
        parse.fromisoformat(text)
    except ValueError:
        raise FaultError(MisfitReason.OUT_OF_RANGE, place, f"a {kind} of the calendar", describe_value(text)) from None


def _check_surrogates(text: str, place: str) -> None:
    if not text.isascii() and _SURROGATE.search(text):
        raise FaultError(MisfitReason.OUT_OF_RANGE, place, "text", "half of a surrogate pair")


def describe_value(value: object) -> str:
    """Return the kind of a value that is not null, without the value of a text."""
    if isinstance(value, JsonNumber):
        return f"the number {_short(value)}"
    if isinstance(value, str):
        return f"a string of {len(value):,} characters"
    if isinstance(value, bool):
        return str(value).lower()
    return "an object" if isinstance(value, JsonObject) else "a list"


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def to_text(value: object) -> str:
    """Return a value of a document as JSON text, with its numbers as they were."""
    return "".join(_text_pieces(value))


def _text_pieces(value: object) -> Iterator[str]:
    if isinstance(value, JsonNumber):
        yield str(value)
    elif isinstance(value, JsonObject):
        yield "{"
        for number, (name, each) in enumerate(value):
            yield f"{',' if number else ''}{json.dumps(name, ensure_ascii=False)}:"
            yield from _text_pieces(each)
        yield "}"
    elif isinstance(value, list):
        yield "["
        for number, each in enumerate(value):
            yield "," if number else ""
            yield from _text_pieces(each)
        yield "]"
    else:
        yield json.dumps(value, ensure_ascii=False)
