"""Bodies of answers with many entries, serialized a hundred entries at a time."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from itertools import islice
from typing import Any

from commitlake.schemas.remoting.errors import BodyError
from commitlake.schemas.remoting.fastjson import serialize_compact
from commitlake.schemas.remoting.frames import MAX_FRAME_BYTES
from commitlake.schemas.remoting.json_fields import to_json

_ENTRIES_OF_STEP = 100


def table_body(
    name: str, entries: Iterable[tuple[Any, Any]], others: Callable[[], Mapping[str, Any]] = dict
) -> Generator[None, None, bytes]:
    """Return the body of an answer as fastjson writes it: `{"name":{...},others}`.

    Args:
        name: name of the table.
        entries: keys and values; they are taken in small steps.
        others: returns the other fields; called when the table is complete.
    """
    remaining = iter(entries)
    pieces = []
    while chunk := dict(islice(remaining, _ENTRIES_OF_STEP)):
        pieces.append(serialize_compact(to_json(chunk))[1:-1])
        yield
    table = b'"' + name.encode() + b'":{' + b",".join(pieces) + b"}"
    fields = [table, *(serialize_compact({key: to_json(value)})[1:-1] for key, value in others().items())]
    return b"{" + b",".join(fields) + b"}"


def list_body(name: str, entries: Iterable[str]) -> Generator[None, None, bytes]:
    """Return the body of an answer that is a list of strings: `{"name":["a","b"]}`.

    Args:
        name: name of the list.
        entries: the strings; they are taken in small steps.

    Raises:
        BodyError: if the list does not fit in a frame.
    """
    remaining = iter(entries)
    pieces, size = [], 0
    while chunk := list(islice(remaining, _ENTRIES_OF_STEP)):
        pieces.append(serialize_compact(chunk)[1:-1])
        size += len(pieces[-1])
        if size > MAX_FRAME_BYTES:
            raise BodyError(f"{name}: expected at most {MAX_FRAME_BYTES} bytes, found more")
        yield
    return b'{"' + name.encode() + b'":[' + b",".join(pieces) + b"]}"
