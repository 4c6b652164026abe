"""Tests of `query --sql`: any SELECT over the tables of a lake, and no other statement."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commitlake.jobs.query import command as query
from commitlake.schemas.errors import ExitCode
from tests.support.lakes import GrowingLake, shop_messages

Ask = Callable[..., tuple[int, list[dict[str, Any]], str]]


@pytest.fixture(scope="module")
def growing(tmp_path_factory: pytest.TempPathFactory) -> GrowingLake:
    growing = GrowingLake(tmp_path_factory.mktemp("sql"))
    growing.write(shop_messages(40))
    growing.archive()
    return growing


@pytest.fixture
def ask(growing: GrowingLake, capsys: pytest.CaptureFixture[str]) -> Ask:
    """Ask for rows as JSON lines."""

    def ask(sql: str, *arguments: str) -> tuple[int, list[dict[str, Any]], str]:
        capsys.readouterr()
        code = query.main(["--lake", growing.lake.root, "--output", "jsonl", "--sql", sql, *arguments])
        captured = capsys.readouterr()
        return code, [json.loads(line) for line in captured.out.splitlines()], captured.err

    return ask


def test_aggregates_are_answered_in_their_order(ask: Ask) -> None:
    code, rows, printed = ask("SELECT topic, count(*) AS n FROM messages GROUP BY topic ORDER BY n DESC, topic;")
    counts = Counter(message.topic for message in shop_messages(40))
    assert code == ExitCode.OK
    assert [(row["topic"], row["n"]) for row in rows] == sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    assert f"{len(counts)} rows" in printed


def test_tables_can_be_joined(ask: Ask) -> None:
    sql = (
        "WITH m AS (SELECT topic, sum(messages) AS counted FROM topic_minutes GROUP BY topic) SELECT m.topic, counted, "
        "count(*) AS n FROM m JOIN messages ON m.topic = messages.topic GROUP BY m.topic, counted -- a comment"
    )
    code, rows, _ = ask(sql)
    assert code == ExitCode.OK
    assert all(row["counted"] == row["n"] for row in rows)
    assert len(rows) == 5


def test_a_limit_that_cuts_the_result_is_reported(ask: Ask) -> None:
    _, rows, printed = ask("SELECT physical_offset FROM messages", "--limit", "3")
    assert len(rows) == 3
    assert "--limit 3 cut the result" in printed
    _, rows, printed = ask("SELECT physical_offset FROM messages ORDER BY physical_offset", "--limit", "0")
    assert len(rows) == 40
    assert rows == sorted(rows, key=lambda row: row["physical_offset"])


@pytest.mark.parametrize(
    "statement",
    [
        "COPY (SELECT 1) TO '{file}' STORED AS CSV",
        "COPY messages TO '{file}' STORED AS CSV",
        "/* SELECT */ COPY (SELECT 1) TO '{file}' STORED AS CSV",
        "SELECT 1) SELECT * FROM answer; COPY (SELECT 1) TO '{file}' STORED AS CSV",
        "CREATE TABLE x AS SELECT 1",
        "CREATE EXTERNAL TABLE x STORED AS CSV LOCATION '/etc/hostname'",
        "CREATE VIEW x AS SELECT 1",
        "INSERT INTO messages SELECT * FROM messages",
        "DELETE FROM messages",
        "UPDATE messages SET topic = 'x'",
        "DROP TABLE messages",
        "SET datafusion.execution.batch_size = 1",
        "EXPLAIN SELECT 1",
        "SELECT 1; SELECT 2",
        "",
    ],
)
def test_anything_but_one_select_is_refused(ask: Ask, tmp_path: Path, statement: str) -> None:
    file = tmp_path / "written.csv"
    code, rows, printed = ask(statement.format(file=file))
    assert (code, rows) == (ExitCode.USAGE, [])
    assert "expected exactly one SELECT" in printed
    assert not file.exists()


def test_a_file_in_place_of_a_table_is_refused(ask: Ask) -> None:
    code, _, printed = ask("SELECT * FROM '/etc/hostname'")
    assert (code, "there is no table '/etc/hostname'" in printed) == (ExitCode.USAGE, True)


def test_a_table_that_does_not_exist_yet_is_refused(ask: Ask) -> None:
    code, _, printed = ask("SELECT * FROM quarantine")
    assert (code, "no table 'quarantine' yet" in printed) == (ExitCode.USAGE, True)


@pytest.mark.parametrize(
    "more",
    [("--topic", "a"), ("--from", "-2h"), ("--count",), ("--where", "true"), ("--table", "gaps"),
     ("--order-by", "topic"), ("--body",)],
)  # fmt: skip
def test_options_that_have_no_effect_are_refused(ask: Ask, more: tuple[str, ...]) -> None:
    code, _, printed = ask("SELECT 1", *more)
    assert (code, "--sql" in printed) == (ExitCode.USAGE, True)
