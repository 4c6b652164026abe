"""The README is short, and its table of jobs and its picture fit the code."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from commitlake.jobs.cli.main import JOBS
from docs.generate import page_picture
from docs.generate.commands import spark_need
from docs.generate.terminal_picture import COMMANDS, PICTURE
from tests.support.source_tree import ROOT

TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


def test_readme_has_at_most_120_lines() -> None:
    assert len(TEXT.splitlines()) <= 120


def test_all_jobs_are_listed_with_their_need_of_spark() -> None:
    listed = re.findall(r"^\| `(\w+)` \| [^|]+ \| ([^|]+) \|$", TEXT, re.MULTILINE)
    assert listed == [(name, spark_need(name)) for name in JOBS]


def test_the_picture_shows_the_commands_and_needs_no_network() -> None:
    text = PICTURE.read_text(encoding="utf-8")
    shown = " ".join("".join(ElementTree.fromstring(text).itertext()).replace("\xa0", " ").split())
    assert [command for command in COMMANDS if f"commitlake {command}" not in shown] == []
    assert "order-4711" in shown
    assert "url(http" not in text
    assert "@font-face" not in text


def test_the_first_sentence_names_the_brokers() -> None:
    first = TEXT.split("\n\n")[1]
    assert "RocketMQ" in first
    assert "JMQ" in first


def test_a_picture_of_a_page_is_shown() -> None:
    assert f"]({page_picture.PICTURE.relative_to(ROOT)})" in TEXT
    assert page_picture.PICTURE.read_bytes().startswith(b"\x89PNG")
