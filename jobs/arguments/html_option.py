"""The option `--html` of the jobs that write a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from commitlake.jobs.cli.options import Options, option

if TYPE_CHECKING:
    from commitlake.connectors.lake.lake import Lake
    from commitlake.jobs.report.page_file import PageFile

HTML_HELP = "also write an HTML page, which works offline"


@dataclass(frozen=True, kw_only=True)
class HtmlPageOption(Options):
    """The option `--html`, which names the HTML page that a command writes."""

    html: Path | None = option(HTML_HELP, parse=Path, metavar="FILE")

    @contextmanager
    def open_page(
        self, job: str, title: str, facts: Sequence[tuple[str, str]], lake: Lake | None = None
    ) -> Iterator[PageFile | None]:
        """Return the file of the page; None without the option, for which no code of pages is loaded.

        The arguments, and what is written if the block fails, are those of `write_page_on_failure`.
        """
        if self.html is None:
            yield None
            return
        from commitlake.jobs.report.page_file import check_page_file, write_page_on_failure

        file = check_page_file(self.html)
        with write_page_on_failure(file, job, title, facts, lake):
            yield file
