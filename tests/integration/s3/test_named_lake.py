"""A lake in S3 that is named as `catalog.schema`, with credentials that only the catalog has."""

from __future__ import annotations

import json
import secrets
import sys
from pathlib import Path

import pytest

from commitlake.jobs.archive import command as archive
from commitlake.jobs.catalog import command as catalog
from commitlake.jobs.query import command as query
from commitlake.schemas.errors import ExitCode
from tests.servers.s3 import S3Server
from tests.support.lakes import GrowingLake, shop_messages
from tests.support.unity_catalog import UnityCatalog

ROOT = Path(__file__).parents[3]


@pytest.mark.long("its parts have unit tests; each request for credentials begins a process")
def test_jobs_use_a_name_and_credentials_of_the_catalog(
    s3_server: S3Server,
    bucket: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    growing = GrowingLake(tmp_path)
    growing.write(shop_messages(10))
    lake, name = f"s3://{bucket}/lake", f"unity.lake_{secrets.token_hex(6)}"
    run = ["--store", str(growing.store), "--local", "--no-quality", "--quiet"]
    assert archive.main([*run, "--lake", lake]) == ExitCode.OK
    with UnityCatalog() as imitation:
        monkeypatch.setenv("UNITY_CATALOG_URL", imitation.url)
        assert catalog.main(["--lake", lake, "--to", name]) == ExitCode.OK
        assert f"{name} is the lake {lake}" in capsys.readouterr().out

        for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.delenv(variable)
        growing.write(shop_messages(5, seed=1))
        assert archive.main([*run, "--lake", name]) == ExitCode.USAGE
        assert "credentials" in capsys.readouterr().err

        command = f"{sys.executable} -m commitlake.jobs.cli.main catalog --lake {name} --credentials"
        (tmp_path / "config").write_text(f"[default]\ncredential_process = {command}\n")
        monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
        monkeypatch.setenv("PYTHONPATH", str(ROOT))
        keys = {"access_key_id": s3_server.access_key, "secret_access_key": s3_server.secret_key}
        imitation.credentials = {"aws_temp_credentials": {**keys, "session_token": None}, "expiration_time": None}
        assert archive.main([*run, "--lake", name]) == ExitCode.OK
        sql = "SELECT count(*) AS n FROM messages"
        assert query.main(["--lake", name, "--sql", sql, "--quiet", "--output", "jsonl"]) == ExitCode.OK
        assert json.loads(capsys.readouterr().out) == {"n": 15}
        assert any(path.endswith("/temporary-path-credentials") for _, path, _ in imitation.requests)
