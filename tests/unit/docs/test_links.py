"""The pages of the documentation that are made from the code are current, and every relative link leads to a place."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

from docs.generate.reference import COMMAND, made_pages, reference_pages
from tests.support.snippets import DOCS
from tests.support.source_tree import ROOT

PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]


def test_pages_made_from_the_code_are_current() -> None:
    pages = reference_pages()
    assert made_pages() == pages.keys(), f"run {COMMAND}"
    stale = [path for path, text in pages.items() if (DOCS / path).read_text(encoding="utf-8") != text]
    assert stale == [], f"run {COMMAND}"


def test_each_relative_link_leads_to_a_file_and_a_heading() -> None:
    links = [(page, target) for page in PAGES for target in targets_in(page)]
    assert len(links) > 100
    assert [f"{page.relative_to(ROOT)}: {target}" for page, target in links if not leads_somewhere(page, target)] == []


def test_a_link_to_nothing_is_found() -> None:
    page = DOCS / "how-to" / "query.md"
    assert leads_somewhere(page, "../reference/tables.md#edges")
    assert not leads_somewhere(page, "../reference/tables.md#no-such-table")
    assert not leads_somewhere(page, "no-such-page.md")


def leads_somewhere(page: Path, target: str) -> bool:
    """Return whether a file of the repository, and a heading of it if the link names one, is at a link's target."""
    path, _, anchor = target.partition("#")
    file = (page.parent / path).resolve() if path else page
    return file.is_relative_to(ROOT) and file.exists() and (not anchor or anchor in anchors_of(file))


def targets_in(page: Path) -> Iterator[str]:
    """Yield the targets of a page's links and pictures, without addresses on other hosts."""
    for token in _inner(page):
        target = token.attrGet("href") if token.type == "link_open" else token.attrGet("src")
        if target and not re.match(r"[a-z]+:", str(target)):
            yield str(target)


@cache
def anchors_of(page: Path) -> frozenset[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    found: list[str] = []
    seen: Counter[str] = Counter()
    tokens = _parsed(page)
    for opened, inner in itertools.pairwise(tokens):
        if opened.type == "heading_open":
            words = "".join(child.content for child in inner.children or () if child.type in {"text", "code_inline"})
            anchor = re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")
            found.append(f"{anchor}-{seen[anchor]}" if seen[anchor] else anchor)
            seen[anchor] += 1
    return frozenset(found)


def _inner(page: Path) -> Iterator[Token]:
    for token in _parsed(page):
        yield from token.children or ()


@cache
def _parsed(page: Path) -> list[Token]:
    return MarkdownIt("commonmark").enable("table").parse(page.read_text(encoding="utf-8"))
