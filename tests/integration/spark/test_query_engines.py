"""`query` gives the same answer by both engines, on a lake that Spark wrote, in any time zone."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import Row, SparkSession, functions

from commitlake.connectors.lake.spark_reader import selection_condition
from commitlake.connectors.lake.sql import Engine, selection_conditions
from commitlake.jobs.query import command as query
from commitlake.schemas.selection import Selection
from commitlake.schemas.tables.messages import MESSAGES, PARTITION_COLUMNS
from commitlake.schemas.tables.spark_schemas import spark_schema
from tests.support.lakes import GrowingLake
from tests.support.selected_messages import CONDITIONS, is_selected, random_messages, selections, stored_after_ms

UTC = datetime.UTC
NOON = datetime.datetime(2026, 11, 20, 12, tzinfo=UTC)
ODD_TEXTS = (
    "it's",
    "back\\slash",
    "trailing\\",
    '"quoted"',
    "订单",
    "a\nb",
    "%",
    "-- no",
    "\\'; drop table messages; --",
    "${env:HOME}",
    "${spark.app.name}",
)
COUNT = 40

Ask = Callable[..., tuple[int, str, str]]


def message(number: int) -> Row:
    """Return the row with a number: rows are an hour apart, in three partitions, and have some null columns."""
    stored = NOON + datetime.timedelta(hours=number, milliseconds=number)
    text = ODD_TEXTS[number % len(ODD_TEXTS)]
    values = dict.fromkeys(MESSAGES.names) | {
        "broker": f"broker-{number % 2}",
        "physical_offset": 1000 * number,
        "topic": f"topic-{number % 3}",
        "queue_id": number % 4,
        "queue_offset": number,
        "msg_id": f"7F00000100002A9F{1000 * number:016X}",
        "unique_key": f"{number:032X}",
        "keys": [f"order-{number // 2}", text] if number % 5 else None,
        "kind": "normal",
        "born_timestamp": stored - datetime.timedelta(days=number * 20),
        "store_timestamp": None if number == COUNT - 1 else stored,
        "body_size": number,
        "properties": {"text": text, text: "x"},
        "store_date": None if number == COUNT - 1 else stored.date(),
    }
    return Row(**values)


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with the table `messages` as an archive run writes it."""
    root = tmp_path_factory.mktemp("lake")
    rows = spark.createDataFrame([message(number) for number in range(COUNT)], spark_schema(MESSAGES))
    rows.write.format("delta").partitionBy(*PARTITION_COLUMNS).save(str(root / "messages"))
    return root


