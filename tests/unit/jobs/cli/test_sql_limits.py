"""Tests that a query cannot take all memory or time of a machine."""

from __future__ import annotations

import subprocess
import sys

import pytest

from commitlake.jobs.cli.sql_limits import default_memory_limit
from commitlake.jobs.query import command as query
from commitlake.schemas.errors import ExitCode
from tests.support.lakes import GrowingLake, shop_messages


@pytest.fixture(scope="module")
def growing(tmp_path_factory: pytest.TempPathFactory) -> GrowingLake:
    growing = GrowingLake(tmp_path_factory.mktemp("limits"))
    growing.write(shop_messages(4))
    growing.archive()
    return growing


@pytest.mark.some_cases(2)
@pytest.mark.parametrize(
    ("question", "limit", "error"),
    [
        (["--sql", "SELECT length(repeat('a', 2000000000)) AS n"], ["--memory", "400MiB"], "more memory than --memory"),
        (["--where", "length(repeat('a', 2000000000)) > 1"], ["--memory", "400MiB"], "more memory than --memory"),
        (
            ["--sql", "WITH RECURSIVE t AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM t) SELECT count(*) FROM t"],
            ["--timeout", "1s"],
            "longer than --timeout allows, 1 s",
        ),
    ],
)
def test_a_query_that_exceeds_a_limit_ends_with_an_error(
    growing: GrowingLake, question: list[str], limit: list[str], error: str
) -> None:
    command = [sys.executable, "-m", "commitlake.jobs.cli.main", "query", "--lake", growing.lake.root]
    done = subprocess.run([*command, *question, *limit], capture_output=True, check=False, timeout=120, text=True)
    assert (done.returncode, done.stdout) == (ExitCode.REFUSED, "")
    assert error in done.stderr
    assert done.stderr.count("\n") == 2


@pytest.mark.some_cases(1)
@pytest.mark.parametrize("job", [["replay", "--dry-run"], ["dlq"]])
def test_a_condition_that_exceeds_the_memory_ends_with_an_error(growing: GrowingLake, job: list[str]) -> None:
    condition = ["--lake", growing.lake.root, "--where", "length(repeat('a', 2000000000)) > 1"]
    program = (
        "import sys; from commitlake.jobs.cli import sql_limits, main; "
        "sql_limits.default_memory_limit = lambda: 400 << 20; "
        "sys.exit(main.main())"
    )
    command = [sys.executable, "-c", program, *job, *condition]
    done = subprocess.run(command, capture_output=True, check=False, timeout=120, text=True)
    assert (done.returncode, done.stdout) == (ExitCode.REFUSED, "")
    assert f"commitlake {job[0]}: error: --where needs more than half of the memory" in done.stderr


def test_limits_are_refused_where_they_have_no_effect(capsys: pytest.CaptureFixture[str]) -> None:
    assert query.main(["--lake", "lake", "--sql", "SELECT 1", "--spark", "--timeout", "1m"]) == ExitCode.USAGE
    assert "--timeout and --spark cannot be used together" in capsys.readouterr().err


def test_the_default_is_less_than_the_memory_of_the_machine() -> None:
    assert 100 << 20 < default_memory_limit() < 1 << 50
