r"""Properties of a journal record: lines `key=value` in UTF-8, separated by newlines.

A backslash, a newline and a `=` within a key or a value are preceded by a backslash. The last line has no newline,
unless it ends with a NUL; an empty list takes no bytes. Keys may repeat: the last value counts.

    {"a=b": "c\nd"}    a \ = b = c \ newline d
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from commitlake.schemas.layouts.errors import UnserializableError

MAX_SIZE = 0xFFFF
"""Maximum size, because properties_length has 2 bytes."""

Pairs = list[tuple[str, str]]

_SPECIAL = re.compile(r"[\\\n=]")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
# A line up to the next newline that is not preceded by a backslash; a backslash includes the next character.
_LINE = re.compile(r"(?:[^\\\n]|\\.|\\\Z)+", re.DOTALL)
_KEY = re.compile(r"(?:[^\\=]|\\.|\\\Z)*", re.DOTALL)


def parse_properties(data: bytes) -> Pairs:
    """Parse serialized properties into (key, value) pairs, in stored order and including repeated keys.

    A line without a key or without a `=` is skipped. Bytes that are not UTF-8 become U+FFFD; a backslash at the end
    stands for itself.
    """
    text = data.decode("utf-8", "replace")
    if "\\" not in text:
        lines = (line.partition("=") for line in text.split("\n"))
        return [(key, value) for key, separator, value in lines if key and separator]
    pairs: Pairs = []
    for line in _LINE.findall(text):
        key = _KEY.match(line)[0]  # type: ignore[index]  # it also matches the empty string
        if key and len(key) < len(line):
            pairs.append((_ESCAPED.sub(r"\1", key), _ESCAPED.sub(r"\1", line[len(key) + 1 :])))
    return pairs


def serialize_properties(pairs: Iterable[tuple[str, str]]) -> bytes:
    """Serialize properties as lines of the form `key=value`.

    Raises:
        UnserializableError: if a key is empty, a text cannot be encoded in UTF-8, or the result has more than 65,535
            bytes.
    """
    pairs = list(pairs)
    for key, value in pairs:
        if not key:
            raise UnserializableError("properties", "keys of at least one character", f"{key!r}={value!r}")
    text = "\n".join([f"{key}={value}" for key, value in pairs])
    # Counting in the whole text is much cheaper than searching every key and value; nearly all need no escapes.
    if text.count("=") > len(pairs) or text.count("\n") >= len(pairs) > 0 or "\\" in text:
        text = "\n".join([f"{_escape_text(key)}={_escape_text(value)}" for key, value in pairs])
    if text.endswith("\0"):
        text += "\n"  # no record may end with zeros, which mark an incomplete record
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise UnserializableError("properties", "text that can be encoded in UTF-8", str(error)) from error
    if len(data) > MAX_SIZE:
        raise UnserializableError("properties", f"at most {MAX_SIZE} bytes", f"{len(data)} bytes")
    return data


def _escape_text(text: str) -> str:
    return _SPECIAL.sub(r"\\\g<0>", text)
