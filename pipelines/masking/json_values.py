"""Replaces values in a JSON text; the rest of the text stays unchanged."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from json.decoder import scanstring  # type: ignore[attr-defined]  # typeshed lacks it

from commitlake.schemas.errors import CommitLakeError, ExitCode

Replace = Callable[[str], str | None]
"""Function from the text of a value to its replacement; None stands for null."""

_BLANKS = re.compile(r"[ \t\n\r]*")
_decoder = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str)  # numbers may have any length
_scan = _decoder.scan_once  # type: ignore[attr-defined]  # the type stubs lack it


class JsonError(CommitLakeError):
    """A text that is not JSON, or is nested too deeply."""

    exit_code = ExitCode.DAMAGE


class _Number(str):
    """A number as written in the text: it may have more digits than a float, or than Python can parse."""

    __slots__ = ()


class _Object(list[tuple[str, object]]):
    """Names and values in their order; a repeated name is kept, and both values are replaced."""


def replace_values(body: bytes, path: Sequence[str], replace: Replace) -> bytes:
    """Replace the values at a path.

    Python's own scanner skips the other values one member at a time, and they stay byte for byte.

    Args:
        body: JSON, in UTF-8.
        path: names from the top; in a list, the path applies to each element.
        replace: called with the text of a string, the digits of a number, or the JSON of any other value except null.

    Returns:
        The JSON with only the values at the path changed.

    Raises:
        JsonError: if the body is not JSON.
    """
    edits: list[tuple[int, int, str]] = []
    try:
        text = body.decode()
        _check_end(text, _skip(text, _read(text, _skip(text, 0), path, replace, edits)))
    except RecursionError:
        raise JsonError("expected JSON of some hundred levels, found more") from None
    except ValueError as error:
        raise JsonError(f"expected JSON, found something else: {error}") from None
    if not edits:
        return body
    pieces, done = [], 0
    for start, end, new in edits:
        pieces += [text[done:start], new]
        done = end
    return "".join([*pieces, text[done:]]).encode("utf-8", "surrogatepass")


def _check_end(text: str, at: int) -> None:
    if at != len(text):
        raise ValueError(f"extra data at character {at:,}")


def _skip(text: str, at: int) -> int:
    found = _BLANKS.match(text, at)
    assert found is not None  # it also matches an empty text
    return found.end()


def _read(text: str, at: int, path: Sequence[str], replace: Replace, edits: list[tuple[int, int, str]]) -> int:
    """Read a value, add its replacement to the edits, and return where the value ends."""
    first = text[at : at + 1]
    if first == "[":
        return _read_list(text, at, path, replace, edits)
    if first == "{" and path:
        return _read_object(text, at, path, replace, edits)
    end = _end_of(text, at)
    if not path and first != "n":
        value = text[at:end]
        if first == '"':
            value = scanstring(text, at + 1)[0]
        elif first == "{":
            value = _compact(value)
        edits.append((at, end, json.dumps(replace(value), ensure_ascii=False)))
    return end


def _end_of(text: str, at: int) -> int:
    try:
        return int(_scan(text, at)[1])
    except StopIteration:
        raise ValueError(f"no value at character {at:,}") from None


def _read_list(text: str, at: int, path: Sequence[str], replace: Replace, edits: list[tuple[int, int, str]]) -> int:
    at = _skip(text, at + 1)
    if text[at : at + 1] == "]":
        return at + 1
    while True:
        at = _skip(text, _read(text, at, path, replace, edits))
        if text[at : at + 1] == "]":
            return at + 1
        at = _skip(text, _expect(text, at, ","))


def _read_object(text: str, at: int, path: Sequence[str], replace: Replace, edits: list[tuple[int, int, str]]) -> int:
    at = _skip(text, at + 1)
    if text[at : at + 1] == "}":
        return at + 1
    while True:
        name, at = scanstring(text, _expect(text, at, '"'))
        at = _skip(text, _expect(text, _skip(text, at), ":"))
        at = _read(text, at, path[1:], replace, edits) if name == path[0] else _end_of(text, at)
        at = _skip(text, at)
        if text[at : at + 1] == "}":
            return at + 1
        at = _skip(text, _expect(text, at, ","))


def _expect(text: str, at: int, character: str) -> int:
    if text[at : at + 1] != character:
        raise ValueError(f"expected {character!r} at character {at:,}")
    return at + 1


def _compact(text: str) -> str:
    """Return JSON without blanks, so that equal values have the same hash."""
    value = json.loads(text, object_pairs_hook=_Object, parse_int=_Number, parse_float=_Number, parse_constant=_Number)
    return "".join(_pieces(value))


def _pieces(value: object) -> list[str]:
    if isinstance(value, _Number):
        return [value]
    if isinstance(value, _Object):
        members = [[json.dumps(name, ensure_ascii=False), ":", *_pieces(member)] for name, member in value]
        return ["{", *_joined(members), "}"]
    if isinstance(value, list):
        return ["[", *_joined([_pieces(element) for element in value]), "]"]
    return [json.dumps(value, ensure_ascii=False)]


def _joined(parts: Sequence[Sequence[str]]) -> list[str]:
    found: list[str] = []
    for part in parts:
        found += [",", *part] if found else part
    return found
