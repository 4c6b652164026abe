r"""A regular expression over bytes, and its matches in bodies.

The engine is RE2 from pyarrow: its time grows linearly with the size of the body, whatever the expression is. It has no
look-around and no back-references. It searches bytes, so bodies may have any encoding or none:

    .       any byte except a line feed; with (?s) also a line feed
    \xNN    this byte; the text of the expression itself is searched in UTF-8
    ^ $     beginning and end of the body; with (?m), of each line
    (?i)    ignores the case of ASCII letters
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.numpy_arrays import Array
from commitlake.schemas.errors import UsageError

MAX_PATTERN_BYTES = 8 << 10
_CONTEXT_BYTES = 40
_MAX_MATCH_BYTES = 160
_CONTINUATION = range(0x80, 0xC0)
_MAX_CONTINUATIONS = 3


@dataclass(frozen=True, slots=True)
class Pattern:
    """A regular expression in the syntax of RE2, the engine that Arrow uses.

    Attributes:
        expression: in the engine's syntax.
    """

    expression: bytes

    def match_bodies(self, bodies: pa.Array) -> Array:
        """Return, for each body, whether the pattern matches it."""
        found = pc.match_substring_regex(bodies, self.expression)
        return np.asarray(found.fill_null(False).to_numpy(zero_copy_only=False), bool)

    def first_match_excerpts(self, bodies: pa.Array) -> tuple[pa.Array, pa.Array]:
        r"""Return the byte position of the first match in each body, and the match with some text around it.

        Args:
            bodies: binary; all of them match.

        Returns:
            Bytes before the match, int64, and the match with the bytes around it: what is not UTF-8 as `\xNN`, and
            `…` where a long match is cut.
        """
        starts = pc.find_substring_regex(bodies, self.expression).cast(pa.int64())
        without = pc.replace_substring_regex(bodies, self.expression, b"", max_replacements=1)
        lengths = pc.subtract(pc.binary_length(bodies), pc.binary_length(without))
        texts = [
            _excerpt_text(body.as_buffer(), start, start + length)
            for body, start, length in zip(bodies, starts.to_pylist(), lengths.to_pylist(), strict=True)
        ]
        return starts, pa.array(texts, pa.string())


def parse_pattern(text: str) -> Pattern:
    """Parse a regular expression from a command line.

    Raises:
        UsageError: if the engine does not accept it.
    """
    expression = os.fsencode(text)
    if not 1 <= len(expression) <= MAX_PATTERN_BYTES:
        raise UsageError(
            f"--grep: expected a regular expression of 1 to {MAX_PATTERN_BYTES:,} bytes, found one of "
            f"{len(expression):,} bytes"
        )  # fmt: skip
    pattern = Pattern(expression)
    try:
        pattern.match_bodies(pa.array([b""]))
        pattern.first_match_excerpts(pa.array([b""]).slice(0, 0))
    except pa.ArrowInvalid as error:
        raise UsageError(
            f"--grep: the regular expression is invalid: {error}. Expected the syntax of RE2, see 'commitlake query "
            "--help'"
        ) from None
    return pattern


def _excerpt_text(body: pa.Buffer, start: int, end: int) -> str:
    first = max(0, start - _CONTEXT_BYTES)
    cut = end - start > _MAX_MATCH_BYTES
    last = start + _MAX_MATCH_BYTES if cut else min(body.size, end + _CONTEXT_BYTES)
    piece = body.slice(first, last - first).to_pybytes()
    return _decode_whole_characters(piece, is_body_start=first == 0, is_body_end=last == body.size) + (
        "…" if cut else ""
    )


def _decode_whole_characters(piece: bytes, *, is_body_start: bool, is_body_end: bool) -> str:
    """Decode a piece of a body as UTF-8, without incomplete characters at its ends."""
    begin = 0
    while not is_body_start and begin < min(len(piece), _MAX_CONTINUATIONS) and piece[begin] in _CONTINUATION:
        begin += 1
    piece = piece[begin:]
    if not is_body_end:
        for cut in range(1, min(len(piece), _MAX_CONTINUATIONS) + 1):
            if piece[-cut] >= 0xC0 and _character_size(piece[-cut]) > cut:
                piece = piece[:-cut]
                break
    return piece.decode("utf-8", "backslashreplace")


def _character_size(first_byte: int) -> int:
    """Return the number of bytes of a UTF-8 character that begins with this byte."""
    return 4 if first_byte >= 0xF0 else 3 if first_byte >= 0xE0 else 2
