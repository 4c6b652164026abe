"""Text of somebody else's on a page of HTML: it can change neither the page nor the direction of the text beside it."""

from __future__ import annotations

from html import escape

from commitlake.connectors.printable import printable_line


def page_text(text: str, most: int) -> str:
    """Return the text, escaped for elements and quoted attributes; control and bidi characters are shown as escapes.

    Args:
        text: any.
        most: characters that are kept of one that is more than twice as long.
    """
    return escape(printable_line(text if len(text) <= most * 2 else f"{text[:most]}…"))
