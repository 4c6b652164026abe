"""Tests of the option `--layout` of jobs that read stores."""

from __future__ import annotations

import argparse

import pytest

from commitlake.connectors.formats.jmq.format import FORMAT as JMQ
from commitlake.connectors.formats.registry import all_formats
from commitlake.connectors.formats.rocketmq.format import FORMAT as ROCKETMQ
from commitlake.connectors.log_format.format import Formats
from commitlake.jobs.arguments.store_layout import LayoutArgument, find_formats
from commitlake.jobs.cli.options import add_options, option_values


def parse(*arguments: str) -> Formats:
    parser = argparse.ArgumentParser()
    add_options(parser, LayoutArgument)
    return find_formats(LayoutArgument(**option_values(LayoutArgument, parser.parse_args(arguments))))


def test_a_layout_has_the_readers_name_or_that_of_a_broker() -> None:
    of_commitlog = {parse("--layout", name) for name in ("commitlog", "rocketmq", "boltmq")}
    of_journal = {parse("--layout", name) for name in ("journal", "jmq")}
    assert (of_commitlog, of_journal) == ({all_formats().select_only(ROCKETMQ)}, {all_formats().select_only(JMQ)})
    assert parse() == all_formats()


def test_an_unknown_layout_is_refused_with_the_known_names(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse("--layout", "kafka")
    printed = capsys.readouterr().err
    assert "'kafka'" in printed
    assert "commitlog" in printed
    assert "journal" in printed
