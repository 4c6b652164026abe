"""Bodies of answers with many entries, which are serialized in steps of a hundred entries, or page by page."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from commitlake.schemas.remoting.errors import BodyError
from commitlake.schemas.remoting.fastjson import serialize_compact
from commitlake.schemas.remoting.frames import MAX_FRAME_BYTES
from commitlake.schemas.remoting.json_fields import to_json

_ENTRIES_OF_STEP = 100


def serialize_table_body(
    name: str, entries: Iterable[tuple[Any, Any]], other_fields: Callable[[], Mapping[str, Any]] = dict
) -> Generator[None, None, bytes]:
    """Serialize step by step an answer body that contains a large table: `{"name":{...},others}`.

    Args:
        name: name of the table.
        entries: keys and values; they are taken in small steps.
        other_fields: returns the other fields; called when the table is complete.

    Raises:
        BodyError: if the table does not fit in a frame.
    """
    remaining = iter(entries)
    pieces = []
    size = 0
    while chunk := dict(islice(remaining, _ENTRIES_OF_STEP)):
        pieces.append(serialize_compact(to_json(chunk))[1:-1])
        size = _check_size(name, size + len(pieces[-1]) + 1)
        yield
    table = b'"' + name.encode() + b'":{' + b",".join(pieces) + b"}"
    fields = [table, *(serialize_compact({key: to_json(value)})[1:-1] for key, value in other_fields().items())]
    return b"{" + b",".join(fields) + b"}"


def serialize_list_body(
    name: str, entries: Iterable[Any], other_fields: Callable[[], Mapping[str, Any]] = dict
) -> Generator[None, None, bytes]:
    """Serialize step by step an answer body that contains a long list: `{"name":["a","b"],others}`.

    Args:
        name: name of the list.
        entries: strings or bodies; they are taken in small steps.
        other_fields: returns the other fields; called when the list is complete.

    Raises:
        BodyError: if the list does not fit in a frame.
    """
    items = yield from _serialize_items(name, entries)
    fields = [b'"' + name.encode() + b'":[' + items + b"]"]
    fields += [serialize_compact({key: to_json(value)})[1:-1] for key, value in other_fields().items()]
    return b"{" + b",".join(fields) + b"}"


def serialize_table_of_lists(name: str, lists: Iterable[tuple[str, Iterable[Any]]]) -> Generator[None, None, bytes]:
    """Serialize step by step an answer body that contains a table of lists: `{"name":{"key":["a","b"]}}`.

    Args:
        name: name of the table.
        lists: keys and lists; their items are taken in small steps.

    Raises:
        BodyError: if the table does not fit in a frame.
    """
    pieces = []
    size = 0
    for number, (key, entries) in enumerate(lists):
        items = yield from _serialize_items(name, entries, size)
        pieces.append(serialize_compact(key) + b":[" + items + b"]")
        size = _check_size(name, size + len(pieces[-1]) + 1)
        if number % _ENTRIES_OF_STEP == _ENTRIES_OF_STEP - 1:
            yield
    return b'{"' + name.encode() + b'":{' + b",".join(pieces) + b"}}"


def _serialize_items(name: str, entries: Iterable[Any], initial_size: int = 0) -> Generator[None, None, bytes]:
    """Serialize entries as JSON with commas between them; yield after every hundred entries."""
    remaining = iter(entries)
    pieces = []
    while chunk := list(islice(remaining, _ENTRIES_OF_STEP)):
        pieces.append(serialize_compact(to_json(chunk))[1:-1])
        initial_size = _check_size(name, initial_size + len(pieces[-1]) + 1)
        if len(chunk) == _ENTRIES_OF_STEP:
            yield
    return b",".join(pieces)


def _check_size(name: str, size: int) -> int:
    if size > MAX_FRAME_BYTES:
        raise BodyError(f"{name}: expected an answer of at most {MAX_FRAME_BYTES} bytes, found a larger one")
    return size


def select_page(names: Sequence[str], first: int | None, count: int | None) -> Sequence[str]:
    """Return the names on the requested page of a table; clients since 5.5 request tables page by page.

    Args:
        first: number of entries to skip; None for 0.
        count: maximum number of entries; None for all.
    """
    begin = max(0, first or 0)
    return names[begin:] if count is None or count <= 0 else names[begin : begin + count]
