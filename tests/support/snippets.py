"""Commands and code of the documentation: fenced blocks of Markdown, found by a Markdown parser.

A comment before a block says how it is tested; it is not visible on the page:

    <!-- test: run, exits with 3; WHY -->    run it, and expect another exit code than 0
    <!-- test: parse; WHY -->                only parse its options
    <!-- test: skip; WHY -->                 not tested here
    <!-- test: compile; WHY -->              Python that is only compiled

Without a comment, `console` blocks are run, and blocks in other languages are checked by their parsers. The lines below
a command of a `console` block are its output, which must be true: all of standard output, and after it what the page
shows of standard error. A line `…` stands for any lines, and `…` in a line for any text.
"""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from markdown_it import MarkdownIt

from docs.generate.reference import made_pages
from tests.support.source_tree import ROOT

DOCS = ROOT / "docs"
_DIRECTIVE = re.compile(
    r"<!-- test: (?P<mode>run|parse|skip|compile)(?:, exits with (?P<code>\d+))?; (?P<why>.+?) -->", re.DOTALL
)
_PROGRESS = re.compile(r"(?:done|started|so far), \d+ s$")
_PROGRAMS = ("commitlake", ".venv/bin/commitlake")


class Block(NamedTuple):
    """A fenced block.

    Attributes:
        page: path of the page, from the project's root.
        line: number of its first line.
        language: console, python, toml and so on.
        text: its content.
        mode: run, parse, skip or compile.
        exit_code: expected exit code of its commands.
        why: reason why it is not run, or does not end with 0.
    """

    page: str
    line: int
    language: str
    text: str
    mode: str = "run"
    exit_code: int = 0
    why: str = ""

    @property
    def commands(self) -> list[list[str]]:
        """Return the words of each command of `commitlake`, up to a pipe or a redirection, without the program."""
        lines = self.text.replace("\\\n", " ").splitlines()
        words = (shlex.split(line.removeprefix("$ ")) for line in lines if line.startswith("$ "))
        return [
            list(itertools.takewhile(lambda word: word not in {"|", ">"}, each[1:]))
            for each in words
            if each[0] in _PROGRAMS
        ]

    @property
    def outputs(self) -> list[list[str]]:
        """Return the lines that are shown below each command of `commands`."""
        shown: list[list[str]] = []
        is_continued = False
        for line in self.text.splitlines():
            if is_continued:
                is_continued = line.endswith("\\")
            elif line.startswith("$ "):
                is_continued = line.endswith("\\")
                shown.append([])
            else:
                shown[-1].append(line.rstrip())
        return shown

    @property
    def other_commands(self) -> list[str]:
        """Return the lines that begin with `$` and start another program."""
        lines = [line.removeprefix("$ ") for line in self.text.splitlines() if line.startswith("$ ")]
        return [line for line in lines if shlex.split(line)[0] not in _PROGRAMS]


def matches(shown: Sequence[str], printed: Sequence[str], more: Sequence[str] = ()) -> bool:
    """Return whether shown lines are those that a command printed.

    Args:
        shown: Lines of a page; empty if it shows no output.
        printed: Lines of standard output.
        more: Lines of standard error, of which the last ones may be missing on the page.
    """
    parts = [r"(?:.*\n)*" if line == "…" else _pattern(line) + r"\n" for line in shown]
    pattern = re.compile("".join(parts))
    lines = [line.rstrip() for line in (*printed, *(line for line in more if not _PROGRESS.search(line)))]
    for count in range(len(lines), len(printed) - 1, -1):
        if pattern.fullmatch("".join(f"{line}\n" for line in lines[:count])):
            return True
    return not shown


def _pattern(line: str) -> str:
    return ".*".join(map(re.escape, line.split("…")))


def pages() -> list[Path]:
    """Return the README and the pages of the documentation, without those that are made from the code."""
    made = made_pages()
    written = (page for page in sorted(DOCS.rglob("*.md")) if str(page.relative_to(DOCS)) not in made)
    return [ROOT / "README.md", *written]


def blocks_of(page: Path) -> Iterator[Block]:
    """Yield the fenced blocks of a page."""
    yield from blocks_in(page.read_text(encoding="utf-8"), str(page.relative_to(ROOT)))


def blocks_in(text: str, page: str) -> Iterator[Block]:
    """Yield the fenced blocks of a text.

    Raises:
        ValueError: for a comment that is not a directive, or not before a block.
    """
    directive: re.Match[str] | None = None
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        line = token.map[0] + 1 if token.map else 0
        if token.type == "html_block" and token.content.startswith("<!-- test"):
            directive = _DIRECTIVE.fullmatch(token.content.strip())
            if directive is None:
                raise ValueError(f"{page}:{line}: expected <!-- test: MODE; WHY -->, found {token.content.strip()}")
        elif token.type == "fence":
            block = Block(page, line, token.info.strip(), token.content)
            if directive is not None:
                code = int(directive["code"] or 0)
                block = block._replace(mode=directive["mode"], exit_code=code, why=" ".join(directive["why"].split()))
            directive = None
            yield block
        elif directive is not None and not token.type.endswith("_open"):
            raise ValueError(f"{page}:{line}: a test comment stands before no block")
