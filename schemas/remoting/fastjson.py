r"""The JSON of RocketMQ's bodies and config files, as fastjson writes it: keys need not be text.

    {0:"10.0.0.5:10911"}                                            a key that is a number
    {{"brokerName":"a","queueId":1,"topic":"T"}:{"maxOffset":7}}    a key that is an object, without objects inside

In Python such keys are `int`, and a tuple of (name, value) pairs, so that what is read and written again keeps its
form; `dict` makes the object of such a tuple again. Config files have a form with tabs (->):

    {
    ->"offsetTable":{
    ->->"orders@shipping":{
    ->->->0:17,
    ->->->1:4
    ->->}
    ->}
    }
"""

from __future__ import annotations

import json
import re
from typing import Any

from commitlake.schemas.layouts.numbers import INT64_MAX, INT64_MIN, require_int

Key = str | int | tuple[tuple[str, Any], ...]

_INT_KEY_MARK = "\x00int:"
_OBJECT_KEY_MARK = "\x00object:"
_STRING = r'"(?:[^"\\]|\\.)*+'
# A string, which is left alone; an object without objects inside where a colon follows; or a number that is a key.
# Nothing here is looked at twice: a string that does not end is one token up to the end.
_TOKEN = re.compile(
    rf'{_STRING}(?:"|\\?\Z)|(\{{(?:[^{{}}"]|{_STRING}")*+\}})(\s*+:)|(?<=[{{,])(\s*+)(-?[0-9]++)(\s*+:)', re.DOTALL
)


def parse_fastjson(text: str | bytes | memoryview) -> Any:
    """The value of a document in fastjson's dialect, or in plain JSON.

    Args:
        text: the document; bytes are UTF-8, and what in them is not, becomes U+FFFD.

    Raises:
        ValueError: if it is neither.
    """
    if not isinstance(text, str):
        text = str(text, "utf-8", "replace")
    try:
        return json.loads(text)
    except RecursionError:
        raise _too_deep() from None
    except ValueError:
        pass
    try:
        return json.loads(_TOKEN.sub(_quote_key, text), object_pairs_hook=_with_their_keys)
    except RecursionError:
        raise _too_deep() from None


def _too_deep() -> ValueError:
    return ValueError("expected a document of RocketMQ's, found JSON nested beyond all measure")


def _quote_key(token: re.Match[str]) -> str:
    if token[1] is not None:
        return json.dumps(_OBJECT_KEY_MARK + token[1]) + token[2]
    if token[4] is not None:
        return f"{token[3]}{json.dumps(_INT_KEY_MARK + token[4])}{token[5]}"
    return token[0]


def _with_their_keys(pairs: list[tuple[str, Any]]) -> dict[Key, Any]:
    return {_read_key(key): value for key, value in pairs}


def _read_key(key: str) -> Key:
    if key.startswith(_INT_KEY_MARK):
        return require_int(key.removeprefix(_INT_KEY_MARK), "key", INT64_MIN, INT64_MAX)
    if not key.startswith(_OBJECT_KEY_MARK):
        return key
    found = json.loads(key.removeprefix(_OBJECT_KEY_MARK))
    if not isinstance(found, dict) or any(isinstance(value, dict | list) for value in found.values()):
        raise ValueError(f"expected a key with text, numbers and booleans inside, found {key[:80]!r}")
    return tuple(found.items())


def serialize_fastjson(value: Any, indent: int = 0) -> str:
    """The document as a config file of RocketMQ 5 has it: tabs, one entry a line, no space after the colon."""
    if isinstance(value, dict):
        entries = [f"{_write_key(key)}:{serialize_fastjson(item, indent + 1)}" for key, item in value.items()]
        return _block("{", entries, "}", indent)
    if isinstance(value, list | tuple):
        return _block("[", [serialize_fastjson(item, indent + 1) for item in value], "]", indent)
    return json.dumps(value, ensure_ascii=False)


def serialize_compact(value: Any) -> bytes:
    """The document as a body has it: nothing between its tokens, in UTF-8."""
    # Half of a surrogate pair is a question mark in Java's UTF-8, too.
    return _compact(value).encode("utf-8", "replace")


def _compact(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ",".join([f"{_write_key(key)}:{_compact(item)}" for key, item in value.items()]) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join([_compact(item) for item in value]) + "]"
    return json.dumps(value, ensure_ascii=False)


def _write_key(key: Key) -> str:
    if isinstance(key, tuple):
        return _compact(dict(key))
    return str(key) if isinstance(key, int) else json.dumps(key, ensure_ascii=False)


def _block(opening: str, entries: list[str], closing: str, indent: int) -> str:
    if not entries:
        return opening + closing
    tabs = "\t" * indent
    return f"{opening}\n" + ",\n".join(f"{tabs}\t{entry}" for entry in entries) + f"\n{tabs}{closing}"
