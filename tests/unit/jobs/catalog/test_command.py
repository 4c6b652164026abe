"""Tests of `commitlake catalog`, and of jobs that name a lake in a catalog.

With TEST_UNITY_CATALOG, most of them run against a real server; see `tests.support.unity_catalog`.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import commitlake
from commitlake.connectors.lake.lake import Lake
from commitlake.jobs.archive import command as archive
from commitlake.jobs.catalog import command as catalog
from commitlake.jobs.query import command as query
from commitlake.jobs.snapshot import command as snapshot
from commitlake.schemas.errors import ExitCode
from tests.support.lakes import GrowingLake, shop_messages
from tests.support.unity_catalog import UnityCatalog, catalog_url

VARIABLES = ("UNITY_CATALOG_URL", "UNITY_CATALOG_TOKEN", "DATABRICKS_HOST", "DATABRICKS_TOKEN")
ROOT = Path(__file__).parents[4]


@pytest.fixture(autouse=True)
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Name a catalog in the environment, and return its address."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    with catalog_url() as url:
        monkeypatch.setenv("UNITY_CATALOG_URL", url)
        yield url


@pytest.fixture
def name() -> str:
    """A name that is free."""
    return f"unity.lake_{secrets.token_hex(6)}"


@pytest.fixture(params=["lake", "a lake"])
def growing(tmp_path: Path, request: pytest.FixtureRequest) -> GrowingLake:
    """A lake of ten messages."""
    growing = GrowingLake(tmp_path / request.param)
    growing.write(shop_messages(10))
    growing.archive()
    return growing


def register(growing: GrowingLake, name: str, *more: str) -> int:
    return catalog.main(["--lake", growing.lake.root, "--to", name, *more])


def messages_of(name: str, capsys: pytest.CaptureFixture[str]) -> int:
    """Return the number of messages that a query by name finds."""
    capsys.readouterr()
    sql = "SELECT count(*) AS n FROM messages"
    assert query.main(["--lake", name, "--sql", sql, "--quiet", "--output", "jsonl"]) == ExitCode.OK
    return int(json.loads(capsys.readouterr().out)["n"])


def test_jobs_find_a_registered_lake_by_its_name(
    growing: GrowingLake, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert register(growing, name) == ExitCode.OK
    assert f"{name} is the lake file:///" in capsys.readouterr().out
    assert messages_of(name, capsys) == 10
    growing.write(shop_messages(5, seed=1))
    places = ["--store", str(growing.store), "--lake", name]
    assert archive.main([*places, "--local", "--no-quality", "--quiet"]) == ExitCode.OK
    assert messages_of(name, capsys) == 15
    assert Lake(name).root == growing.lake.root
    assert not Path(name).exists()
    assert commitlake.open(name) is not None


def test_a_second_registration_adds_new_tables(
    growing: GrowingLake, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert register(growing, name) == ExitCode.OK
    assert register(growing, name) == ExitCode.OK
    assert "nothing new" in capsys.readouterr().out
    config = growing.store / "config" / "consumerOffset.json"
    config.parent.mkdir(exist_ok=True)
    config.write_text('{"offsetTable": {"topic-00@mail-service": {"0": 1}}}')
    assert snapshot.main(["--lake", name, "--store", str(growing.store), "--quiet"]) == ExitCode.OK
    assert catalog.main(["--lake", name, "--to", name]) == ExitCode.OK
    assert "new: consumer_offsets" in capsys.readouterr().out


def test_a_name_of_another_lake_is_refused(
    growing: GrowingLake, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert register(growing, name) == ExitCode.OK
    assert register(growing.copy_to(tmp_path / "copy"), name) == ExitCode.REFUSED
    assert "name another schema" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("unity.no_such_lake", "has no lake unity.no_such_lake"),
        ("nowhere.no_such_lake", "has no lake nowhere.no_such_lake"),
        ("unity.logs.messages", "leave the table's name out"),
    ],
)
def test_a_name_without_a_lake_is_an_error(place: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    for job, more in ((query, ["--count"]), (archive, ["--store", "x", "--local", "--no-quality"])):
        assert job.main(["--lake", place, *more]) == ExitCode.USAGE
        assert message in capsys.readouterr().err


def test_a_lake_that_is_none_is_not_registered(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert catalog.main(["--lake", str(tmp_path / "nowhere"), "--to", name]) == ExitCode.USAGE
    assert catalog.main(["--lake", name, "--to", name]) == ExitCode.USAGE
    assert f"has no lake {name}" in capsys.readouterr().err


def test_without_a_catalog_nothing_is_registered(
    growing: GrowingLake, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("UNITY_CATALOG_URL")
    assert register(growing, name) == ExitCode.USAGE
    assert "no catalog is set" in capsys.readouterr().err


def test_outdated_columns_give_a_warning(
    growing: GrowingLake, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with UnityCatalog() as imitation:  # a real server cannot be told other columns
        monkeypatch.setenv("UNITY_CATALOG_URL", imitation.url)
        assert register(growing, name) == ExitCode.OK
        imitation.kinds["tables"][f"{name}.messages"]["columns"].pop()
        assert register(growing, name, "--quiet") == ExitCode.OK
    shown = capsys.readouterr()
    assert f"run MSCK REPAIR TABLE {name}.messages SYNC METADATA" in shown.err


def test_an_aws_profile_takes_credentials_from_the_catalog(tmp_path: Path) -> None:
    with UnityCatalog() as imitation:
        keys = {"access_key_id": "AKIA", "secret_access_key": "secret", "session_token": "token"}
        imitation.credentials = {"aws_temp_credentials": keys, "expiration_time": 4_000_000_000_000}
        command = f"{sys.executable} -m commitlake.jobs.cli.main catalog --lake s3://bucket/lake --credentials"
        (tmp_path / "config").write_text(f"[default]\ncredential_process = {command}\n")
        program = (
            "import boto3; found = boto3.session.Session().get_credentials(); "
            "print(found.method, *found.get_frozen_credentials())"
        )
        environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        environment |= {"UNITY_CATALOG_URL": imitation.url, "AWS_CONFIG_FILE": str(tmp_path / "config")}
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
        )
    assert done.stdout.split()[:4] == ["custom-process", "AKIA", "secret", "token"]


@pytest.mark.parametrize("place", ["{lake}", "/data/lake"])
def test_credentials_are_only_for_lakes_in_s3(
    place: str, growing: GrowingLake, capsys: pytest.CaptureFixture[str]
) -> None:
    assert catalog.main(["--lake", place.format(lake=growing.lake.root), "--credentials"]) == ExitCode.USAGE
    assert "works only for a lake in S3" in capsys.readouterr().err


def test_credentials_are_not_shown_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert catalog.main(["--lake", "s3://bucket/lake", "--credentials"]) == ExitCode.USAGE
    assert "a terminal, which would show the secrets" in capsys.readouterr().err
