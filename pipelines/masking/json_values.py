"""Values in a JSON text, replaced by other ones; all else keeps its order, and numbers their digits."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from commitlake.schemas.errors import CommitLakeError, ExitCode

Replace = Callable[[str], str | None]
"""From a value as text to another text; None for null."""


class JsonError(CommitLakeError):
    """A text that is no JSON, or is nested too deeply."""

    exit_code = ExitCode.DAMAGE


class _Number(str):
    """A number as it is written: it may have more digits than a float has, or than Python reads."""

    __slots__ = ()


class _Object(list[tuple[str, object]]):
    """Names and values in their order; a name may be there twice, and both are replaced."""


def replace_values(body: bytes, path: Sequence[str], replace: Replace) -> bytes:
    """Replace the values at a path.

    Args:
        body: JSON, in UTF-8.
        path: names from the top; in a list, the path is looked for in each element.
        replace: gets a string's value, the digits of a number, or the JSON of anything else, null excepted.

    Returns:
        The JSON; the very bytes where nothing is at the path.

    Raises:
        JsonError: if the body is no JSON.
    """
    try:
        parsed = json.loads(
            body.decode(), parse_int=_Number, parse_float=_Number, parse_constant=_Number, object_pairs_hook=_Object
        )
        changed = _replaced(parsed, path, replace)
        return body if changed is parsed else "".join(_pieces(changed)).encode("utf-8", "surrogatepass")
    except RecursionError:
        raise JsonError("expected JSON of some hundred levels, found more") from None
    except ValueError as error:
        raise JsonError(f"expected JSON, found something else: {error}") from None


def _replaced(value: object, path: Sequence[str], replace: Replace) -> object:
    """Return the value with what is at the path replaced; the same object where nothing is."""
    if isinstance(value, _Object) and path:
        members = [
            (name, _replaced(member, path[1:], replace) if name == path[0] else member) for name, member in value
        ]
        is_same = all(after is before for (_, after), (_, before) in zip(members, value, strict=True))
        return value if is_same else _Object(members)
    if isinstance(value, list) and not isinstance(value, _Object):
        elements = [_replaced(element, path, replace) for element in value]
        is_same = all(after is before for after, before in zip(elements, value, strict=True))
        return value if is_same else elements
    if path or value is None:
        return value
    return replace(value if isinstance(value, str) else "".join(_pieces(value)))


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
