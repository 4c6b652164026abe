"""`tps` gives the same answer by Spark as without it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql import SparkSession

from commitlake.jobs.tps import command as tps
from commitlake.schemas.errors import ExitCode
from tests.support.lakes import MIDNIGHT_MS, GrowingLake
from tests.support.logs import new_message

QUESTIONS = (
    ("--by", "topic,queue,tag"),
    ("--by", "none", "--percentiles"),
    ("--by", "topic", "--window", "2m", "--percentiles"),
    ("--by", "broker,kind", "--window", "2m", "--step", "1m"),
    ("--by", "topic", "--window", "1s", "--topic", "it's \\ 订单"),
    ("--by", "producer-host,producer-group,origin-topic"),
    ("--show", "hot-queues"),
)


@pytest.fixture(scope="module")
def growing(tmp_path_factory: pytest.TempPathFactory) -> GrowingLake:
    """A lake of two runs, in which two minutes of the same five have as many messages."""
    growing = GrowingLake(tmp_path_factory.mktemp("tps"))
    for run in range(2):
        growing.write(
            new_message(
                number,
                topic="it's \\ 订单" if number % 3 else "orders",
                queue_id=number % 2,
                born_timestamp=MIDNIGHT_MS + 7000 * number + 100_000 * run,
                properties=(("TAGS", f"tag-{number % 2}"), ("PGROUP", "shop")) if number % 4 else (),
            )
            for number in range(30)
        )
        growing.archive()
    return growing


@pytest.mark.parametrize("question", QUESTIONS, ids=" ".join)
def test_spark_counts_the_same(
    growing: GrowingLake, spark: SparkSession, capsys: pytest.CaptureFixture[str], question: tuple[str, ...]
) -> None:
    def ask(engine: str) -> list[dict[str, Any]]:
        capsys.readouterr()
        arguments = ["--lake", growing.lake.root, "--output", "jsonl", "--quiet", "--engine", engine, *question]
        assert tps.main(arguments) == ExitCode.OK
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    expected = ask("deltalake")
    assert expected
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kathmandu")  # somebody's own session
    try:
        assert ask("spark") == expected
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(zone))
