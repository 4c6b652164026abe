"""`tps` gives the same answer by Spark as without it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from commitlake.jobs.tps import command as tps
from commitlake.pipelines.edges.table_update import catch_up_edges
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.layouts.rocketmq.topics import HALF_TOPIC, OP_TOPIC
from tests.support.lakes import MIDNIGHT_MS, GrowingLake
from tests.support.logs import new_message

ANOTHER = pytest.mark.long("other questions with the same parts are asked each time")
QUESTIONS = (
    ("--by", "topic,queue,tag"),
    ("--by", "none", "--percentiles"),
    ("--by", "topic", "--window", "2m", "--percentiles"),
    ("--by", "broker,kind", "--window", "2m", "--step", "1m"),
    ("--by", "topic", "--window", "1s", "--topic", "it's \\ 订单"),
    pytest.param(("--by", "producer-host,producer-group,origin-topic"), marks=ANOTHER),
    ("--show", "hot-queues"),
)
COMPARED = (
    (),
    pytest.param(("--window", "30m"), marks=ANOTHER),
    pytest.param(("--window", "30s", "--by", "topic,producer-host"), marks=ANOTHER),
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


@pytest.fixture(scope="module")
def days(tmp_path_factory: pytest.TempPathFactory) -> GrowingLake:
    """A lake of two days; on the second one a topic is silent, and a message is of a committed transaction."""
    growing = GrowingLake(tmp_path_factory.mktemp("days"))
    next_day = MIDNIGHT_MS + 86_400_000
    sent = [("orders", MIDNIGHT_MS, 0), ("silent", MIDNIGHT_MS, 0), ("orders", next_day, 8), ("orders", next_day, 0)]
    growing.write(
        new_message(number, topic=topic, born_timestamp=born, sys_flag=sys_flag)
        for number, (topic, born, sys_flag) in enumerate(sent)
    )
    growing.archive()
    return growing


@pytest.mark.some_cases(2)
@pytest.mark.parametrize("question", QUESTIONS, ids=" ".join)
def test_spark_counts_the_same(
    growing: GrowingLake, spark: SparkSession, capsys: pytest.CaptureFixture[str], question: tuple[str, ...]
) -> None:
    check_engines(growing, spark, capsys, question)


@pytest.mark.parametrize("question", COMPARED, ids=" ".join)
def test_spark_compares_the_same(
    days: GrowingLake, spark: SparkSession, capsys: pytest.CaptureFixture[str], question: tuple[str, ...]
) -> None:
    times = ("--from", "2023-11-16T00:00", "--to", "2023-11-16T00:30", "--compare", "day")
    rows = check_engines(days, spark, capsys, (*times, *question))
    assert {row["topic"] for row in rows} == {"orders", "silent"}
    assert sum(row["committed"] or 0 for row in rows) == 1


@pytest.mark.long("both engines count the same rows each time")
def test_spark_counts_the_same_outcomes_of_transactions(
    tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    growing = GrowingLake(tmp_path)
    keys = [(("UNIQ_KEY", key),) for key in "ABB"]
    growing.write(
        [
            *(new_message(0, topic=HALF_TOPIC, queue_id=0, properties=key, born_timestamp=MIDNIGHT_MS) for key in keys),
            new_message(0, topic=OP_TOPIC, queue_id=0, body=b"0", born_timestamp=MIDNIGHT_MS),
        ]
    )
    growing.archive()
    catch_up_edges(growing.lake)
    (row,) = check_engines(growing, spark, capsys, ("--by", "none", "--broker", "broker-a", "--queue", "0"))
    assert (row["rolled_back"], row["given_up"], row["open"]) == (1, 0, 1)


def check_engines(
    growing: GrowingLake, spark: SparkSession, capsys: pytest.CaptureFixture[str], question: tuple[str, ...]
) -> list[dict[str, Any]]:
    """Check that both engines give the same rows, and return them."""

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
    return expected
