"""Checks and changes that every job makes to its arguments before it begins."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from commitlake.connectors.storage.errors import S3Error
from commitlake.jobs.archive import command as archive
from commitlake.jobs.cli import command
from commitlake.jobs.guard import command as guard
from commitlake.jobs.restore import command as restore
from commitlake.jobs.verify import command as verify
from commitlake.schemas.errors import ExitCode


@pytest.mark.parametrize("master", ["spark://host:7077", "local[2]"])
def test_relative_folders_are_absolute_on_a_cluster(
    master: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"--master {master} pyspark-shell")
    arguments = argparse.Namespace(
        store="a/{broker}/store,/b,s3://c/d", lake="lake", bodies=None, out=Path("out"), dir=Path("demo")
    )
    before = argparse.Namespace(**vars(arguments))
    command._make_paths_absolute(arguments)
    if master.startswith("local"):
        assert arguments == before
    else:
        store = f"{tmp_path}/a/{{broker}}/store,/b,s3://c/d"
        assert vars(arguments) == {
            "store": store, "lake": f"{tmp_path}/lake", "bodies": None, "out": tmp_path / "out",
            "dir": tmp_path / "demo",
        }  # fmt: skip


def test_a_name_that_is_also_a_folders_is_refused_on_a_cluster_as_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "main.logs").mkdir()
    monkeypatch.setenv("UNITY_CATALOG_URL", "https://catalog.example")
    for submitted in ("--master spark://host:7077 pyspark-shell", "pyspark-shell"):
        monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", submitted)
        assert restore.main(["--lake", "main.logs", "--out", "out"]) == ExitCode.USAGE
        assert "write ./main.logs" in capsys.readouterr().err
    monkeypatch.delenv("UNITY_CATALOG_URL")
    arguments = argparse.Namespace(lake="main.logs")
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--master spark://host:7077 pyspark-shell")
    command._make_paths_absolute(arguments)
    assert arguments.lake == str(tmp_path / "main.logs")


def test_an_endpoint_with_credentials_is_refused_for_a_store(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://user:hunter2@127.0.0.1:9")
    assert verify.main(["s3://bucket/store", "--local"]) == S3Error.exit_code
    errors = capsys.readouterr().err
    assert "expected an endpoint of the object store without credentials, found one that holds credentials" in errors
    assert "hunter2" not in errors


@pytest.mark.parametrize("store", ["s3://stores/a", "/data/a, s3://stores/{broker}/store"])
def test_a_store_whose_server_is_away_is_one_error_before_the_job_begins(
    store: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    for module in (verify, guard):
        assert module.main(["--store", store, *(["--lake", "lake"] if module is guard else [])]) == ExitCode.FAILED
        (line,) = capsys.readouterr().err.splitlines()
        assert "s3://stores" in line
        assert "found no server at the endpoint. Is the endpoint right (--s3-endpoint, AWS_ENDPOINT_URL_S3)" in line


def test_a_name_that_is_too_long_is_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = str(tmp_path / ("0" * 300))
    assert restore.main(["--lake", str(tmp_path), "--out", place]) == ExitCode.USAGE
    (line, _) = capsys.readouterr().err.splitlines()
    assert f"error: {place}" in line
    assert line.endswith(": File name too long")
    assert archive.main(["--local", "--store", str(tmp_path), "--broker", "a", "--lake", place]) == ExitCode.USAGE
