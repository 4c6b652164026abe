"""The hook of mkdocs: it lists the jobs' pages, draws diagrams, and adapts links that leave the documentation."""

from __future__ import annotations

import re

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.pages import Page

from commitlake.jobs.cli.main import JOBS
from docs.generate import diagrams

_LINK_OUT = re.compile(r"\[(?P<text>[^\]]+)\]\((?P<target>(?:\.\./)+[^)#]*)\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages of the jobs after that of the command line."""
    jobs = [{name: f"reference/commands/{name}.md"} for name in sorted(JOBS)]
    for section in config.nav or []:
        for pages in section.values() if isinstance(section, dict) else ():
            if isinstance(pages, list) and {"Command line": "reference/command-line.md"} in pages:
                pages.append({"Jobs": jobs})
    return config


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Draw diagrams, and replace links to files outside of `docs`, which the site does not have, by their text."""

    def shown(found: re.Match[str]) -> str:
        return found["text"] if _leaves_docs(page.file.src_uri, found["target"]) else found[0]

    drawn = diagrams.BLOCK.sub(lambda block: f"{diagrams.svg(block['text'])}\n", markdown)
    return _LINK_OUT.sub(shown, drawn)


def _leaves_docs(source: str, target: str) -> bool:
    return target.count("../") > source.count("/")
