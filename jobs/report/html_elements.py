"""HTML elements, built by function calls that escape all text.

`tag` escapes every text that is not `Html` already, and `inline_html` the parts of a report's text. So text from a
lake or a store (topics, groups, paths) cannot change the page. Control and bidi characters are shown as escapes, so it
cannot change the direction of the text beside it either.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from commitlake.connectors.printable import escape_line
from commitlake.schemas.report import (
    Badge,
    Code,
    Html,
    Kind,
    MutedText,
    Name,
    Part,
    Sentence,
    StepLink,
    Strong,
    Text,
    TimeText,
)

MAX_NAME = 160
"""Characters shown of a name that is more than twice as long."""
_VOID = frozenset({"meta", "input", "br"})
_SIGNS = {Kind.GOOD: "✓", Kind.INFO: "i", Kind.WARNING: "!", Kind.CRITICAL: "✕"}


def escape_text(value: str) -> Html:
    """Escape a text for elements and quoted attributes, with control and bidi characters as escapes."""
    return value if isinstance(value, Html) else Html(escape(escape_line(value)))


def join_html(parts: Iterable[str], separator: str = "") -> Html:
    """Concatenate parts as HTML; parts that are plain text are escaped."""
    return Html(escape_text(separator).join(map(escape_text, parts)))


def tag(element: str, /, *content: str, **attributes: str | float | bool | None) -> Html:
    """Return an HTML element with the given name, content and attributes.

    Args:
        element: Name of the element.
        content: Elements and texts in the element.
        attributes: Values by name; `_` stands for `-`, and one at the end is dropped, as in `class_`. None and False
            omit the attribute, and True writes it without a value.
    """
    given = "".join(_attribute_text(key, value) for key, value in attributes.items())
    if element in _VOID:
        return Html(f"<{element}{given}>")
    return Html(f"<{element}{given}>{join_html(content)}</{element}>")


def _attribute_text(key: str, value: str | float | bool | None) -> str:
    key = key.rstrip("_").replace("_", "-")
    if value is None or value is False:
        return ""
    if value is True:
        return f" {key}"
    shown = escape_text(value) if isinstance(value, str) else f"{value:.6g}" if isinstance(value, float) else str(value)
    return f' {key}="{shown}"'


def name_html(name: object) -> Html:
    """Return a name from a lake or store as an element with isolated text direction; a very long name is shortened."""
    shown = "" if name is None else str(name)
    return tag("bdi", shown if len(shown) <= MAX_NAME * 2 else f"{shown[:MAX_NAME]}…")


def inline_html(text: Text) -> Html:
    """Return a text of a report as HTML."""
    return join_html(map(_text_part_html, text)) if isinstance(text, tuple) else _text_part_html(text)


def _text_part_html(part: Part) -> Html:
    match part:
        case Badge():
            found = badge_html(part.kind, part.word)
        case Name():
            found = name_html(part)
        case StepLink():
            text_parts = (f"{part.number}. ", name_html(part.title))
            found = tag("a", *text_parts, href=f"#step-{part.number}", data_row=part.number)
        case Sentence():
            found = tag("span", name_html(part), class_="sentence")
        case TimeText():
            found = join_html([tag("span", word, class_="moment") for word in part.split()], " ")
        case MutedText():
            found = tag("span", name_html(part), class_="quiet")
        case Strong():
            found = tag("b", part)
        case Code():
            found = tag("code", part)
        case _:
            found = escape_text(part)
    return found


def badge_html(kind: Kind, word: str = "") -> Html:
    """Return a badge as HTML: a sign and a word in the colour of a severity."""
    return tag("span", tag("span", _SIGNS[kind], class_="sign", aria_hidden="true"), word or kind.badge_text,
               class_=f"badge {kind}")  # fmt: skip