@pytest.fixture(scope="module")
def archived(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The table of messages with odd texts."""
    growing = GrowingLake(tmp_path_factory.mktemp("selections"))
    growing.write(random_messages(), stored_after_ms)
    growing.archive()
    return growing.lake.uri("messages")


SELECTS = (
    (
        "SELECT topic, count(*) AS messages, sum(body_size) AS bytes, max(store_timestamp) AS last FROM messages "
        "GROUP BY topic ORDER BY topic"
    ),
    (
        "SELECT physical_offset, tags, keys, properties, store_timestamp, store_date, "
        "CAST(queue_offset AS DOUBLE) / 4 AS quarter FROM messages ORDER BY physical_offset DESC -- the last first"
    ),
    (
        "WITH some AS (SELECT * FROM messages WHERE queue_id > 1) SELECT m.queue_offset, s.queue_id FROM messages m "
        "LEFT JOIN some s ON s.physical_offset = m.physical_offset ORDER BY m.queue_offset LIMIT 7"
    ),
    "SELECT topic, body_size FROM messages WHERE false",
)


@pytest.fixture
def far_away(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process in a zone far from UTC, on a continent where clocks are put back in November."""
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def ask(lake: Path, capsys: pytest.CaptureFixture[str]) -> Ask:
    """A function that asks by one engine: exit code, standard output, standard error."""

    def run(engine: str, *arguments: str) -> tuple[int, str, str]:
        code = query.main(["--lake", str(lake), "--engine", engine, "--output", "jsonl", *arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.mark.some_cases(5)
@pytest.mark.usefixtures("far_away")
@pytest.mark.parametrize(
    ("arguments", "rows"),
    [
        ([], COUNT),
        (["--limit", "7"], 7),
        (["--limit", "0"], COUNT),
        (["--topic", "topic-1", "--queue", "2"], 3),
        (["--key", "order-3"], 2),
        *((["--key", text], None) for text in ODD_TEXTS[:5]),
        *(
            pytest.param(["--key", text], None, marks=pytest.mark.long("other texts are quoted by the same code"))
            for text in ODD_TEXTS[5:]
        ),
        (["--where", "properties['text'] = '订单'"], 4),
        (["--where", "body_size >= 38 -- a comment"], 2),
        (["--where", "keys is null or array_contains(keys, 'order-1')"], 10),
        (["--from", "2026-11-20T14:00", "--to", "2026-11-20T17:00"], 3),
        (["--from", "2026-11-21", "--to", "2026-11-22"], 24),
        (["--id", "7F00000100002A9F00000000000003E8"], 1),
        (["--id", f"{7:032X}"], 1),
        (
            ["--order-by", "queue_id desc, physical_offset", "--columns", "queue_id,physical_offset,store_timestamp"],
            COUNT,
        ),
        (["--order-by", "keys desc", "--limit", "0", "--columns", "born_timestamp,store_date"], COUNT),
        (["--topic", "nobody's"], 0),
    ],
)
def test_both_engines_give_the_same_rows_in_the_same_order(ask: Ask, arguments: list[str], rows: int | None) -> None:
    code, out, err = ask("deltalake", *arguments)
    assert (code, ask("spark", *arguments)[:2]) == (0, (0, out)), err
    assert rows is None or len(out.splitlines()) == rows


@given(wanted=st.lists(selections(CONDITIONS), min_size=30, max_size=30))
@settings(max_examples=2, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
def test_a_selection_means_the_same_to_spark_as_sql_and_as_a_column(
    archived: str, spark: SparkSession, wanted: list[Selection]
) -> None:
    columns = []
    for number, each in enumerate(wanted):
        sql = " AND ".join(["true", *selection_conditions(each, Engine.SPARK)])
        columns += [functions.expr(sql).alias(f"sql{number}"), selection_condition(each).alias(f"column{number}")]
    answers = spark.read.format("delta").load(archived).select("physical_offset", *columns).collect()
    rows = {row["physical_offset"]: row for row in DeltaTable(archived).to_pyarrow_table().to_pylist()}
    assert len(answers) == len(rows)
    for number, each in enumerate(wanted):
        meant = {offset for offset, row in rows.items() if is_selected(row, each)}
        for engine in ("sql", "column"):
            found = {answer["physical_offset"] for answer in answers if answer[f"{engine}{number}"]}
            assert found == meant, (engine, each)


@pytest.mark.some_cases(2)
@pytest.mark.usefixtures("far_away")
@pytest.mark.parametrize("sql", SELECTS)
def test_both_engines_give_the_same_answer_to_a_select(ask: Ask, spark: SparkSession, sql: str) -> None:
    expected = ask("deltalake", "--sql", sql, "--output", "jsonl")
    assert expected[0] == 0, expected[2]
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")  # somebody's own session
    try:
        assert ask("spark", "--sql", sql, "--output", "jsonl")[:2] == expected[:2]
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(zone))


@pytest.mark.parametrize(
    "sql", ["DROP VIEW messages", "SELECT 1; SELECT 2", "SELECT 1) INSERT INTO messages SELECT (1"]
)
def test_spark_accepts_only_a_single_select(ask: Ask, sql: str) -> None:
    code, out, err = ask("spark", "--sql", sql)
    assert (code, out) == (2, "")
    assert "the query is invalid" in err


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM csv.`{file}`",
        "SELECT (SELECT max(value) FROM text.`{file}`) FROM messages",
        "SELECT * FROM messages WHERE topic IN (SELECT value FROM text.`{file}`)",
        "WITH other AS (SELECT * FROM IDENTIFIER('text.`{file}`')) SELECT * FROM other",
        "SELECT TRANSFORM (topic) USING 'cat {file}' AS (line) FROM messages",
        "SELECT reflect('java.lang.System', 'getProperty', 'user.home')",
        "SELECT try_reflect('java.lang.System', 'getProperty', 'user.home')",
        "SELECT topic FROM messages WHERE topic = java_method('java.lang.System', 'getenv', 'PATH')",
    ],
)
def test_spark_reads_no_other_file_and_runs_no_command(ask: Ask, tmp_path: Path, sql: str) -> None:
    secret = tmp_path / "secret"
    secret.write_text("a line\n")
    code, out, err = ask("spark", "--sql", sql.format(file=secret))
    assert (code, out) == (2, "")
    assert "the query is invalid" in err


@pytest.mark.parametrize("condition", ["topic IN (SELECT TRANSFORM (1) USING 'echo orders' AS (line))",
                                       "topic = reflect('java.lang.System', 'getProperty', 'user.home')"])  # fmt: skip
def test_a_condition_runs_no_command_in_spark(ask: Ask, condition: str) -> None:
    code, out, _ = ask("spark", "--where", condition)
    assert (code, out) == (2, "")


def test_a_limit_cuts_the_answer_of_spark_with_a_warning(ask: Ask) -> None:
    _, out, err = ask("spark", "--sql", "SELECT physical_offset FROM messages", "--limit", "3", "--output", "jsonl")
    assert len(out.splitlines()) == 3
    assert "--limit 3 cut the result" in err


def test_text_of_a_condition_is_never_substituted_as_a_variable(ask: Ask, spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.variable.substitute") == "false"
    spark.conf.set("spark.sql.variable.substitute", "true")
    try:
        found = [ask("spark", "--where", f"properties['text'] = '{text}'") for text in ODD_TEXTS[-2:]]
        assert spark.conf.get("spark.sql.variable.substitute") == "true"
    finally:
        spark.conf.set("spark.sql.variable.substitute", "false")
    assert [(code, len(out.splitlines())) for code, out, _ in found] == [(0, 3), (0, 3)]


@pytest.mark.some_cases(1)
@pytest.mark.parametrize("arguments", [[], ["--topic", "topic-1"], ["--id", f"{7:032X}"], ["--topic", "nobody's"]])
def test_both_engines_count_the_same(ask: Ask, arguments: list[str]) -> None:
    code, out, _ = ask("deltalake", "--count", *arguments)
    assert (code, ask("spark", "--count", *arguments)[:2]) == (0, (0, out))


@pytest.mark.parametrize("predicate", ["nothing_of_the_kind = 1", "selec fro", "body_size / 0 > 1", "1 = 1)", "(1 = 1"])
def test_a_condition_that_spark_cannot_evaluate_is_one_line_of_error(ask: Ask, predicate: str) -> None:
    code, out, err = ask("spark", "--where", predicate)
    assert (code, out) == (2, "")
    assert err.startswith(
        ("commitlake query: error: the query is invalid: ", "commitlake query: error: where: expected")
    )
    assert "Traceback" not in err
    assert "\tat " not in err
