r"""Properties of a journal record: lines `key=value`, joined by a newline, in UTF-8.

A backslash, a newline and a `=` within a key or a value have a backslash before them. The last line has no newline
behind it, unless it ends in a NUL; no properties are no bytes. Keys may repeat: the last value counts.

    {"a=b": "c\nd"}    a \ = b = c \ newline d
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from commitlake.schemas.layouts.errors import UnserializableError

MAX_SIZE = 0xFFFF
"""properties_length has 2 bytes."""

Pairs = list[tuple[str, str]]

_SPECIAL = re.compile(r"[\\\n=]")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
# A line up to the next newline that has no backslash before it; every backslash takes the character behind it along.
_LINE = re.compile(r"(?:[^\\\n]|\\.|\\\Z)+", re.DOTALL)
_KEY = re.compile(r"(?:[^\\=]|\\.|\\\Z)*", re.DOTALL)


def parse_properties(data: bytes) -> Pairs:
    """Every entry in stored order, repeated keys included.

    A line without a key or without a `=` is skipped. Bytes that are not UTF-8 become U+FFFD; a backslash with nothing
    behind it stands for itself.
    """
    text = data.decode("utf-8", "replace")
    if "\\" not in text:
        lines = (line.partition("=") for line in text.split("\n"))
        return [(key, value) for key, separator, value in lines if key and separator]
    pairs: Pairs = []
    for line in _LINE.findall(text):
        key = _KEY.match(line)[0]  # type: ignore[index]  # it matches nothing, too
        if key and len(key) < len(line):
            pairs.append((_ESCAPED.sub(r"\1", key), _ESCAPED.sub(r"\1", line[len(key) + 1 :])))
    return pairs


def serialize_properties(pairs: Iterable[tuple[str, str]]) -> bytes:
    """The stored form.

    Raises:
        UnserializableError: for an empty key, text that UTF-8 cannot say, or more than 65,535 bytes.
    """
    pairs = list(pairs)
    for key, value in pairs:
        if not key:
            raise UnserializableError("properties", "keys of at least one character", f"{key!r}={value!r}")
    text = "\n".join([f"{key}={value}" for key, value in pairs])
    # Counts over the whole are much cheaper than a search in every key and value; nearly all have nothing to escape.
    if text.count("=") > len(pairs) or text.count("\n") >= len(pairs) > 0 or "\\" in text:
        text = "\n".join([f"{_escape(key)}={_escape(value)}" for key, value in pairs])
    if text.endswith("\0"):
        text += "\n"  # so that no record ends in zeros, as one does that is not written to its end
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise UnserializableError("properties", "text that UTF-8 can say", str(error)) from error
    if len(data) > MAX_SIZE:
        raise UnserializableError("properties", f"at most {MAX_SIZE} bytes", f"{len(data)} bytes")
    return data


def _escape(text: str) -> str:
    return _SPECIAL.sub(r"\\\g<0>", text)
