"""The function `body` of `query --sql`: `SELECT msg_id, body() FROM messages`, or `body(m)` with the alias `m`.

The engines cannot read packs. So the call is replaced by the position of the body, three columns of `messages` as one
value, and the bodies are filled in when the answer is printed. A body can only be selected: a condition on it would
compare its position.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain

from commitlake.jobs.query.bodies import BodyTextReader
from commitlake.jobs.report.rows_output import Row

_NAME = "body"
_PLACE = ("body_ref", "body_crc", "body_codec")
"""The columns that `connectors.lake.packs.body_reader` needs; a copy, because that module loads slowly."""
_ENCODED = "_base64"
# Quoted text and comments are skipped, and stay unchanged.
_SKIPPED = r"""'(?:[^']|'')*' | "(?:[^"]|"")*" | `(?:[^`]|``)*` | --[^\n]* | /\*.*?\*/ | """
_TOKEN = re.compile(
    _SKIPPED + r"(?P<call> (?<![\w.]) body \s* \( \s* (?P<table> [^\W\d]\w* )? \s* \) )",
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)
_CALL = re.compile(_SKIPPED + r"(?P<call> (?<![\w.]) body \s* \( [^()]* \) )", _TOKEN.flags)
"""A call of `body` with any argument."""
_ABOUT_BODY = re.compile(r"\bbody_ref\b|(?:function|routine) ['`\"]?body\b|access field|extract", re.IGNORECASE)
"""What the engines' messages say of a wrong call of `body`."""
_FUNCTION = "named_struct("
"""Prefix of the name that both engines give to an unnamed column with a body's place."""


def expand_body_calls(sql: str) -> str:
    """Return a SELECT in which each call of `body` is replaced by an expression for the body's position."""

    def expand_body_call(match: re.Match[str]) -> str:
        if match["call"] is None:
            return match[0]
        table = f"{match['table']}." if match["table"] else ""
        fields = ", ".join(f"'{name}', {table}{name}" for name in _PLACE)
        return f"{_FUNCTION}{fields})"

    return _TOKEN.sub(expand_body_call, sql)


def explain_body_error(sql: str, message: str) -> str:
    """Return an engine's error message; if it concerns a call of `body`, list the allowed calls.

    Args:
        sql: the SELECT as the user wrote it.
        message: the engine's message.

    >>> explain_body_error("SELECT body(tags) FROM messages", "Field body_ref not found in struct")
    "body(tags): expected body(), or body(m) with 'FROM messages m' (Field body_ref not found in struct)"
    """
    calls = [found[0] for found in _CALL.finditer(sql) if found["call"] is not None]
    if not calls or not _ABOUT_BODY.search(message):
        return message
    wrong = next((call for call in calls if not re.fullmatch(r"body\s*\(\s*\)", call, re.IGNORECASE)), calls[0])
    return f"{wrong}: expected body(), or body(m) with 'FROM messages m' ({message})"


def replace_body_positions(
    rows: Iterator[Row], columns: Sequence[str], open_bodies: Callable[[], BodyTextReader]
) -> tuple[Iterator[Row], list[str]]:
    """Replace the positions of bodies in rows by the bodies, and return the rows with their new column names.

    Args:
        rows: rows of the answer.
        columns: columns of the answer.
        open_bodies: function that returns a reader of bodies; called if the answer has a body.

    Returns:
        A column X with positions becomes X, for bodies that are text in UTF-8, and X_base64, for other bodies.
    """
    first = next(rows, None)
    places = [] if first is None else [name for name in columns if _is_body_position(first[name])]
    if first is None or not places:
        return (rows if first is None else chain([first], rows)), list(columns)
    texts = open_bodies()
    shown = {name: _NAME if name.startswith(_FUNCTION) else name for name in places}
    names = [part for name in columns for part in ((shown[name], shown[name] + _ENCODED) if name in shown else (name,))]
    return (_replace_body_positions(row, shown, texts) for row in chain([first], rows)), names


def _is_body_position(value: object) -> bool:
    return isinstance(value, dict) and tuple(value) == _PLACE


def _replace_body_positions(row: Row, body_columns: Mapping[str, str], body_texts: BodyTextReader) -> Row:
    """Return a row with the position of each body replaced by the body, as text or base64."""
    changed: Row = {}
    for name, value in row.items():
        if name not in body_columns:
            changed[name] = value
            continue
        text, encoded = body_texts.read_body_text(value) if isinstance(value, dict) else (None, None)
        changed |= {body_columns[name]: text, body_columns[name] + _ENCODED: encoded}
    return changed
