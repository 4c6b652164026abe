"""Headers out of ext fields and back, by their declaration alone.

    class OffsetRequest(NamedTuple):
        topic: str                                      required: `topic`
        queue_id: int                                   required: `queueId`, a Java int
        timestamp: Long                                 a Java long
        boundary_type: str | None = None                left out where it is None
        is_unique_key: Annotated[bool, Key("_UNIQUE_KEY_QUERY")] = False

    header = from_ext_fields(OffsetRequest, command.ext_fields)
    command = Command(code, to_ext_fields(header))

Ext fields that a header does not know are passed over, as RocketMQ does. Headers are named tuples because a broker
makes two for each message, and a frozen dataclass takes four times as long to make.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from commitlake.schemas.layouts.numbers import parse_int
from commitlake.schemas.remoting.errors import HeaderError

H = TypeVar("H", bound=NamedTuple)

_REQUIRED = object()


class Key(str):
    """In a declaration: an ext field's name where it is not the field's own in camel case."""

    __slots__ = ()


class Bits(int):
    """In a declaration: the size of a whole number."""

    __slots__ = ()


Long = Annotated[int, Bits(64)]
"""A whole number of 64 bits; a plain `int` has 32, as in Java."""


_TEXT, _BOOLEAN = 0, 1
"""How a field is read; other than these: a whole number, below this in size."""
_Plan = tuple[tuple[str, int, Any], ...]


def from_ext_fields(kind: type[H], fields: Mapping[str, str], *, one_letter: bool = False) -> H:
    """The header that ext fields make.

    Args:
        kind: what header it is.
        fields: a command's.
        one_letter: whether the names are a, b, c … in the order of the declaration, as a V2 send has them.

    Raises:
        HeaderError: for a required field that is missing, or a value that is not of its type.
    """
    values = []
    get = fields.get
    for key, limit, default in _plan(kind, one_letter):
        text = get(key)
        if text is None:
            if default is _REQUIRED:
                raise HeaderError(f"{kind.__name__}: expected the field {key!r}, found none")
            values.append(default)
        elif limit == _TEXT:
            values.append(text)
        elif limit == _BOOLEAN:
            values.append(text == "true" or text.lower() == "true")  # Java's parseBoolean knows no wrong text
        else:
            value = parse_int(text, -limit, limit - 1)
            if value is None:
                raise _wrong(kind, key, limit, text)
            values.append(value)
    return kind._make(values)


def _wrong(kind: type[NamedTuple], key: str, limit: int, text: str) -> HeaderError:
    bits = limit.bit_length()
    return HeaderError(f"{kind.__name__}.{key}: expected a whole number of {bits} bits, found {text[:80]!r}")


def to_ext_fields(header: NamedTuple, *, one_letter: bool = False) -> dict[str, str]:
    """The ext fields of a header; what is None is left out."""
    return {
        key: value if value.__class__ is str else _BOOLEANS[value] if value.__class__ is bool else str(value)
        for key, value in zip(_keys(header.__class__, one_letter), header, strict=True)
        if value is not None
    }


_BOOLEANS = {True: "true", False: "false"}


@functools.cache
def _keys(kind: type[NamedTuple], one_letter: bool) -> tuple[str, ...]:
    """The names of the ext fields, in the order of the declaration."""
    if one_letter:
        return tuple(chr(ord("a") + number) for number in range(len(kind._fields)))
    hints = get_type_hints(kind, include_extras=True)
    return tuple(field_key(name, hints[name]) for name in kind._fields)


@functools.cache
def _plan(kind: type[NamedTuple], one_letter: bool) -> _Plan:
    """How each field is read, in the order of the declaration: its name, its kind, its default."""
    hints = get_type_hints(kind, include_extras=True)
    return tuple(
        (key, _limit(hints[name]), kind._field_defaults.get(name, _REQUIRED))
        for name, key in zip(kind._fields, _keys(kind, one_letter), strict=True)
    )


def field_key(name: str, hint: Any) -> str:
    """RocketMQ's name of a field that is declared as `name`."""
    for note in getattr(hint, "__metadata__", ()):
        if isinstance(note, Key):
            return str(note)
    first, *others = name.split("_")
    return first + "".join(other.capitalize() for other in others)


def _limit(hint: Any) -> int:
    """_TEXT, _BOOLEAN, or below what the size of a whole number is."""
    if get_origin(hint) is Annotated:
        base, *notes = get_args(hint)
        return 1 << 63 if Bits(64) in notes else _limit(base)
    if get_origin(hint) in (Union, types.UnionType):
        (hint,) = (part for part in get_args(hint) if part is not types.NoneType)
        return _limit(hint)
    return _LIMITS[hint]


_LIMITS: dict[Any, int] = {str: _TEXT, bool: _BOOLEAN, int: 1 << 31}
