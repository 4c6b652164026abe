"""The shape of a message's body: the names and types of its JSON fields, without their values.

    {"id": 7, "customer": {"name": "A"}, "items": [{"sku": "x"}, {"sku": null}]}
    customer.name:string, id:number, items[].sku:null|string

Two bodies of the same shape usually fail in a consumer for the same reason. A shape is limited in size: fields deeper
than `MAX_DEPTH` are `object` or `array`, only the first `MAX_ITEMS` elements of an array are used, and fields beyond
`MAX_PATHS` are counted. A name that is an id, as in an object from order numbers to orders, becomes `*`. Bodies that
are not JSON have a shape by kind: `(empty)`, `(text)`, `(binary)`, `(large)`, `(none)`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

MAX_DEPTH = 5
MAX_PATHS = 40
MAX_ITEMS = 16
MAX_NAME_LENGTH = 40
MAX_BODY_BYTES = 256 << 10
"""Maximum size of a body that is parsed; a larger one is `(large)`."""

EMPTY, TEXT, BINARY, LARGE, NONE = "(empty)", "(text)", "(binary)", "(large)", "(none)"
_ID = re.compile(r"[0-9]+|[0-9a-fA-F]{8}-[0-9a-fA-F-]{27}|(?=.*[0-9])[0-9a-fA-F]{16,}|(?=.*[0-9]).{41,}")
_MAX_FIELDS = 10_000
"""Maximum number of fields read from a body: the shape of a larger body is that of its beginning."""


def body_shape(body: bytes | None) -> str:
    """Return the shape of a body.

    Args:
        body: the body as the producer sent it; None if there is none.
    """
    if body is None:
        return NONE
    if not body:
        return EMPTY
    if len(body) > MAX_BODY_BYTES:
        return LARGE
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return BINARY
    try:
        value = json.loads(text, parse_int=_number, parse_float=_number)
    except (ValueError, RecursionError):
        return BINARY if "\0" in text else TEXT
    return _shape_of(value)


def _number(_: str) -> float:
    return 0.0


def _shape_of(value: object) -> str:
    types: dict[str, set[str]] = {}
    for looked, (path, kind) in enumerate(_fields(value, "", 0)):
        if looked == _MAX_FIELDS:
            break
        types.setdefault(path, set()).add(kind)
    parts = [f"{path}:{'|'.join(sorted(types[path]))}".removeprefix(":") for path in sorted(types)]
    more = [f"and {len(parts) - MAX_PATHS} more"] if len(parts) > MAX_PATHS else []
    return ", ".join(parts[:MAX_PATHS] + more)


def _fields(value: Any, path: str, depth: int) -> Iterator[tuple[str, str]]:
    """Yield the path and type of each value that has no parts, or whose parts are too deep."""
    if isinstance(value, dict):
        if not value or depth == MAX_DEPTH:
            yield path, "object"
            return
        for name, part in value.items():
            yield from _fields(part, f"{path}.{_name(name)}".removeprefix("."), depth + 1)
    elif isinstance(value, list):
        if not value or depth == MAX_DEPTH:
            yield path, "array"
            return
        for part in value[:MAX_ITEMS]:
            yield from _fields(part, f"{path}[]", depth + 1)
    else:
        yield path, _type_of(value)


def _name(name: str) -> str:
    if _ID.fullmatch(name):
        return "*"
    name = name.encode(errors="backslashreplace").decode()  # JSON may have half a surrogate pair
    return name if len(name) <= MAX_NAME_LENGTH else name[:MAX_NAME_LENGTH] + "…"


def _type_of(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case str():
            return "string"
        case _:
            return "number"
