r"""Escapes of half surrogate pairs in JSON, which no UTF-8 can hold.

JSON may have `\ud800` alone. Python makes a string of it that cannot be encoded, so that whatever keeps or sends it
fails much later. Java writes it as a question mark; so it is read as one here.
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
