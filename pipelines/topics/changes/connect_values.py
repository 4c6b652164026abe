"""Values of Kafka Connect's JSON converter, by the schema that it writes beside them, as JSON values of a field.

    {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}, "field": "total"}

name of the type                               encoded as                             decoded as
org.apache.kafka.connect.data.Decimal          base64 of a big-endian integer, scale  number, or text with all digits
io.debezium.data.VariableScaleDecimal          {"scale": 2, "value": base64}          the same
io.debezium.time.Date, ...connect.data.Date    days since 1970                        date
io.debezium.time.Timestamp, Micro..., Nano...  ms, us, ns since 1970, no time zone    local time
org.apache.kafka.connect.data.Timestamp        ms since 1970, no time zone            local time
io.debezium.time.Time, Micro..., Nano...       ms, us, ns since midnight              text such as 14:00:00.5
io.debezium.time.IsoDate, IsoTimestamp         text with a Z that means no time zone  date, local time
io.debezium.data.Json                          text                                   its document

All others are JSON values already: io.debezium.time.ZonedTimestamp is a text with a time zone, bytes are base64, and an
enum is a text. RocketMQ Connect writes the same schemas, with the names io.openmessaging.connector.api.data.logical.*
for those of Kafka Connect.

Without a schema, a decimal in base64 and a time in an unknown unit cannot be decoded: they are faults that name the
setting to change. Numbers of fields that are integers in the topic's schema are kept as they are.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import re
from collections.abc import Callable, Mapping

from commitlake.pipelines.topics.document_check import (
    NUMBER,
    FaultError,
    JsonNumber,
    JsonObject,
    MisfitReason,
    decode_document,
    describe_value,
    is_text,
)
from commitlake.pipelines.topics.json_schema import JsonKind, JsonType
from commitlake.schemas.layouts.integer_parsing import parse_int64

_UNAVAILABLE = frozenset({"__debezium_unavailable_value", "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="})
"""Debezium's value for a large value that PostgreSQL did not log, because it did not change; as text and as base64."""
_ISO_TIME = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d(?:\.\d+)?)Z", re.ASCII)
_NUMBER_KINDS = frozenset({JsonKind.INTEGER, JsonKind.NUMBER})
_EPOCH_DAY = datetime.date(1970, 1, 1).toordinal()
_EPOCH = datetime.datetime(1970, 1, 1)  # noqa: DTZ001 (local times have no zone)
_MAX_DECIMAL_BYTES = 415
"""Size of a decimal of 1,000 digits, the longest number that Spark reads."""
_MAX_SCALE = 1_000
_SCHEMA_SETTING = "schemas.enable = true of the connector's JSON converter"

ConnectType = Mapping[str, object]
"""The schema of a value, as the JSON converter writes it."""


def find_column_types(schema: object, side: str) -> Mapping[str, ConnectType] | None:
    """Return the types of the columns on a side of an envelope, by name; None if there is no schema."""
    if not isinstance(schema, JsonObject):
        return None
    envelope = _fields_by_name(dict(schema))
    return _fields_by_name(envelope.get(side, {}))


def decode_column(
    types: Mapping[str, ConnectType] | None, name: str, value: object, wanted: JsonType, place: str
) -> object:
    """Return a column's value as the JSON value of its field.

    Args:
        types: the types of the columns; None if the event has none.
        name: the column.
        value: its value.
        wanted: type of its field in the topic's schema.
        place: place of the value in the event.

    Raises:
        FaultError: if it cannot be decoded.
    """
    return _decode(value, None if types is None else types.get(name), wanted, place)


