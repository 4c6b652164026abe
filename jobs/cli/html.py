"""The option `--html` of the jobs that write a page."""

from __future__ import annotations

import argparse
from pathlib import Path

from commitlake.jobs.cli.command import JobError


def add_html_argument(parser: argparse.ArgumentParser, default: str = "") -> None:
    """Add `--html`.

    Args:
        parser: Of a job.
        default: Where the page goes without it.
    """
    told = f" (default: {default})" if default else ""
    parser.add_argument("--html", type=Path, metavar="FILE", help=f"also write an HTML page, which works offline{told}")


def check_html_argument(path: Path | None) -> None:
    """Refuse a path for the page that could not be written at the end of the job.

    Raises:
        JobError: For a path that is no file in a folder that is there.
    """
    if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
        raise JobError(f"--html {path}: expected a file in an existing folder")
