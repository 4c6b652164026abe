"""Write the pages of the reference that are made from the code: options, columns and bytes.

    python -m docs.generate.reference

The pages are in the repository, so that links to them work in a clone. A test compares them with what this makes.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from commitlake.jobs.cli.main import JOBS
from docs.generate import commands, lake_tables, layouts, spark_options

COMMAND = "python -m docs.generate.reference"
_DOCS = Path(__file__).parents[1]
_JOBS = "reference/commands"
_NOTE = f"<!-- Made from the code by {COMMAND}: change the code instead. -->\n\n"


def main() -> None:
    """Write all pages, and delete those of jobs that are gone."""
    pages = reference_pages()
    for path in made_pages() - pages.keys():
        (_DOCS / path).unlink()
    for path, content in pages.items():
        page = _DOCS / path
        page.parent.mkdir(exist_ok=True)
        page.write_text(content, encoding="utf-8")


def reference_pages() -> Mapping[str, str]:
    """Return the Markdown of each page that is made from the code, by its path in the documentation."""
    pages = {
        "reference/command-line.md": commands.index_page(),
        "reference/spark-options.md": spark_options.page(),
        "reference/tables.md": lake_tables.page(),
        "reference/file-formats.md": layouts.page(),
    }
    pages |= {f"{_JOBS}/{name}.md": commands.job_page(name) for name in JOBS}
    return {path: _NOTE + content for path, content in pages.items()}


def made_pages() -> set[str]:
    """Return the paths of the pages in the documentation that say that they are made from the code."""
    pages = (page for page in _DOCS.rglob("*.md") if page.read_text(encoding="utf-8").startswith(_NOTE))
    return {str(page.relative_to(_DOCS)) for page in pages}


if __name__ == "__main__":
    main()
