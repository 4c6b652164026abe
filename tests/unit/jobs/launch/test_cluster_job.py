"""A job whose driver runs in the cluster: what is sent, and what is refused before."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from commitlake.connectors.catalog import lake_root_lookup
from commitlake.jobs.archive.command import build_parser
from commitlake.jobs.cli.command import JobError
from commitlake.jobs.launch import cluster_job
from commitlake.jobs.launch.cluster_job import (
    TerminalOutput,
    add_job_file_options,
    check_single_attempt,
    job_file_content,
    resolve_lake_name,
    run_on_yarn,
)

COMMAND = ["archive", "--store", "s3://logs/{broker}", "--lake", "s3://b/lake", "--topic", "\udcff{{x}} $y"]


def test_the_driver_gets_arguments_and_variables_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    variables = {
        "COMMITLAKE_MASK_KEY": "hidden", "AWS_SECRET_ACCESS_KEY": "hidden",
        "GOOGLE_APPLICATION_CREDENTIALS": "/key.json", "STORAGE_EMULATOR_HOST": "http://emulator",
        "AZURE_FEDERATED_TOKEN_FILE": "/token", "COMMITLAKE_JARS": "/jars", "HOME": "/home/u",
        "HADOOP_CONF_DIR": "/etc/hadoop",
    }  # fmt: skip
    sent = json.loads(json.dumps(job_file_content(build_parser(), COMMAND, "hdfs://nn/out", variables)))
    assert sent["arguments"] == COMMAND
    assert sent["environment"] == {
        "COMMITLAKE_MASK_KEY": "hidden", "AWS_SECRET_ACCESS_KEY": "hidden", "AZURE_FEDERATED_TOKEN_FILE": "/token",
        "GOOGLE_APPLICATION_CREDENTIALS": "/key.json", "STORAGE_EMULATOR_HOST": "http://emulator",
    }  # fmt: skip
    assert sent["settings"] is None
    (tmp_path / "commitlake.toml").write_text("[archive]\nlake = 's3://ü'\n")
    assert job_file_content(build_parser(), COMMAND, "", {})["settings"] == "[archive]\nlake = 's3://ü'\n"


def test_the_file_is_sent_with_the_users_files_and_there_is_one_attempt() -> None:
    once = ["--conf", "spark.yarn.maxAppAttempts=1"]
    job = Path("/job.json")
    assert add_job_file_options(["--name", "x"], job) == ["--name", "x", "--files", "/job.json", *once]
    for given in (["--files", "a"], ["--files=a"]):
        assert add_job_file_options([*given, "--name", "x"], job) == ["--files", "a,/job.json", "--name", "x", *once]


def test_a_lake_that_is_named_in_a_catalog_is_found_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lake_root_lookup, "find_lake_root", {"main.logs": "s3://b/lake"}.__getitem__)
    words = ["archive", "--store", "s3://logs", "--lake", "main.logs", "--topic", "main.logs"]
    values = vars(build_parser().parse_args(words[1:]))
    sent = resolve_lake_name(words, values)
    assert values["lake"] == "s3://b/lake"
    assert vars(build_parser().parse_args(sent[1:])) == values
    assert resolve_lake_name(COMMAND, vars(build_parser().parse_args(COMMAND[1:]))) == COMMAND


@pytest.mark.parametrize(("lake", "is_there"), [("s3://b/lake", True), ("s3a://b/lake", True), ("/lake", False)])
def test_spark_gets_jars_for_an_object_store_only_for_a_lake_there(lake: str, is_there: bool) -> None:
    assert (cluster_job._lake_s3_options({"lake": lake}) is not None) == is_there


def test_more_than_one_attempt_is_refused() -> None:
    check_single_attempt({})
    check_single_attempt({"spark.yarn.maxAppAttempts": "1"})
    with pytest.raises(JobError, match="maxAppAttempts=2 is refused: expected 1"):
        check_single_attempt({"spark.yarn.maxAppAttempts": "2"})


@pytest.mark.parametrize(
    ("command", "found"),
    [
        (["archives"], "there is no job 'archives'"),
        (["query", "--lake", "lake"], "--lake lake: expected an absolute path"),
        (["demo"], "--dir commitlake-demo: expected an absolute path"),
    ],
)
def test_what_cannot_run_there_is_refused_here(
    command: list[str], found: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    assert run_on_yarn(["--master", "yarn"], command) == 2
    assert found in capsys.readouterr().err


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_no_control_characters_and_whole_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = _Terminal()
    monkeypatch.setattr("sys.stdout", shown)
    output = TerminalOutput()
    for content in (b"\xc3", b"\xa4 \x1b[31m\n", b"\xff"):
        output.write(1, content)
    assert shown.getvalue() == "ä \\x1b[31m\n\\xff"


def test_a_file_gets_the_bytes_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr("sys.stderr", io.TextIOWrapper(raw))
    TerminalOutput().write(2, b"\xff\x1b")
    assert raw.getvalue() == b"\xff\x1b"
