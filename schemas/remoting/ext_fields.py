"""Conversion between header classes and the ext fields of commands, based on each header's declaration.

    class OffsetRequest(NamedTuple):
        topic: str                                      required: `topic`
        queue_id: int                                   required: `queueId`, a Java int
        timestamp: Long                                 a Java long
        boundary_type: str | None = None                omitted if it is None
        is_unique_key: Annotated[bool, Key("_UNIQUE_KEY_QUERY")] = False

    header = from_ext_fields(OffsetRequest, command.ext_fields)
    command = Command(code, to_ext_fields(header))

Unknown ext fields are ignored, as in RocketMQ. Headers are named tuples because a broker creates two for each message,
and a frozen dataclass takes four times as long to create.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from commitlake.schemas.layouts.integer_parsing import parse_int
from commitlake.schemas.remoting.errors import CommandError

H = TypeVar("H", bound=NamedTuple)

_REQUIRED = object()


class ExtFieldName(str):
    """Annotation with the ext field name of a header field, if that is not its Python name in camel case."""

    __slots__ = ()


class IntegerBits(int):
    """Annotation with the size of an integer field in bits."""

    __slots__ = ()


Long = Annotated[int, IntegerBits(64)]
"""Integer of 64 bits; a plain `int` has 32, as in Java."""


_TEXT, _BOOLEAN = 0, 1
"""Types of fields; any other number is that of an integer, the upper limit of its absolute value."""
_Plan = tuple[tuple[str, int, Any], ...]


def from_ext_fields(header_class: type[H], fields: Mapping[str, str], *, has_one_letter_names: bool = False) -> H:
    """Parse ext fields into a header of the given class.

    Args:
        header_class: class of the header.
        fields: ext fields of a command.
        has_one_letter_names: whether the names are a, b, c … in the order of the declaration, as in a V2 send.

    Raises:
        CommandError: if a required field is missing, or a value does not have its type.
    """
    values = []
    get = fields.get
    for key, limit, default in _list_fields(header_class, has_one_letter_names):
        text = get(key)
        if text is None:
            if default is _REQUIRED:
                raise CommandError(f"{header_class.__name__}: expected the field {key!r}, found none")
            values.append(default)
        elif limit == _TEXT:
            values.append(text)
        elif limit == _BOOLEAN:
            values.append(text == "true" or text.lower() == "true")  # Java's parseBoolean accepts any text
        else:
            value = parse_int(text, -limit, limit - 1)
            if value is None:
                raise _field_error(header_class, key, limit, text)
            values.append(value)
    return header_class._make(values)


def _field_error(header_class: type[NamedTuple], key: str, limit: int, text: str) -> CommandError:
    bits = limit.bit_length()
    return CommandError(f"{header_class.__name__}.{key}: expected a whole number of {bits} bits, found {text[:80]!r}")


def to_ext_fields(header: NamedTuple, *, has_one_letter_names: bool = False) -> dict[str, str]:
    """Return a header as ext fields, without fields that are None."""
    return {
        key: value if value.__class__ is str else _BOOLEANS[value] if value.__class__ is bool else str(value)
        for key, value in zip(_list_field_names(header.__class__, has_one_letter_names), header, strict=True)
        if value is not None
    }


_BOOLEANS = {True: "true", False: "false"}


@functools.cache
def _list_field_names(header_class: type[NamedTuple], has_one_letter_names: bool) -> tuple[str, ...]:
    """Return the names of a header's ext fields, in the order of the declaration."""
    if has_one_letter_names:
        return tuple(chr(ord("a") + number) for number in range(len(header_class._fields)))
    hints = get_type_hints(header_class, include_extras=True)
    return tuple(field_key(name, hints[name]) for name in header_class._fields)


@functools.cache
def _list_fields(header_class: type[NamedTuple], has_one_letter_names: bool) -> _Plan:
    """Return the name, type and default of each ext field of a header, in the order of the declaration."""
    hints = get_type_hints(header_class, include_extras=True)
    return tuple(
        (key, _limit_of_type(hints[name]), header_class._field_defaults.get(name, _REQUIRED))
        for name, key in zip(header_class._fields, _list_field_names(header_class, has_one_letter_names), strict=True)
    )


def field_key(name: str, type_hint: Any) -> str:
    """Return RocketMQ's name for a header field: from its annotation, or else in camel case."""
    for note in getattr(type_hint, "__metadata__", ()):
        if isinstance(note, ExtFieldName):
            return str(note)
    first, *others = name.split("_")
    return first + "".join(other.capitalize() for other in others)


def _limit_of_type(type_hint: Any) -> int:
    """Return the first integer above the range of a field's type; a constant for text and boolean fields."""
    if get_origin(type_hint) is Annotated:
        base, *notes = get_args(type_hint)
        return 1 << 63 if IntegerBits(64) in notes else _limit_of_type(base)
    if get_origin(type_hint) in (Union, types.UnionType):
        (type_hint,) = (part for part in get_args(type_hint) if part is not types.NoneType)
        return _limit_of_type(type_hint)
    return _LIMITS[type_hint]


_LIMITS: dict[Any, int] = {str: _TEXT, bool: _BOOLEAN, int: 1 << 31}
