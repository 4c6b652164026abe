"""An erasure from a lake in an object store leaves nothing in any object of the bucket."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from commitlake.connectors.lake.delta_log.file_names import LOG
from commitlake.connectors.lake.delta_log.files import entry_name
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.runtime.local_runner import HERE
from commitlake.connectors.storage.s3_options import S3Options
from commitlake.jobs.audit import command as audit
from commitlake.jobs.erase import command as erase
from commitlake.pipelines.archive.run import Config, run_archive
from commitlake.pipelines.erasure.run import ErasureTarget, plan_erasure, purge_erasures, run_erasure
from commitlake.pipelines.erasure.selection import KeysToErase
from commitlake.pipelines.repair.plan import plan_repair
from commitlake.pipelines.repair.run import repair_lake
from commitlake.schemas.errors import ExitCode
from tests.servers.s3 import S3Server
from tests.support.audited_lakes import judge_nothing
from tests.support.erased_lakes import KEY, shop_messages, traces
from tests.support.lakes import GrowingLake, archive_store


@pytest.mark.long("erasures leave nothing in a lake in a folder each time, and S3 has the same calls")
def test_an_erasure_leaves_no_content_in_any_object(
    bucket: str, s3_server: S3Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = Lake(f"s3://{bucket}/some/lake")
    growing = GrowingLake(tmp_path)
    for run in range(2):
        growing.write(shop_messages(50, first=50 * run))
        run_archive(HERE, Config(str(growing.store), lake, judge=judge_nothing))
    assert traces(downloaded(s3_server, bucket, tmp_path / "before"))
    arguments = ["--lake", lake.root, "--key", KEY, "--reason", "a test", "--yes", "--now"]
    assert erase.main(arguments) == ExitCode.OK, capsys.readouterr()
    assert traces(downloaded(s3_server, bucket, tmp_path / "after")) == []
    code = audit.main(["--lake", lake.root, "--store", str(growing.store), "--local", "--threads", "1"])
    told = capsys.readouterr().out
    assert code == ExitCode.OK, told
    assert "1 of the messages are erased" in told


@pytest.mark.long("each other test of an object store uses the server of the environment, as commands do")
def test_the_server_of_a_lake_may_be_another_than_that_of_the_environment(
    bucket: str, s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
    lake = Lake(f"s3://{bucket}/some/lake", S3Options(s3_server.endpoint, virtual_hosts=False))
    lake.check_writable()
    growing = GrowingLake(tmp_path)
    growing.write(shop_messages(50))
    archive_store(growing.store, lake)
    newest = entry_name(lake.table("archive_runs").version())
    for folder in (LOG, f"{LOG}/_seals"):
        s3_server.client().delete_object(Bucket=bucket, Key=f"some/lake/archive_runs/{folder}/{newest}")
    plan = plan_repair(lake)
    assert list(plan.logs) == ["archive_runs"]
    repair_lake(lake, plan, "1")
    assert plan_repair(lake).is_empty
    place = ErasureTarget(lake, "1")
    week = datetime.timedelta(days=7)
    run_erasure(place, plan_erasure(place, KeysToErase([KEY])), "a test", week, lambda _: None)
    purge_erasures(place, datetime.datetime.now(datetime.UTC), lambda _: None, is_only_user=True)
    assert traces(downloaded(s3_server, bucket, tmp_path / "after")) == []


def downloaded(server: S3Server, bucket: str, folder: Path) -> Path:
    """Write all objects of a bucket into a folder."""
    client = server.client()
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket):
        for found in page.get("Contents", ()):
            path = folder / found["Key"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(client.get_object(Bucket=bucket, Key=found["Key"])["Body"].read())
    return folder
