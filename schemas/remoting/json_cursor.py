"""Incremental reader of large JSON documents, which lets a server do other work in between.

    cursor = JsonCursor(body)
    for key in cursor.keys():                   # keys of the object at the cursor
        if key == "table":
            for name in cursor.keys():          # keys of a nested object
                value = cursor.value()          # a small value, parsed at once
        else:
            yield from cursor.skip()            # a value of any size

Every step examines at most STEP_CHARACTERS. A parsed value, a skipped string and the white space between two tokens
must not be longer.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from typing import Any

from commitlake.schemas.remoting.errors import BodyError
from commitlake.schemas.remoting.fastjson import parse_fastjson
from commitlake.schemas.remoting.surrogates import without_half_pairs

STEP_CHARACTERS = 16 * 1024
_DECODED_BYTES = 256 * 1024
_BLANKS = re.compile(rf"[ \t\n\r]{{0,{STEP_CHARACTERS}}}+")
_TEXT = re.compile(r'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_SCALAR = re.compile(r'[^\s"{}\[\]:,]{1,64}+')
# A string, or the start of one that does not end within the examined characters; an opening or a closing bracket.
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|(\\?\Z))|([\[{])|[\]}]', re.DOTALL)


def decode_in_steps(body: bytes | bytearray | memoryview) -> Iterator[str]:
    """Yield the pieces of a UTF-8 text; invalid bytes become U+FFFD."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for start in range(0, len(body), _DECODED_BYTES):
        yield decoder.decode(bytes(body[start : start + _DECODED_BYTES]))
    yield decoder.decode(b"", final=True)


class JsonCursor:
    """Cursor in a JSON document, which moves from the start to the end."""

    def __init__(self, text: str) -> None:
        """Start at the beginning of a document."""
        self._text = text
        self._position = 0

    def keys(self) -> Iterator[str]:
        """Yield the keys of the object at the cursor; `null` counts as an empty object.

        The caller must read or skip the value of each key before the next one.

        Raises:
            BodyError: if there is no object at the cursor, or it is not well-formed.
        """
        if self._take("null"):
            return
        self._expect("{")
        if self._take("}"):
            return
        while True:
            yield self._key()
            if not self._take(","):
                self._expect("}")
                return

    def value(self) -> Any:
        """Parse the value at the cursor, and move after it.

        Raises:
            BodyError: if it is longer than STEP_CHARACTERS, or not JSON.
        """
        start = self._begin_value()
        limit = start + STEP_CHARACTERS
        for _ in self._move_after_value(limit):
            pass
        try:
            return parse_fastjson(self._text[start : self._position])
        except ValueError as error:
            raise BodyError(f"expected JSON at character {start}, found {str(error)[:80]}") from None

    def skip(self) -> Iterator[None]:
        """Move after the value at the cursor, in steps; only strings and brackets inside are checked.

        Raises:
            BodyError: if the value is incomplete.
        """
        self._begin_value()
        yield from self._move_after_value(len(self._text))

    def finish(self) -> None:
        """Check that nothing follows.

        Raises:
            BodyError: if something follows.
        """
        self._skip_blanks()
        if self._position < len(self._text):
            raise self._wrong("the end")

    def _begin_value(self) -> int:
        self._skip_blanks()
        return self._position

    def _move_after_value(self, limit: int) -> Iterator[None]:
        """Move after the value at the cursor; yield after each step."""
        if scalar := _SCALAR.match(self._text, self._position):
            self._position = scalar.end()
            return
        if self._text[self._position : self._position + 1] not in ('"', "{", "["):
            raise self._wrong("a value")
        start = position = step_start = self._position
        depth = 0
        while True:
            token = _TOKEN.search(self._text, position, min(position + STEP_CHARACTERS, limit))
            if token is None:
                position = min(position + STEP_CHARACTERS, limit)
            elif token[1] is None:
                position = token.end()
                depth += 1 if token[2] else 0 if token[0][0] == '"' else -1
                if depth == 0:
                    self._position = position
                    return
            elif token.start() > position:
                position = token.start()
            else:
                position = limit
            if position >= limit:
                expected = f"a value of at most {limit - start} characters, with strings of at most {STEP_CHARACTERS}"
                raise self._wrong(expected)
            if position - step_start >= STEP_CHARACTERS:
                step_start = position
                yield

    def _key(self) -> str:
        self._skip_blanks()
        match = _TEXT.match(self._text, self._position, self._position + STEP_CHARACTERS)
        if match is None:
            raise self._wrong("a key")
        start, self._position = self._position, match.end()
        self._expect(":")
        try:
            key: str = json.loads(without_half_pairs(match[0]), strict=False)
        except ValueError as error:
            raise BodyError(f"expected a key at character {start}, found {str(error)[:80]}") from None
        return key

    def _take(self, token: str) -> bool:
        """Move after a token if it is at the cursor, and return whether it was."""
        self._skip_blanks()
        is_here = self._text.startswith(token, self._position)
        self._position += len(token) * is_here
        return is_here

    def _expect(self, token: str) -> None:
        if not self._take(token):
            raise self._wrong(repr(token))

    def _skip_blanks(self) -> None:
        if blanks := _BLANKS.match(self._text, self._position):
            self._position = blanks.end()

    def _wrong(self, expected: str) -> BodyError:
        found = self._text[self._position : self._position + 40]
        return BodyError(f"expected {expected} at character {self._position}, found {found!r}")
