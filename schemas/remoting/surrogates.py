r"""Replacement of half surrogate pairs in JSON, which cannot be encoded in UTF-8.

JSON may contain a lone `\ud800`. Python parses it to a string that cannot be encoded, so the error appears only later,
when the string is stored or sent. Java encodes it as a question mark, and so does this module.
"""

from __future__ import annotations

import re

# An escape: a whole pair, or half of one (the group), or any other.
_ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)


def without_half_pairs(document: str) -> str:
    r"""Return a JSON document with question marks in place of half surrogate pairs.

    >>> without_half_pairs(r'["\ud83d\ude00 \ud800 \\ud800"]')
    '["\\ud83d\\ude00 ? \\\\ud800"]'
    """
    if "\\ud" not in document and "\\uD" not in document:  # nearly all
        return document
    return _ESCAPE.sub(lambda escape: "?" if escape[1] else escape[0], document)
