"""`--spark` chooses the engine of a query; in the environment it may be meant for other jobs."""

from __future__ import annotations

import pytest

from commitlake.connectors.lake.sql import Engine
from commitlake.jobs.arguments.query_engine import EngineArguments, is_spark_option_given
from commitlake.jobs.cli.command import job_parser
from commitlake.jobs.cli.options import add_options


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ([], Engine.DELTALAKE),
        (["--spark"], Engine.SPARK),
        (["--engine", "spark"], Engine.SPARK),
        (["--engine", "deltalake"], Engine.DELTALAKE),
    ],
)
def test_spark_is_chosen_by_its_option_and_by_the_older_one(argv: list[str], expected: Engine) -> None:
    parser = job_parser("query", "Query.", ())
    add_options(parser, EngineArguments)
    assert parser.parse_args(argv).engine == str(expected)
    assert "--engine" not in parser.format_help()


def test_spark_in_the_environment_is_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_spark_option_given(EngineArguments(engine="spark"))
    assert not is_spark_option_given(EngineArguments())
    monkeypatch.setenv("COMMITLAKE_SPARK", "true")
    assert not is_spark_option_given(EngineArguments(engine="spark"))
