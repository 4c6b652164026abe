"""Conversion between body classes and JSON, based on each body's declaration; see ext_fields.py for headers.

    class TopicStats(NamedTuple):
        offset_table: dict[MessageQueue, TopicOffset]   keys may be strings, integers, or declared types
        topic_put_tps: float | None = None              omitted if it is None

    stats = parse_body(TopicStats, command.body)
    body = serialize_body(stats)

Not every client is written in Java: integers may come as text, and null fields may be omitted. Unknown fields are
ignored.
"""

from __future__ import annotations

import functools
import json
import types
from collections.abc import Callable, Mapping
from typing import Annotated, Any, NamedTuple, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from commitlake.schemas.layouts.integer_parsing import int_in_range, parse_int
from commitlake.schemas.remoting.errors import BodyError
from commitlake.schemas.remoting.ext_fields import IntegerBits, field_key
from commitlake.schemas.remoting.fastjson import parse_fastjson, replace_lone_surrogates, serialize_compact
from commitlake.schemas.remoting.frames import MAX_FRAME_BYTES

B = TypeVar("B", bound=NamedTuple)
_Reader = Callable[[Any, str], Any]

_REQUIRED = object()
_FOUND_LENGTH = 80


def parse_body(
    body_class: type[B], body: bytes | memoryview, *, limit: int = MAX_FRAME_BYTES, is_plain_json: bool = False
) -> B:
    """Parse a JSON body into a value of the given class.

    Args:
        body_class: class of the body.
        limit: maximum size in bytes; parsed JSON can take twenty times the memory.
        is_plain_json: whether fastjson writes plain JSON for this body, as no map has numbers or objects as keys; then
            fastjson's dialect is not tried, which takes ten times as long to parse.

    Raises:
        BodyError: if the body is not JSON, too large, lacks a required field or has a field of a wrong type.
    """
    if len(body) > limit:
        raise BodyError(f"{body_class.__name__}: expected at most {limit} bytes, found {len(body)}")
    try:
        value = (
            json.loads(replace_lone_surrogates(str(body, "utf-8", "replace")))
            if is_plain_json
            else parse_fastjson(body)
        )
    except RecursionError:
        raise BodyError(f"{body_class.__name__}: expected JSON, found JSON that is nested too deeply") from None
    except ValueError as error:
        raise BodyError(
            f"{body_class.__name__}: expected JSON, found invalid JSON: {str(error)[:_FOUND_LENGTH]}"
        ) from None
    return from_json(body_class, value)


def from_json(value_class: type[B], value: Any) -> B:
    """Convert parsed JSON (dicts, lists, texts, numbers) to a value of the given class.

    Raises:
        BodyError: if a required field is missing or has a wrong type.
    """
    return cast("B", _make_value_reader(value_class)(value, value_class.__name__))


def serialize_body(value: NamedTuple, *, is_standard_json: bool = False) -> bytes:
    """Serialize a value as the body of a request or answer: JSON in the form that fastjson writes.

    Args:
        value: content of the body.
        is_standard_json: whether integer keys are quoted, so that the body is standard JSON.
    """
    document = to_json(value)
    if is_standard_json:
        return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    return serialize_compact(document)


def to_json(value: Any) -> Any:
    """Convert a value to dicts and lists for `serialize_fastjson`, without fields that are None."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        keys = _list_json_keys(type(value))
        return {key: to_json(item) for key, item in zip(keys, value, strict=True) if item is not None}
    if isinstance(value, tuple | list):
        return [to_json(item) for item in value]
    if isinstance(value, Mapping):
        return {_json_key(key): to_json(item) for key, item in value.items()}
    return value


def _json_key(key: Any) -> Any:
    return tuple(sorted(to_json(key).items())) if isinstance(key, tuple) else key


@functools.cache
def _list_json_keys(body_class: Any) -> tuple[str, ...]:
    hints = get_type_hints(body_class, include_extras=True)
    return tuple(field_key(name, hints[name]) for name in body_class._fields)


@functools.cache
def _make_value_reader(type_hint: Any) -> _Reader:
    """Return a function that converts parsed JSON to a value of the given type.

    Its second argument is the value's path, for error messages.
    """
    origin, arguments = get_origin(type_hint), get_args(type_hint)
    if origin is Annotated:
        return _long if IntegerBits(64) in arguments[1:] else _make_value_reader(arguments[0])
    if origin in (Union, types.UnionType):
        (type_hint,) = (part for part in arguments if part is not types.NoneType)
        return _make_value_reader(type_hint)
    if origin is tuple:
        return _make_list_reader(_make_value_reader(arguments[0]))
    if origin is dict:
        return _make_dict_reader(arguments[0], _make_value_reader(arguments[1]))
    if hasattr(type_hint, "_fields"):
        return _make_object_reader(type_hint)
    return _READERS[type_hint]


def _make_list_reader(read_item: _Reader) -> _Reader:
    def read_list(value: Any, path: str) -> Any:
        if not isinstance(value, list):
            raise _value_error(path, "a list", value)
        return tuple([read_item(item, path) for item in value])

    return read_list


def _make_dict_reader(key_type_hint: Any, read_value: _Reader) -> _Reader:
    read_key = _make_value_reader(key_type_hint)
    is_object = hasattr(key_type_hint, "_fields")

    def read_dict(value: Any, path: str) -> Any:
        if not isinstance(value, dict):
            raise _value_error(path, "an object", value)
        return {
            read_key(dict(key) if is_object and isinstance(key, tuple) else key, path): read_value(item, path)
            for key, item in value.items()
        }

    return read_dict


def _make_object_reader(object_class: Any) -> _Reader:
    hints = get_type_hints(object_class, include_extras=True)
    plan = [
        (key, _make_value_reader(hints[name]), object_class._field_defaults.get(name, _REQUIRED))
        for name, key in zip(object_class._fields, _list_json_keys(object_class), strict=True)
    ]

    def read_object(value: Any, path: str) -> Any:
        if not isinstance(value, dict):
            raise _value_error(path, "an object", value)
        values = []
        for key, read, default in plan:
            item = value.get(key)
            if item is not None:
                values.append(read(item, f"{path}.{key}"))
            elif default is _REQUIRED:
                raise BodyError(f"{path}: expected the field {key!r}, found none")
            else:
                values.append(default)
        return object_class._make(values)

    return read_object


def _value_error(path: str, expected: str, value: Any) -> BodyError:
    found = (
        f"a {type(value).__name__} of {len(value)}" if isinstance(value, dict | list) else repr(value)[:_FOUND_LENGTH]
    )
    return BodyError(f"{path}: expected {expected}, found {found}")


def _read_text(value: Any, path: str) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool | int):  # a key that fastjson left without quotes, or a property that is a number
        return str(value).lower()
    raise _value_error(path, "text", value)


def _make_integer_reader(bits: int) -> _Reader:
    limit = 1 << (bits - 1)

    def read_integer(value: Any, path: str) -> int:
        is_text = isinstance(value, str)
        number = parse_int(value, -limit, limit - 1) if is_text else int_in_range(value, -limit, limit - 1)
        if number is None:
            raise _value_error(path, f"a whole number of {bits} bits", value)
        return number

    return read_integer


_long = _make_integer_reader(64)


def _read_bool(value: Any, path: str) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise _value_error(path, "true or false", value)


def _read_float(value: Any, path: str) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            pass
    raise _value_error(path, "a number", value)


_READERS: dict[Any, _Reader] = {str: _read_text, int: _make_integer_reader(32), bool: _read_bool, float: _read_float}
