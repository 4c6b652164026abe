"""The frame of a report page: one HTML file that works offline and sends no data.

The Content-Security-Policy allows only the page's own style and script, by their digests.
"""

from __future__ import annotations

import base64
import datetime
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

from commitlake.connectors.whole_files import write_whole
from commitlake.jobs.report.markup import Html, tag


class Kind(StrEnum):
    """A severity, with a colour, a sign and a word."""

    GOOD = "good"
    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


_SIGNS = {Kind.GOOD: "✓", Kind.INFO: "i", Kind.WARNING: "!", Kind.CRITICAL: "✕"}
_WORDS = {Kind.GOOD: "Good", Kind.INFO: "Information", Kind.WARNING: "Warning", Kind.CRITICAL: "Critical"}


@dataclass(frozen=True, slots=True)
class PageVerdict:
    """The verdict of a page, in one sentence.

    Attributes:
        kind: Severity of the verdict.
        sentence: The sentence.
        word: A word for the badge; by default the kind's own.
    """

    kind: Kind
    sentence: str
    word: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """A section of a page, with a heading.

    Attributes:
        anchor: Id of the section: letters, digits and `-`.
        title: The heading.
        content: Elements of `parts`, `tables` and the charts.
    """

    anchor: str
    title: str
    content: Html


@dataclass(frozen=True, slots=True)
class Page:
    """A report page with a verdict, facts and sections.

    Attributes:
        title: Subject of the report, such as "Consumer lag".
        verdict: The verdict at the beginning.
        facts: Scope of the report: pairs of a label (lake, broker, period) and a value.
        sections: Sections of the page.
        made: Time and program of its creation.
    """

    title: str
    verdict: PageVerdict
    facts: Sequence[tuple[str, str]]
    sections: Sequence[Section]
    made: str = ""


def made_now(job: str) -> str:
    """Return a sentence with the time, job and version, to print on a page."""
    now = datetime.datetime.now(datetime.UTC)
    return f"Made at {now:%Y-%m-%d %H:%M:%S} UTC by commitlake {job}, version {version('commitlake')}."


def write_page(path: Path, page: Page) -> None:
    """Write a page; an existing file of that name is replaced atomically."""
    with write_whole(path) as file:
        file.write(render_page(page).encode("utf-8", "replace"))


def render_page(page: Page) -> str:
    """Return the HTML of a page."""
    style, script = _asset("page.css"), _asset("page.js")
    policy = (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{policy}">'),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", f"{page.title}: {page.verdict.sentence}"),
        tag("style", style),
    )
    body = tag("body", *_header(page), tag("main", *map(_section, page.sections), id="content"), _footer(page),
               _PATTERNS, tag("script", script))  # fmt: skip
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"


def badge(kind: Kind, word: str = "") -> Html:
    """Return a sign and a word in the colour of a severity."""
    return tag("span", tag("span", _SIGNS[kind], class_="sign", aria_hidden="true"), word or _WORDS[kind],
               class_=f"badge {kind}")  # fmt: skip


def _header(page: Page) -> Sequence[Html]:
    links = [tag("a", section.title, href=f"#{section.anchor}") for section in page.sections]
    facts = [tag("div", tag("dt", label), tag("dd", value)) for label, value in page.facts]
    verdict = page.verdict
    return (
        tag("a", "Skip to the report", class_="skip", href="#content"),
        tag(
            "header",
            tag("div", tag("p", tag("b", "CommitLake"), f" · {page.title}", class_="brand"), _THEME, class_="top"),
            tag("div", badge(verdict.kind, verdict.word), tag("h1", verdict.sentence),
                class_=f"verdict {verdict.kind}"),
            tag("dl", *facts, class_="facts"),
            tag("nav", *links, aria_label="On this page") if len(links) > 1 else Html(),
        ),
    )  # fmt: skip


def _section(section: Section) -> Html:
    heading = f"{section.anchor}-heading"
    return tag("section", tag("h2", section.title, id=heading), section.content, id=section.anchor,
               aria_labelledby=heading)  # fmt: skip


def _footer(page: Page) -> Html:
    status = tag("p", role="status", aria_live="polite", id="status", class_="unseen")
    return tag("footer", tag("p", page.made), status)


def _asset(name: str) -> Html:
    """Return the unchanged content of a file of this package."""
    return Html(files("commitlake.jobs.report").joinpath(name).read_text("utf-8").strip())


def _digest(content: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}"


_THEME = tag("button", "Dark", type="button", id="theme", class_="script-only")
"""Button that switches between light and dark; the script shows it."""
_PATTERNS = tag(
    "svg",
    tag(
        "defs",
        tag(
            "pattern",
            tag("path", d="M-2,2l4,-4M0,8l8,-8M6,10l4,-4", class_="hatch"),
            id="hatch", width=8, height=8, patternUnits="userSpaceOnUse",
        ),
    ),
    class_="patterns", width=0, height=0, aria_hidden="true", focusable="false",
)  # fmt: skip
"""The pattern that marks times without figures."""
