"""Tests of the option `--html`: a file in an existing folder."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from commitlake.jobs.arguments.html_option import HtmlPageOption
from commitlake.jobs.cli.options import add_options
from commitlake.jobs.cli.output_files import OutputFileError


def test_the_option_is_a_path_or_none(tmp_path: Path) -> None:
    parser = argparse.ArgumentParser()
    add_options(parser, HtmlPageOption)
    assert parser.parse_args([]).html is None
    assert parser.parse_args(["--html", str(tmp_path / "x.html")]).html == tmp_path / "x.html"


def test_a_folder_or_a_file_in_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with HtmlPageOption().open_page("lag", "Lag", []) as file:
        assert file is None
    with HtmlPageOption(html=tmp_path / "page.html").open_page("lag", "Lag", []) as file:
        assert file is not None
    for path in (tmp_path, tmp_path / "no" / "page.html"):
        refused = pytest.raises(OutputFileError, match="expected a file in an existing folder")
        with refused, HtmlPageOption(html=path).open_page("lag", "Lag", []):
            pass
