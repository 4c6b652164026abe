"""Building blocks of pages: figures, notices, commands to copy, and folded content."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping

from commitlake.connectors.printable import printable_line
from commitlake.jobs.report.markup import Html, joined, tag
from commitlake.jobs.report.page import Kind, badge


def tiles(figures: Mapping[str, str]) -> Html:
    """Return a few labelled figures in large type."""
    return tag("dl", *(tag("div", tag("dt", label), tag("dd", value)) for label, value in figures.items()),
               class_="tiles")  # fmt: skip


def paragraph(*content: str, is_quiet: bool = False) -> Html:
    """Return a paragraph; a quiet one is smaller and paler."""
    return tag("p", *content, class_="quiet" if is_quiet else None)


def moment(text: str) -> Html:
    """Return a time such as `2026-11-20 14:00` that may take two lines, but breaks only at its space."""
    return joined([tag("span", part, class_="moment") for part in text.split()], " ")


def notice(kind: Kind, title: str, *content: str, word: str = "") -> Html:
    """Return a box with a badge and a heading, for a finding or an advice."""
    return tag("article", tag("h3", badge(kind, word), " ", tag("span", title)), *content, class_=f"notice {kind}")


def folded(summary: str, *content: str) -> Html:
    """Return content that is hidden until its summary is opened."""
    return tag("details", tag("summary", summary), *content)


def command(words: Iterable[str]) -> Html:
    """Return a command line with a button that copies it.

    A word with characters that a page shows as escapes (control and bidi characters) would be copied wrongly. The
    command is then replaced by a note.
    """
    given = list(words)
    if any(printable_line(word) != word for word in given):
        return paragraph("The command is not shown, because a name in it has control characters.", is_quiet=True)
    line = shlex.join(given)
    button = tag("button", "Copy", type="button", class_="copy script-only", aria_label=f"Copy the command {line}")
    parts: list[Html | str] = []
    for word in given:
        quoted = shlex.quote(word)
        # A browser would break a line after the hyphens of an option.
        parts += [*([" "] if parts else []), tag("span", quoted, class_="option") if word.startswith("-") else quoted]
    return tag("div", tag("pre", tag("code", *parts), tabindex=0), button, class_="command")
