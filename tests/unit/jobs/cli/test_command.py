"""Checks and changes that every job makes to its arguments before it begins."""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

import pytest

from commitlake.connectors import plain_connections
from commitlake.connectors.object_store.errors import S3Error
from commitlake.jobs.cli import command
from commitlake.jobs.verify import command as verify


@pytest.mark.parametrize("master", ["spark://host:7077", "local[2]"])
def test_relative_folders_are_absolute_on_a_cluster(
    master: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"--master {master} pyspark-shell")
    arguments = argparse.Namespace(store="a/{broker}/store,/b,s3://c/d", lake="lake", bodies=None, out=Path("out"))
    before = argparse.Namespace(**vars(arguments))
    command._make_places_absolute(arguments)
    if master.startswith("local"):
        assert arguments == before
    else:
        store = f"{tmp_path}/a/{{broker}}/store,/b,s3://c/d"
        assert vars(arguments) == {
            "store": store, "lake": f"{tmp_path}/lake", "bodies": None, "out": tmp_path / "out",
        }  # fmt: skip


def test_an_endpoint_with_credentials_is_refused_for_a_store(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://user:hunter2@127.0.0.1:9")
    assert verify.main(["s3://bucket/store", "--local"]) == S3Error.exit_code
    errors = capsys.readouterr().err
    assert "the endpoint of the object store holds credentials" in errors
    assert "hunter2" not in errors


def test_an_unencrypted_connection_to_a_store_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://store.example:9000")
    monkeypatch.setattr(plain_connections, "_warned", set())
    with caplog.at_level(logging.WARNING):
        command._check_store_endpoint(argparse.Namespace(store="s3://bucket/store"))
        command._check_store_endpoint(argparse.Namespace(store="/data/store"))
    (message,) = caplog.messages
    assert "http://store.example:9000" in message
