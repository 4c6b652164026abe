"""Iceberg tables over a lake in an object store."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.table import StaticTable

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.runtime.local_runner import HERE
from commitlake.connectors.storage.adapter_choice import open_lake_storage
from commitlake.jobs.publish import command as publish
from commitlake.pipelines.archive.run import Config, run_archive
from commitlake.schemas.errors import ExitCode
from tests.servers.s3 import S3Server
from tests.support.audited_lakes import judge_nothing
from tests.support.lakes import GrowingLake, shop_messages


def test_a_lake_in_a_bucket_is_published(
    s3_server: S3Server, bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    growing, lake = GrowingLake(tmp_path), f"s3://{bucket}/lake"
    access = s3_server.environment()
    properties = {
        "s3.endpoint": s3_server.endpoint,
        "s3.access-key-id": access["AWS_ACCESS_KEY_ID"],
        "s3.secret-access-key": access["AWS_SECRET_ACCESS_KEY"],
        "s3.region": "us-east-1",
    }
    for count in (20, 40):
        growing.write(shop_messages(20))
        run_archive(HERE, Config(str(growing.store), Lake(lake), judge=judge_nothing))
        assert publish.main(["--iceberg", "--lake", lake, "--table", "messages"]) == ExitCode.OK
        assert f"iceberg_scan('s3://{bucket}/lake/_iceberg/messages')" in capsys.readouterr().out
        table = StaticTable.from_metadata(f"{lake}/_iceberg/messages", properties)
        assert table.scan().to_arrow().num_rows == count
    assert len(table.snapshots()) == 2


def test_a_new_object_is_written_once(bucket: str) -> None:
    storage = open_lake_storage(f"s3://{bucket}/lake")
    assert storage.put_new("a/v1.json", b"first")
    assert not storage.put_new("a/v1.json", b"other")
    assert storage.put_new("a/v1.json", b"first")  # as after a request whose answer was lost
    assert storage.get_range("a/v1.json", 0, 9) == b"first"
