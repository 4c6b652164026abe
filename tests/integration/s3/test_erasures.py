"""An erasure from a lake in an object store leaves nothing in any object of the bucket."""

from __future__ import annotations

from pathlib import Path

import pytest

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.runtime.local_runner import HERE
from commitlake.jobs.audit import command as audit
from commitlake.jobs.erase import command as erase
from commitlake.pipelines.archive.run import Config, run_archive
from commitlake.schemas.errors import ExitCode
from tests.servers.s3 import S3Server
from tests.support.audited_lakes import judge_nothing
from tests.support.erased_lakes import KEY, shop_messages, traces
from tests.support.lakes import GrowingLake


@pytest.mark.long("erasures leave nothing in a lake in a folder each time, and S3 has the same calls")
def test_an_erasure_leaves_no_content_in_any_object(
    bucket: str, s3_server: S3Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = Lake(f"s3://{bucket}/some/lake")
    growing = GrowingLake(tmp_path)
    for run in range(2):
        growing.write(shop_messages(50, first=50 * run))
        run_archive(HERE, Config(str(growing.store), lake.root, judge=judge_nothing))
    assert traces(downloaded(s3_server, bucket, tmp_path / "before"))
    arguments = ["--lake", lake.root, "--key", KEY, "--reason", "a test", "--yes", "--now"]
    assert erase.main(arguments) == ExitCode.OK, capsys.readouterr()
    assert traces(downloaded(s3_server, bucket, tmp_path / "after")) == []
    code = audit.main(["--lake", lake.root, "--store", str(growing.store), "--local", "--threads", "1"])
    told = capsys.readouterr().out
    assert code == ExitCode.OK, told
    assert "1 of the messages are erased" in told


def downloaded(server: S3Server, bucket: str, folder: Path) -> Path:
    """Write all objects of a bucket into a folder."""
    client = server.client()
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket):
        for found in page.get("Contents", ()):
            path = folder / found["Key"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(client.get_object(Bucket=bucket, Key=found["Key"])["Body"].read())
    return folder
