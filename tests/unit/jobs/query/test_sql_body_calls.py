"""Tests of the function `body` of `query --sql`."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commitlake.jobs.query import command as query
from commitlake.jobs.query.sql_body_calls import expand_body_calls
from commitlake.schemas.errors import ExitCode
from tests.support.lakes import GrowingLake
from tests.support.logs import new_message

BODIES = (b'{"order": 4711}', b"\xff\x00", "größer".encode(), b"")
PLACE = "named_struct('body_ref', body_ref, 'body_crc', body_crc, 'body_codec', body_codec)"
Ask = Callable[..., tuple[int, list[dict[str, Any]], str]]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A lake of one message for each body."""
    growing = GrowingLake(tmp_path_factory.mktemp("bodies"))
    growing.write([new_message(number, body=body) for number, body in enumerate(BODIES)])
    growing.archive()
    return growing.lake.root


@pytest.fixture
def ask(lake: str, capsys: pytest.CaptureFixture[str]) -> Ask:
    """Ask for rows as JSON lines."""

    def ask(sql: str, *arguments: str) -> tuple[int, list[dict[str, Any]], str]:
        code = query.main(["--lake", lake, "--output", "jsonl", "--sql", sql, *arguments])
        captured = capsys.readouterr()
        return code, [json.loads(line) for line in captured.out.splitlines()], captured.err

    return ask


@pytest.mark.parametrize(
    ("sql", "expanded"),
    [
        ("SELECT body() FROM messages", f"SELECT {PLACE} FROM messages"),
        ("SELECT Body ( ), topic FROM messages", f"SELECT {PLACE}, topic FROM messages"),
        ("SELECT body() AS text FROM messages", f"SELECT {PLACE} AS text FROM messages"),
        ("SELECT coalesce(body(), 1)", f"SELECT coalesce({PLACE}, 1)"),
        (
            "SELECT 'body()', \"body()\" -- body()\n/* body()\n */",
            "SELECT 'body()', \"body()\" -- body()\n/* body()\n */",
        ),
        ("SELECT 'it''s body()' FROM m", "SELECT 'it''s body()' FROM m"),
        ("SELECT somebody(), x.body(), body FROM m", "SELECT somebody(), x.body(), body FROM m"),
        ("SELECT body(a, b), body(1)", "SELECT body(a, b), body(1)"),
    ],
)
def test_calls_are_expanded_outside_of_quotes_and_comments(sql: str, expanded: str) -> None:
    assert expand_body_calls(sql) == expanded


def test_a_call_may_name_a_table_alias() -> None:
    place = "named_struct('body_ref', m.body_ref, 'body_crc', m.body_crc, 'body_codec', m.body_codec)"
    assert expand_body_calls("SELECT body(m) FROM messages m") == f"SELECT {place} FROM messages m"


@pytest.mark.parametrize("sql", ["SELECT queue_id, body() FROM messages ORDER BY physical_offset",
                                 "SELECT queue_id, body(m) FROM messages m ORDER BY m.physical_offset"])  # fmt: skip
def test_bodies_are_text_or_base64(ask: Ask, sql: str) -> None:
    code, rows, _ = ask(sql)
    assert code == ExitCode.OK
    assert [row["body"] for row in rows] == ['{"order": 4711}', None, "größer", rows[3]["body"]]
    assert rows[1]["body_base64"] == base64.b64encode(BODIES[1]).decode()
    assert rows[3]["body"] in ("", None)
    assert [list(row) for row in rows] == [["queue_id", "body", "body_base64"]] * 4


def test_a_body_may_have_an_alias_and_a_limit(ask: Ask) -> None:
    code, rows, _ = ask("SELECT body() AS text FROM messages WHERE queue_id = 0", "--limit", "1")
    assert (code, rows) == (ExitCode.OK, [{"text": '{"order": 4711}', "text_base64": None}])


def test_results_may_have_no_rows_or_no_bodies(ask: Ask) -> None:
    assert ask("SELECT body() FROM messages WHERE topic = 'none'")[:2] == (ExitCode.OK, [])
    assert ask("SELECT count(*) AS n FROM messages")[:2] == (ExitCode.OK, [{"n": 4}])


def test_a_table_without_bodies_is_refused(ask: Ask) -> None:
    code, _, printed = ask("SELECT body() FROM archive_runs")
    assert code == ExitCode.USAGE
    assert "body_ref" in printed


@pytest.mark.parametrize(
    ("sql", "call"),
    [
        ("SELECT body(msg_id) FROM messages", "body(msg_id)"),
        ("SELECT 'body(x)', body(body_ref) FROM messages", "body(body_ref)"),
        ("SELECT body(m.body_ref) FROM messages m", "body(m.body_ref)"),
        ("SELECT body('x') FROM messages", "body('x')"),
        ("SELECT body() FROM archive_runs", "body()"),
    ],
)
def test_a_wrong_argument_of_body_is_explained(ask: Ask, sql: str, call: str) -> None:
    code, _, printed = ask(sql)
    assert code == ExitCode.USAGE
    assert f"the query is invalid: {call}: expected body(), or body(m) with 'FROM messages m'" in printed


def test_other_errors_of_the_engine_are_printed_unchanged(ask: Ask) -> None:
    assert "expected body()" not in ask("SELECT nothing, body() FROM messages")[2]


def test_a_missing_pack_is_an_error(ask: Ask, lake: str) -> None:
    packs = Path(lake, "bodies")
    packs.rename(packs.with_name("elsewhere"))
    try:
        code, _, printed = ask("SELECT body() FROM messages")
    finally:
        packs.with_name("elsewhere").rename(packs)
    assert code != ExitCode.OK
    assert "pack" in printed
