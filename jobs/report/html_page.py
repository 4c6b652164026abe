"""The frame of a report page: one HTML file that works offline and sends no data.

The Content-Security-Policy allows only the page's own style and script, by their digests.
"""

from __future__ import annotations

import base64
import datetime
import hashlib
from collections.abc import Iterable
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

from commitlake.connectors.atomic_files import open_atomic
from commitlake.jobs.report.html_blocks import blocks_html
from commitlake.jobs.report.html_elements import badge_html, tag
from commitlake.schemas.report import Block, Html, Report, Section


def _footer_text(job: str) -> str:
    now = datetime.datetime.now(datetime.UTC)
    return f"Made at {now:%Y-%m-%d %H:%M:%S} UTC by commitlake {job}, version {version('commitlake')}."


def write_page(path: Path, report: Report) -> None:
    """Write a report as a page; an existing file of that name is replaced atomically."""
    with open_atomic(path) as file:
        file.write(render_page(report).encode("utf-8", "replace"))


def render_page(report: Report) -> str:
    """Return a report as an HTML page."""
    main = tag("main", *map(_section_html, report.sections), id="content")
    skip = tag("a", "Skip to the report", class_="skip", href="#content")
    body = (skip, _header_html(report), main, _footer_html(_footer_text(report.job) if report.job else ""))
    return _render_document(f"{report.title}: {report.verdict.sentence}", *body)


def render_pictures(title: str, pictures: Iterable[Block]) -> str:
    """Return a page that has only pictures, for a cell of a notebook."""
    main = tag("main", tag("section", blocks_html(pictures)), id="content")
    return _render_document(title, tag("header", _title_bar_html(title)), main, _footer_html(""))


def _render_document(title: str, *body: Html) -> str:
    style, script = _read_asset("page.css"), _read_asset("page.js")
    policy = (
        f"default-src 'none'; style-src '{_policy_digest(style)}'; script-src '{_policy_digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{policy}">'),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", title),
        tag("style", style),
    )
    shown = tag("html", head, tag("body", *body, _PATTERNS, tag("script", script)), lang="en")
    return f"<!DOCTYPE html>\n{shown}\n"


def _header_html(report: Report) -> Html:
    links = [tag("a", section.title, href=f"#{section.anchor}") for section in report.sections]
    facts = [tag("div", tag("dt", label), tag("dd", value)) for label, value in report.facts]
    verdict = report.verdict
    return tag(
        "header",
        _title_bar_html(report.title),
        tag(
            "div", badge_html(verdict.kind, verdict.word), tag("h1", verdict.sentence), class_=f"verdict {verdict.kind}"
        ),
        tag("dl", *facts, class_="facts"),
        tag("nav", *links, aria_label="On this page") if len(links) > 1 else Html(),
    )


def _title_bar_html(title: str) -> Html:
    return tag("div", tag("p", tag("b", "CommitLake"), f" · {title}", class_="brand"), _THEME, class_="top")


def _section_html(section: Section) -> Html:
    heading = f"{section.anchor}-heading"
    return tag("section", tag("h2", section.title, id=heading), blocks_html(section.blocks), id=section.anchor,
               aria_labelledby=heading)  # fmt: skip


def _footer_html(footer_text: str) -> Html:
    status = tag("p", role="status", aria_live="polite", id="status", class_="unseen")
    return tag("footer", tag("p", footer_text), status)


def _read_asset(name: str) -> Html:
    """Return the content of a file of this package, such as the style sheet or the script."""
    return Html(files("commitlake.jobs.report").joinpath(name).read_text("utf-8").strip())


def _policy_digest(content: str) -> str:
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
