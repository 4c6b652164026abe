"""Text of somebody else's on a page of HTML: it can change neither the page nor the direction of the text beside it."""

from __future__ import annotations

import unicodedata
from html import escape


def page_text(text: str, most: int) -> str:
    """The text, escaped; control characters are replaced.

    Args:
        text: any.
        most: characters that are kept of one that is more than twice as long.
    """
    shown = text if len(text) <= most * 2 else f"{text[:most]}…"
    return escape("".join("\ufffd" if unicodedata.category(each) in ("Cc", "Cs") else each for each in shown))
