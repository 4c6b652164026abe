"""Tests of the program that `spark-submit.sh` starts: options of spark-submit before the job's name."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence

import pytest

from commitlake.jobs.cli import main as cli
from commitlake.jobs.launch import cluster_job, submit


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The command lines that would have been run."""
    calls: list[list[str]] = []

    def main(argv: Sequence[str], *, on_spark: bool) -> int:
        assert on_spark
        calls.append(list(argv))
        return 3

    monkeypatch.setattr(cli, "main", main)
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "untouched")
    return calls


@pytest.mark.parametrize(
    ("options", "command"),
    [
        ([], ["query", "--lake", "lake"]),
        (["--master", "local[2]"], ["archive", "--store", "x"]),
        (["--master=local[2]"], ["archive"]),
        (["--verbose", "--master", "local"], ["archive", "--verbose"]),
        (["-v", "--conf", "spark.a=b c", "--conf=spark.d='"], ["demo"]),
        (["--driver-memory", "4g"], ["demo", "--dir", "--odd"]),
    ],
)
def test_options_before_the_job_are_for_spark_submit(options: list[str], command: list[str]) -> None:
    assert submit.split_command_line([*options, *command]) == (options, command)


def test_options_reach_spark_submit_unchanged(started: list[list[str]]) -> None:
    options = ["--conf", 'spark.app.name=it\'s a "name"', "--master", "local[2]"]
    assert submit.main([*options, "archive", "--store", "a b"]) == 3
    assert started == [["archive", "--store", "a b"]]
    assert shlex.split(os.environ["PYSPARK_SUBMIT_ARGS"]) == [*options, "pyspark-shell"]


def test_the_environment_is_unchanged_without_options(started: list[list[str]]) -> None:
    assert submit.main(["dump", "store"]) == 3
    assert started == [["dump", "store"]]
    assert os.environ["PYSPARK_SUBMIT_ARGS"] == "untouched"


@pytest.mark.parametrize("options", [["--remote", "sc://host:15002"], ["--remote=sc://host:15002"]])
def test_a_server_of_spark_connect_gets_no_arguments_for_a_jvm(
    started: list[list[str]], monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "")
    assert submit.main([*options, "archive"]) == 3
    assert started == [["archive"]]
    assert os.environ["SPARK_REMOTE"] == "sc://host:15002"
    assert os.environ["PYSPARK_SUBMIT_ARGS"] == "untouched"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            ["--remote", "sc://host", "--conf", "spark.x.secret=hidden"],
            "no other option of spark-submit, found --remote",
        ),
        (["--remote", "sc://host:443/;token=hidden"], "put the URL into SPARK_REMOTE"),
        (["--remote=sc://host:443/;TOKEN=hidden"], "put the URL into SPARK_REMOTE"),
        (["--remote", "sc://host/;token=hidden", "--remote", "sc://host"], "put the URL into SPARK_REMOTE"),
        (["--remote", ""], "expected one URL"),
        (["--conf", "spark.remote=sc://host/;token=hidden"], "--conf spark.remote: expected --remote URL"),
    ],
)
def test_options_that_spark_connect_does_not_take_are_refused_without_their_values(
    started: list[list[str]], capsys: pytest.CaptureFixture[str], options: list[str], expected: str
) -> None:
    assert submit.main([*options, "archive"]) == 2
    printed = capsys.readouterr().err
    assert expected in printed
    assert "hidden" not in printed
    assert started == []


def test_options_for_a_jvm_are_refused_where_the_environment_names_a_server(
    started: list[list[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "sc://host/;token=hidden")
    assert submit.main(["--master", "local[2]", "archive"]) == 2
    assert "SPARK_REMOTE is set: expected no option of spark-submit, found --master" in capsys.readouterr().err
    assert submit.main(["archive"]) == 3
    assert started == [["archive"]]


def test_an_argument_that_names_no_job_is_shown_with_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    assert submit.main(["--master", "\x1b[31m\u202e\n"]) == 2
    assert "named after --master \\x1b[31m\\u202e\\n\n" in capsys.readouterr().err
    assert submit.main(["\u3164\x9b"]) == 2
    assert "no job '\\u3164\\x9b'" in capsys.readouterr().err


@pytest.mark.parametrize("options", [["--master", "local"], ["--master"], ["-v"]])
def test_a_command_line_without_a_job_is_an_error(
    options: list[str], started: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert submit.main(options) == 2
    assert f"no job is named after {' '.join(options)}" in capsys.readouterr().err
    assert started == []


@pytest.mark.parametrize(
    ("master", "found"),
    [
        (["--master", "spark://host:7077"], "expected --master yarn, found spark://host:7077"),
        (["--conf", "spark.master=local[2]"], "expected --master yarn, found local[2]"),
        ([], "expected --master yarn, found none"),
        (["--master=k8s://https://host"], "Kubernetes gives neither output nor exit code"),
    ],
)
@pytest.mark.parametrize(
    "mode", [["--deploy-mode", "cluster"], ["--deploy-mode=cluster"], ["-c", "spark.submit.deployMode=cluster"]]
)
def test_cluster_deploy_mode_is_refused_without_yarn(
    mode: list[str],
    master: list[str],
    found: str,
    started: list[list[str]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for variable in ("SPARK_CONF_DIR", "SPARK_HOME"):
        monkeypatch.delenv(variable, raising=False)
    assert submit.main([*master, *mode, "archive"]) == 2
    assert f"--deploy-mode cluster: {found}" in capsys.readouterr().err
    assert started == []


@pytest.mark.parametrize(
    "options",
    [
        ["--master", "yarn", "--deploy-mode", "cluster"],
        ["--conf", "spark.master=yarn", "--conf=spark.submit.deployMode=cluster"],
    ],
)
def test_with_yarn_the_job_runs_in_the_cluster(
    options: list[str], started: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[list[str], list[str]]] = []

    def run(options: Sequence[str], command: Sequence[str]) -> int:
        sent.append((list(options), list(command)))
        return 4

    monkeypatch.setattr(cluster_job, "run_on_yarn", run)
    assert submit.main([*options, "archive", "--lake", "x"]) == 4
    assert sent == [(options, ["archive", "--lake", "x"])]
    assert shlex.split(os.environ["PYSPARK_SUBMIT_ARGS"]) == [*options, "pyspark-shell"]
    assert submit.main([*options, "--deploy-mode", "client", "archive"]) == 3
    assert started == [["archive"]]


def test_the_last_form_of_an_option_counts() -> None:
    options = ["--deploy-mode=cluster", "--conf", "a=b", "--deploy-mode", "client"]
    assert submit._option_values(options, "--deploy-mode") == ["cluster", "client"]
