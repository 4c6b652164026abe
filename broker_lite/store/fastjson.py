"""The JSON of RocketMQ's config files, as fastjson writes it: tabs (->), and keys that are integers without quotes.

    {
    ->"offsetTable":{
    ->->"orders@shipping":{
    ->->->0:17,
    ->->->1:4
    ->->}
    ->}
    }

In Python such keys are `int`, so that what is read and written again keeps its form.
"""

from __future__ import annotations

import json
import re
from typing import Any

_INT_KEY_MARK = "\x00int:"
# A string, which is left alone, or a bare number where a key must stand.
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|(?<=[{,])(\s*)(-?[0-9]+)(\s*:)', re.DOTALL)


def parse_fastjson(text: str) -> Any:
    """The value of a document in fastjson's dialect, or in plain JSON.

    Raises:
        ValueError: if it is neither.
    """
    quoted = _TOKEN.sub(_quote_key, text)
    try:
        return json.loads(quoted, object_pairs_hook=_with_int_keys)
    except RecursionError:
        raise ValueError("expected a config file, found JSON nested beyond all measure") from None


def _quote_key(token: re.Match[str]) -> str:
    if token[2] is None:
        return token[0]
    return f"{token[1]}{json.dumps(_INT_KEY_MARK + token[2])}{token[3]}"


def _with_int_keys(pairs: list[tuple[str, Any]]) -> dict[str | int, Any]:
    return {
        int(key.removeprefix(_INT_KEY_MARK)) if key.startswith(_INT_KEY_MARK) else key: value for key, value in pairs
    }


def serialize_fastjson(value: Any, indent: int = 0) -> str:
    """The document in the form of RocketMQ 5: tabs, one entry a line, no space after the colon."""
    if isinstance(value, dict):
        entries = [f"{_key(key)}:{serialize_fastjson(item, indent + 1)}" for key, item in value.items()]
        return _block("{", entries, "}", indent)
    if isinstance(value, list):
        return _block("[", [serialize_fastjson(item, indent + 1) for item in value], "]", indent)
    return json.dumps(value, ensure_ascii=False)


def _key(key: str | int) -> str:
    return str(key) if isinstance(key, int) else json.dumps(key, ensure_ascii=False)


def _block(opening: str, entries: list[str], closing: str, indent: int) -> str:
    if not entries:
        return opening + closing
    tabs = "\t" * indent
    return f"{opening}\n" + ",\n".join(f"{tabs}\t{entry}" for entry in entries) + f"\n{tabs}{closing}"
