"""JSON of RocketMQ's bodies and config files in fastjson's dialect, in which keys need not be strings.

    {0:"10.0.0.5:10911"}                                            a number as key
    {{"brokerName":"a","queueId":1,"topic":"T"}:{"maxOffset":7}}    an object as key, without nested objects

In Python such keys are `int`, or a tuple of (name, value) pairs, so that a document keeps its form when it is read and
written; `dict` converts such a tuple back to an object. Config files are indented with tabs (->):

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

from commitlake.schemas.layouts.integer_parsing import INT64_MAX, INT64_MIN, require_int

# An escape: a whole pair, or half of one (the group), or any other.
_ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)
Key = str | int | tuple[tuple[str, Any], ...]
_INT_KEY_MARK = "\x00int:"
_OBJECT_KEY_MARK = "\x00object:"
_STRING = r'"(?:[^"\\]|\\.)*+'
# A string, which is left unchanged; an object without nested objects that is followed by a colon; or a number as key.
# Nothing is matched twice: an unterminated string is one token up to the end.
_TOKEN = re.compile(
    rf'{_STRING}(?:"|\\?\Z)|(\{{(?:[^{{}}"]|{_STRING}")*+\}})(\s*+:)|(?<=[{{,])(\s*+)(-?[0-9]++)(\s*+:)', re.DOTALL
)


def replace_lone_surrogates(document: str) -> str:
    r"""Return a JSON document in which each half surrogate pair is replaced by a question mark, as Java encodes it.

    JSON may contain a lone `\ud800`. Python parses it to a string that cannot be encoded in UTF-8, so the error would
    only appear later, when the string is stored or sent.

    >>> replace_lone_surrogates(r'["\ud83d\ude00 \ud800 \\ud800"]')
    '["\\ud83d\\ude00 ? \\\\ud800"]'
    """
    if "\\ud" not in document and "\\uD" not in document:  # nearly all
        return document
    return _ESCAPE.sub(lambda escape: "?" if escape[1] else escape[0], document)


def parse_fastjson(text: str | bytes | memoryview) -> Any:
    """Parse a document in fastjson's dialect, or in plain JSON.

    Args:
        text: the document; bytes are decoded as UTF-8, invalid bytes as U+FFFD. Half surrogate pairs are read as
            question marks.

    Raises:
        ValueError: if the text is neither.
    """
    if not isinstance(text, str):
        text = str(text, "utf-8", "replace")
    text = replace_lone_surrogates(text)
    try:
        return json.loads(text)
    except RecursionError:
        raise _too_deep_error() from None
    except ValueError:
        pass
    try:
        return json.loads(_TOKEN.sub(_quote_key, text), object_pairs_hook=_convert_keys)
    except RecursionError:
        raise _too_deep_error() from None


def _too_deep_error() -> ValueError:
    return ValueError("expected RocketMQ's JSON, found JSON that is nested too deeply")


def _quote_key(token: re.Match[str]) -> str:
    if token[1] is not None:
        return json.dumps(_OBJECT_KEY_MARK + token[1]) + token[2]
    if token[4] is not None:
        return f"{token[3]}{json.dumps(_INT_KEY_MARK + token[4])}{token[5]}"
    return token[0]


def _convert_keys(pairs: list[tuple[str, Any]]) -> dict[Key, Any]:
    return {_parse_json_key(key): value for key, value in pairs}


def _parse_json_key(key: str) -> Key:
    if key.startswith(_INT_KEY_MARK):
        return require_int(key.removeprefix(_INT_KEY_MARK), "key", INT64_MIN, INT64_MAX)
    if not key.startswith(_OBJECT_KEY_MARK):
        return key
    found = json.loads(key.removeprefix(_OBJECT_KEY_MARK))
    if not isinstance(found, dict) or any(isinstance(value, dict | list) for value in found.values()):
        raise ValueError(
            f"expected a JSON object of strings, numbers and booleans as the key of a table, found {key[:80]!r}"
        )
    return tuple(found.items())


def serialize_fastjson(value: Any, indent: int = 0) -> str:
    """Serialize a document like a config file of RocketMQ 5: tabs, one entry per line, no space after the colon."""
    if isinstance(value, dict):
        entries = [f"{_json_key(key)}:{serialize_fastjson(item, indent + 1)}" for key, item in value.items()]
        return _format_block("{", entries, "}", indent)
    if isinstance(value, list | tuple):
        return _format_block("[", [serialize_fastjson(item, indent + 1) for item in value], "]", indent)
    return json.dumps(value, ensure_ascii=False)


def serialize_compact(value: Any) -> bytes:
    """Serialize a document as compact JSON, without white space and in UTF-8, as the bodies of commands are."""
    # As in Java's UTF-8, an unpaired surrogate becomes a question mark.
    return _serialize_compact(value).encode("utf-8", "replace")


def _serialize_compact(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ",".join([f"{_json_key(key)}:{_serialize_compact(item)}" for key, item in value.items()]) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join([_serialize_compact(item) for item in value]) + "]"
    return json.dumps(value, ensure_ascii=False)


def _json_key(key: Key) -> str:
    if isinstance(key, tuple):
        return _serialize_compact(dict(key))
    return str(key) if isinstance(key, int) else json.dumps(key, ensure_ascii=False)


def _format_block(opening: str, entries: list[str], closing: str, indent: int) -> str:
    if not entries:
        return opening + closing
    tabs = "\t" * indent
    return f"{opening}\n" + ",\n".join(f"{tabs}\t{entry}" for entry in entries) + f"\n{tabs}{closing}"
