"""The option `--html` of the jobs that write a page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from commitlake.jobs.cli.options import Options, option
from commitlake.jobs.cli.output_files import check_output_file

HTML_HELP = "also write an HTML page, which works offline"


@dataclass(frozen=True, kw_only=True)
class HtmlArgument(Options):
    """The option `--html`, which names the HTML page that a command writes."""

    html: Path | None = option(HTML_HELP, parse=Path, metavar="FILE")


def check_html_argument(path: Path | None) -> None:
    """Check, if a path for an HTML page is given, that the page can be written there."""
    if path is not None:
        check_output_file("--html", path)
