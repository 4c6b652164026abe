"""Tests of text files that jobs write: a segment or another binary file is not replaced."""

from __future__ import annotations

from pathlib import Path

import pytest

from commitlake.connectors.lake.paths import LakeError
from commitlake.jobs.cli.main import main
from commitlake.jobs.cli.output_files import OutputFileError, check_output_file
from commitlake.schemas.layouts.segment_names import segment_name
from tests.support.logs import messages, open_segment, write_store


@pytest.mark.parametrize("content", [None, b"", b"<html>", "<p>\u5317</p>".encode(), b"# HELP x\n"])
def test_new_files_and_texts_are_accepted(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    if content is not None:
        path.write_bytes(content)
    check_output_file("--html", path)


def test_a_folder_and_a_file_in_no_folder_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "no" / "page.html"):
        with pytest.raises(OutputFileError, match="expected a file in an existing folder"):
            check_output_file("--html", path)


def test_a_file_in_a_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lake" / "messages" / "_delta_log").mkdir(parents=True)
    check_output_file("--html", tmp_path / "lake" / "page.html")
    with pytest.raises(LakeError, match=r"--html .*page.html is in .*messages, a table of a lake"):
        check_output_file("--html", tmp_path / "lake" / "messages" / "page.html")


@pytest.mark.parametrize(
    "words",
    [
        "archive --lake {lake} --store {store} --local --html {segment}",
        "archive --lake {lake} --store {store} --local --metrics-file {segment}",
        "verify {store} --local --html {segment}",
        "guard --store {store} --lake {lake} --html {segment}",
        "metrics --lake {lake} --textfile {segment}",
        "lineage --lake {lake} --key k --openlineage {segment}",
    ],
)
def test_no_job_overwrites_a_segment(words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "store"
    write_store(store, [(0, open_segment(messages(3), 4096))])
    segment = store / "commitlog" / segment_name(0)
    before = segment.read_bytes()
    arguments = [word.format(lake=tmp_path / "lake", store=store, segment=segment) for word in words.split()]
    assert main(arguments) == 2
    assert f"{segment}: the file contains binary data, which would be replaced" in capsys.readouterr().err
    assert segment.read_bytes() == before
