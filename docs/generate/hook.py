"""The hook of mkdocs: it adds generated pages, draws diagrams, and adapts links that leave the documentation."""

from __future__ import annotations

import re
from collections.abc import Mapping

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from commitlake.jobs.cli.main import JOBS
from docs.generate import commands, diagrams, lake_tables, layouts, spark_options

_LINK_OUT = re.compile(r"\[(?P<text>[^\]]+)\]\((?P<target>(?:\.\./)+[^)#]*)\)")


def generated_pages() -> Mapping[str, str]:
    """Return the Markdown of each generated page, by its path in the documentation."""
    pages = {
        "reference/command-line.md": commands.index_page(),
        "reference/spark-options.md": spark_options.page(),
        "reference/tables.md": lake_tables.page(),
        "reference/file-formats.md": layouts.page(),
    }
    return pages | {f"reference/commands/{name}.md": commands.job_page(name) for name in JOBS}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages of the jobs after that of the command line."""
    jobs = [{name: f"reference/commands/{name}.md"} for name in sorted(JOBS)]
    for section in config.nav or []:
        for pages in section.values() if isinstance(section, dict) else ():
            if isinstance(pages, list) and {"Command line": "reference/command-line.md"} in pages:
                pages.append({"Jobs": jobs})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages to those of the folder."""
    for path, content in generated_pages().items():
        files.append(File.generated(config, path, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Draw diagrams, and replace links to files outside of `docs`, which the site does not have, by their text."""

    def shown(found: re.Match[str]) -> str:
        return found["text"] if _leaves_docs(page.file.src_uri, found["target"]) else found[0]

    drawn = diagrams.BLOCK.sub(lambda block: f"{diagrams.svg(block['text'])}\n", markdown)
    return _LINK_OUT.sub(shown, drawn)


def _leaves_docs(source: str, target: str) -> bool:
    return target.count("../") > source.count("/")
