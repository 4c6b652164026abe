"""`--spark` chooses the engine of a query; in the environment it may be meant for other jobs."""

from __future__ import annotations

import pytest

from commitlake.connectors.lake.sql import Engine
from commitlake.jobs.cli.command import JobError, job_parser
from commitlake.jobs.cli.engine_argument import add_engine_argument, refuse_spark


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
    add_engine_argument(parser, "use Spark")
    assert parser.parse_args(argv).engine == str(expected)
    assert "--engine" not in parser.format_help()


def test_spark_is_refused_if_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    parser = job_parser("query", "Query.", ())
    add_engine_argument(parser, "use Spark")
    with pytest.raises(JobError, match="HBase has no Spark"):
        refuse_spark(parser.parse_args(["--spark"]), "HBase has no Spark")
    monkeypatch.setenv("COMMITLAKE_SPARK", "true")
    arguments = parser.parse_args([])
    assert arguments.engine == str(Engine.SPARK)
    refuse_spark(arguments, "HBase has no Spark")
    assert arguments.engine == str(Engine.DELTALAKE)