def _decode(value: object, connect_type: ConnectType | None, wanted: JsonType, place: str) -> object:
    if value is None:
        return None
    if isinstance(value, str) and value in _UNAVAILABLE:
        expected = "a value, which PostgreSQL sends with ALTER TABLE ... REPLICA IDENTITY FULL"
        raise FaultError(MisfitReason.NOT_SENT, place, expected, "Debezium's mark for a value that was not sent")
    decode = None if connect_type is None else _DECODERS.get(str(connect_type.get("name")))
    if decode is not None and connect_type is not None:
        return decode(value, connect_type, wanted.kind, place)
    if wanted.kind is JsonKind.OBJECT and isinstance(value, JsonObject):
        types = None if connect_type is None else _fields_by_name(connect_type)
        fields = {field.name: field.type for field in wanted.fields}
        return JsonObject(
            (name, decode_column(types, name, each, fields[name], f"{place}.{name}") if name in fields else each)
            for name, each in value
        )
    if wanted.kind is JsonKind.LIST and type(value) is list and wanted.element is not None:
        items = None if connect_type is None else connect_type.get("items")
        item_type = dict(items) if isinstance(items, JsonObject) else None
        return [_decode(each, item_type, wanted.element, f"{place}[{n}]") for n, each in enumerate(value)]
    return value if connect_type is not None else _decode_without_type(value, wanted.kind, place)


def _decode_without_type(value: object, wanted: JsonKind, place: str) -> object:
    if isinstance(value, JsonNumber):
        if wanted is JsonKind.DATE:
            return _decode_date(value, {}, wanted, place)
        if wanted is JsonKind.TIME:
            expected = f"a time with its unit: {_SCHEMA_SETTING}, or an integer in the topic's schema"
            raise FaultError(MisfitReason.NEEDS_SCHEMA, place, expected, describe_value(value))
        return value
    if (
        isinstance(value, JsonObject)
        and wanted is not JsonKind.ANY
        and {name for name, _ in value} == {"scale", "value"}
    ):
        return _decode_scaled_decimal(value, {}, wanted, place)
    if isinstance(value, str) and wanted in _NUMBER_KINDS and NUMBER.fullmatch(value) is None:
        expected = f"a number: decimal.handling.mode = string or double, or {_SCHEMA_SETTING}"
        raise FaultError(MisfitReason.NEEDS_SCHEMA, place, expected, describe_value(value))
    return value


def _fields_by_name(struct: ConnectType) -> Mapping[str, ConnectType]:
    fields = struct.get("fields")
    if type(fields) is not list:
        return {}
    types = [dict(field) for field in fields if isinstance(field, JsonObject)]
    return {name: each for each in types if isinstance(name := each.get("field"), str)}


def _decode_decimal(value: object, connect_type: ConnectType, wanted: JsonKind, place: str) -> object:
    parameters = connect_type.get("parameters")
    scale = dict(parameters).get("scale") if isinstance(parameters, JsonObject) else None
    if is_text(value):
        value = _to_decimal_text(value, scale, place)
    return str(value) if wanted is JsonKind.STRING and isinstance(value, str) else value


def _decode_scaled_decimal(value: object, _: ConnectType, wanted: JsonKind, place: str) -> object:
    parts = dict(value) if isinstance(value, JsonObject) else {}
    unscaled = parts.get("value")
    if not is_text(unscaled):
        return value
    text = _to_decimal_text(unscaled, parts.get("scale"), place)
    return str(text) if wanted is JsonKind.STRING else text


def _to_decimal_text(encoded: str, scale_text: object, place: str) -> JsonNumber:
    """Return a decimal number, of which all digits are kept."""
    scale = parse_int64(scale_text) if isinstance(scale_text, str) else None
    if scale is None or abs(scale) > _MAX_SCALE:
        expected = f"a decimal with a scale of at most {_MAX_SCALE:,}"
        raise FaultError(MisfitReason.NEEDS_SCHEMA, place, expected, "another scale, or none")
    try:
        unscaled = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        unscaled = b""
    if not unscaled:
        raise FaultError(MisfitReason.WRONG_TYPE, place, "a decimal in base64", describe_value(encoded))
    if len(unscaled) > _MAX_DECIMAL_BYTES:
        expected = f"a decimal of at most {_MAX_DECIMAL_BYTES:,} bytes"
        raise FaultError(MisfitReason.OUT_OF_RANGE, place, expected, f"{len(unscaled):,} bytes")
    number = int.from_bytes(unscaled, signed=True)
    digits = str(abs(number) * 10 ** max(0, -scale)).zfill(scale + 1)
    whole, fraction = (digits[:-scale], digits[-scale:]) if scale > 0 else (digits, "")
    return JsonNumber(f"{'-' if number < 0 else ''}{whole}{'.' if fraction else ''}{fraction}")


