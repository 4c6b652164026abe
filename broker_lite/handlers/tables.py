"""Bodies with tables of many entries, made a hundred at a time."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from itertools import islice
from typing import Any

from schemas.remoting.fastjson import serialize_compact
from schemas.remoting.json_fields import to_json

_ENTRIES_OF_STEP = 100


def table_body(
    name: str, entries: Iterable[tuple[Any, Any]], others: Callable[[], Mapping[str, Any]] = dict
) -> Generator[None, None, bytes]:
    """Return the body of an answer as fastjson writes it: `{"name":{...},others}`.

    Args:
        name: of the table.
        entries: its keys and values; they are taken in small steps.
        others: gives the other fields, when the table is ready.
    """
    remaining = iter(entries)
    pieces = []
    while chunk := dict(islice(remaining, _ENTRIES_OF_STEP)):
        pieces.append(serialize_compact(to_json(chunk))[1:-1])
        yield
    table = b'"' + name.encode() + b'":{' + b",".join(pieces) + b"}"
    fields = [table, *(serialize_compact({key: to_json(value)})[1:-1] for key, value in others().items())]
    return b"{" + b",".join(fields) + b"}"
