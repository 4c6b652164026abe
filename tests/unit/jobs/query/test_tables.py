"""Tests of `query --tables` and `query --describe`."""

from __future__ import annotations

import json

import pytest

from commitlake.jobs.query import command as query
from commitlake.schemas.errors import ExitCode
from tests.support.lakes import GrowingLake, shop_messages


@pytest.fixture(scope="module")
def growing(tmp_path_factory: pytest.TempPathFactory) -> GrowingLake:
    growing = GrowingLake(tmp_path_factory.mktemp("tables"))
    growing.write(shop_messages(40))
    growing.archive()
    return growing


def test_tables_are_listed_with_their_rows(growing: GrowingLake, capsys: pytest.CaptureFixture[str]) -> None:
    assert query.main(["--lake", growing.lake.root, "--tables", "--format", "jsonl"]) == ExitCode.OK
    rows = {row["table"]: row for row in map(json.loads, capsys.readouterr().out.splitlines())}
    assert rows["messages"]["rows"] == 40
    assert rows["messages"]["contents"] == "one row per message"
    assert "topic_minutes" in rows
    assert "quarantine" not in rows, "it has no row yet"


def test_columns_are_described_with_their_comments(growing: GrowingLake, capsys: pytest.CaptureFixture[str]) -> None:
    assert query.main(["--lake", growing.lake.root, "--describe", "messages", "--format", "jsonl"]) == ExitCode.OK
    rows = {row["column"]: row for row in map(json.loads, capsys.readouterr().out.splitlines())}
    assert rows["physical_offset"]["type"] == "bigint"
    assert rows["broker"]["contents"].startswith("the store's name")


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (["--describe", "mesages"], "no table 'mesages'. Did you mean 'messages'?"),
        (["--describe", "gaps"], "no table 'gaps' yet; it is created with its first row"),
        (["--tables", "--topic", "orders"], "--topic has no effect with --tables"),
        (["--sql", "SELECT * FROM mesages"], "there is no table 'mesages'. Did you mean 'messages'?"),
        (["--sql", "SELECT topik FROM messages"], "Did you mean 'messages.topic'?"),
        (["--sql", "SELECT lenght(topic) FROM messages"], "Invalid function 'lenght'. Did you mean 'length'?"),
    ],
)
def test_unknown_names_are_reported_with_the_nearest(
    growing: GrowingLake, capsys: pytest.CaptureFixture[str], given: list[str], error: str
) -> None:
    assert query.main(["--lake", growing.lake.root, *given]) == ExitCode.USAGE
    assert error in capsys.readouterr().err
