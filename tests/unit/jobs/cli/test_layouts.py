"""`--layout` of the jobs that read stores."""

from __future__ import annotations

import argparse

import pytest

from commitlake.connectors.formats.jmq.format import FORMAT as JMQ
from commitlake.connectors.formats.registry import ANY_FORMAT, FormatChoice
from commitlake.connectors.formats.rocketmq.format import FORMAT as ROCKETMQ
from commitlake.jobs.cli.layouts import add_layout_argument, layout_of


def parse(*arguments: str) -> FormatChoice:
    parser = argparse.ArgumentParser()
    add_layout_argument(parser)
    return layout_of(parser.parse_args(arguments))


def test_a_layout_has_the_readers_name_or_that_of_a_broker() -> None:
    of_commitlog = {parse("--layout", name) for name in ("commitlog", "rocketmq", "boltmq")}
    of_journal = {parse("--layout", name) for name in ("journal", "jmq")}
    assert (of_commitlog, of_journal) == ({FormatChoice(ROCKETMQ)}, {FormatChoice(JMQ)})
    assert parse() == ANY_FORMAT


def test_another_name_is_refused_with_those_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse("--layout", "kafka")
    said = capsys.readouterr().err
    assert "'kafka'" in said
    assert "commitlog" in said
    assert "journal" in said