def _decode_date(value: object, _: ConnectType, wanted: JsonKind, place: str) -> object:
    if wanted is JsonKind.INTEGER or (days := _to_integer(value)) is None:
        return value
    try:
        return datetime.date.fromordinal(_EPOCH_DAY + days).isoformat()
    except (ValueError, OverflowError):
        raise FaultError(MisfitReason.OUT_OF_RANGE, place, "a date of the calendar", describe_value(value)) from None


def _decode_local_time(units_per_second: int) -> Callable[[object, ConnectType, JsonKind, str], object]:
    def decode(value: object, _: ConnectType, wanted: JsonKind, place: str) -> object:
        if wanted is JsonKind.INTEGER or (units := _to_integer(value)) is None:
            return value
        micros = _to_micros(units, units_per_second, place)
        try:
            return (_EPOCH + datetime.timedelta(microseconds=micros)).isoformat(" ")
        except OverflowError:
            raise FaultError(
                MisfitReason.OUT_OF_RANGE, place, "a time of the calendar", describe_value(value)
            ) from None

    return decode


def _decode_time_of_day(units_per_second: int) -> Callable[[object, ConnectType, JsonKind, str], object]:
    def decode(value: object, _: ConnectType, wanted: JsonKind, place: str) -> object:
        if wanted is not JsonKind.STRING or (units := _to_integer(value)) is None:
            return value
        micros = _to_micros(units, units_per_second, place)
        # A TIME of MySQL may be negative, or longer than a day.
        seconds, fraction = divmod(abs(micros), 1_000_000)
        text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        return f"{'-' if micros < 0 else ''}{text}" + (f".{fraction:06}" if fraction else "")

    return decode


def _to_micros(units: int, units_per_second: int, place: str) -> int:
    micros, rest = divmod(units * 1_000_000, units_per_second)
    if rest:
        raise FaultError(MisfitReason.OUT_OF_RANGE, place, "a time of at most microseconds", "nanoseconds")
    return micros


def _decode_iso_date(value: object, _: ConnectType, _wanted: JsonKind, _place: str) -> object:
    return value.removesuffix("Z") if is_text(value) else value


def _decode_iso_time(value: object, _: ConnectType, _wanted: JsonKind, _place: str) -> object:
    found = _ISO_TIME.fullmatch(value) if isinstance(value, str) else None
    return value if found is None else f"{found[1]} {found[2]}"


def _decode_json(value: object, _: ConnectType, wanted: JsonKind, place: str) -> object:
    if wanted is JsonKind.STRING or not isinstance(value, str):
        return value
    try:
        return decode_document(value)
    except FaultError as fault:
        raise FaultError(MisfitReason.NOT_JSON, place, "JSON text", fault.misfit.found) from None


def _to_integer(value: object) -> int | None:
    return parse_int64(value) if isinstance(value, JsonNumber) else None


_KAFKA, _ROCKETMQ = "org.apache.kafka.connect.data", "io.openmessaging.connector.api.data.logical"
_MS, _US, _NS = 1_000, 1_000_000, 1_000_000_000
_DECODERS: Mapping[str, Callable[[object, ConnectType, JsonKind, str], object]] = {
    **{f"{owner}.Decimal": _decode_decimal for owner in (_KAFKA, _ROCKETMQ)},
    **{f"{owner}.Date": _decode_date for owner in (_KAFKA, _ROCKETMQ, "io.debezium.time")},
    **{f"{owner}.Timestamp": _decode_local_time(_MS) for owner in (_KAFKA, _ROCKETMQ, "io.debezium.time")},
    **{f"{owner}.Time": _decode_time_of_day(_MS) for owner in (_KAFKA, _ROCKETMQ, "io.debezium.time")},
    "io.debezium.time.MicroTimestamp": _decode_local_time(_US),
    "io.debezium.time.NanoTimestamp": _decode_local_time(_NS),
    "io.debezium.time.MicroTime": _decode_time_of_day(_US),
    "io.debezium.time.NanoTime": _decode_time_of_day(_NS),
    "io.debezium.time.IsoDate": _decode_iso_date,
    "io.debezium.time.IsoTimestamp": _decode_iso_time,
    "io.debezium.data.VariableScaleDecimal": _decode_scaled_decimal,
    "io.debezium.data.Json": _decode_json,
}
