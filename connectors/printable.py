r"""Escaping of untrusted text for terminals: characters that move a cursor, or hide or reorder text, become escapes.

These are escaped: control characters (C0 except newline and tab, DEL, C1), characters without a width (Unicode's
Default_Ignorable_Code_Point: U+200B, fillers, variation selectors, tags, …), characters that change the direction of
text (U+202E and similar), line separators, and surrogates. Control characters become `\x1b` or similar, the others
`\u202e` or similar. JSON uses its own escapes, so a JSON reader gets the original text.
"""

from __future__ import annotations

import re

_NO_TEXT = (
    "\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164"
    "\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff"
)
_UNPRINTABLE = re.compile(f"[\x00-\x08\x0b-\x1f{_NO_TEXT}]")
_UNPRINTABLE_IN_LINE = re.compile(f"[\x00-\x1f{_NO_TEXT}]")


FORMULA_STARTS = frozenset("=+-@\t\r\n'\uff1d\uff0b\uff0d\uff20")
"""First characters of a formula, including full-width ones, and the quote that marks a changed text."""
# A spreadsheet whose list separator is not the comma divides a text at a semicolon or a line break, also within quotes.
_SIGNS = re.escape("".join(sorted(FORMULA_STARTS - set("\t\r\n"))))
_BEFORE_FORMULA = re.compile(rf"\A(?=[{_SIGNS}\t\r\n])|(?<=[;\t\r\n])(?=[{_SIGNS}])")


def escape_csv_formula(text: str) -> str:
    """Return a text as a CSV field that a spreadsheet does not run as a formula (against CSV injection).

    A formula can send the content of other fields to a stranger. A quote is put before what looks like one, at the
    beginning and after each separator; removing a quote from these places restores the text. Numbers are not texts.

    >>> escape_csv_formula("=1+1"), escape_csv_formula("a;=1+1"), escape_csv_formula("a-b; c")
    ("'=1+1", "a;'=1+1", 'a-b; c')
    """
    return _BEFORE_FORMULA.sub("'", text)


def escape_unprintable(text: str) -> str:
    """Replace control and other unprintable characters of a text by escapes, except newlines and tabs."""
    return _UNPRINTABLE.sub(_escape_match, text)


def escape_line(text: str) -> str:
    """Replace control and other unprintable characters of a text by escapes, including newlines and tabs."""
    return _UNPRINTABLE_IN_LINE.sub(_escape_match, text)


def escape_json(document: str) -> str:
    """Replace unprintable characters of a JSON document by JSON's own escapes, so that terminals show it safely."""
    if document.isascii() and "\x7f" not in document:  # the common case; JSON itself escapes C0 characters
        return document
    return _UNPRINTABLE.sub(_escape_in_json, document)


def _escape_match(match: re.Match[str]) -> str:
    code = ord(match[0])
    named = {0x0A: "\\n", 0x09: "\\t", 0x0D: "\\r"}.get(code)
    return named or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}")


def _escape_in_json(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
