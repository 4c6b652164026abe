"""The option `--html` of the jobs that write a page."""

from __future__ import annotations

import argparse
from pathlib import Path

from commitlake.jobs.cli.output_files import check_text_file


def add_html_argument(parser: argparse.ArgumentParser, default: str = "") -> None:
    """Add `--html`.

    Args:
        default: Path of the page without the option.
    """
    default_text = f" (default: {default})" if default else ""
    parser.add_argument(
        "--html", type=Path, metavar="FILE", help=f"also write an HTML page, which works offline{default_text}"
    )


def check_html_argument(path: Path | None) -> None:
    """Check the path of the page, if there is one; see `check_text_file`."""
    if path is not None:
        check_text_file("--html", path)
