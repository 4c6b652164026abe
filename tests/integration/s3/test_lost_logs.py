"""Damaged or missing logs of a lake in an object store are found and restored, like those in a folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commitlake.connectors.lake.archive_run_completion import finish_runs
from commitlake.connectors.lake.delta_log.check import LogDamagedError
from commitlake.connectors.lake.delta_log.file_names import LOG
from commitlake.connectors.lake.delta_log.files import entry_name
from commitlake.connectors.lake.lake import Lake
from commitlake.jobs.query import command as query
from commitlake.pipelines.archive.work_planning import find_archive_work
from commitlake.pipelines.message_keys.check import check_keys
from commitlake.pipelines.message_keys.table_update import follow_keys
from commitlake.pipelines.repair.plan import plan_repair
from commitlake.pipelines.repair.run import repair_lake
from commitlake.schemas.errors import ExitCode
from tests.servers.s3 import S3Server
from tests.support.lakes import GrowingLake, archive_store, shop_messages

RUNS = 2
COUNT = 10
Lose = Callable[[Any, str, str], None]


def lose_newest_entry(client: Any, bucket: str, table: str) -> None:
    for folder in (LOG, f"{LOG}/_seals"):
        client.delete_object(Bucket=bucket, Key=f"lake/{table}/{folder}/{entry_name(RUNS)}")


def lose_log(client: Any, bucket: str, table: str) -> None:
    for found in client.list_objects_v2(Bucket=bucket, Prefix=f"lake/{table}/{LOG}/")["Contents"]:
        client.delete_object(Bucket=bucket, Key=found["Key"])


def zero_first_entry(client: Any, bucket: str, table: str) -> None:
    client.put_object(Bucket=bucket, Key=f"lake/{table}/{LOG}/{entry_name(0)}", Body=bytes(100))


def archive(store: Path, lake: Lake) -> None:
    """Run the steps of an archive run."""
    if find_archive_work(str(store), None, lake).snapshot.size:
        archive_store(store, lake)
    else:
        finish_runs(lake, "", "1")
    follow_keys(lake)


@pytest.mark.long("the same repair of a folder is tested each time, and so are faults of the object store")
def test_lost_parts_of_a_log_are_found_and_restored(
    s3_server: S3Server, bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    growing, lake = GrowingLake(tmp_path), Lake(f"s3://{bucket}/lake")
    for seed in range(RUNS):
        growing.write(shop_messages(COUNT, seed=seed))
        archive(growing.store, lake)
    cases: list[tuple[str, Lose]] = [
        ("archive_runs", lose_newest_entry),
        ("messages", zero_first_entry),
        ("messages", lose_log),
    ]
    for table, lose in cases:
        lose(s3_server.client(), bucket, table)
        code = query.main(["--lake", lake.root, "--table", table, "--count", "--quiet"])
        answer = capsys.readouterr()
        assert (code, answer.out) == (ExitCode.DAMAGE, ""), table
        assert f"{lake.root}/{table}: " in answer.err
        assert "--repair" in answer.err
        with pytest.raises(LogDamagedError):
            archive(growing.store, lake)
        assert not repair_lake(lake, plan_repair(lake), "1"), table
        archive(growing.store, lake)
        offsets = lake.table("messages").to_pyarrow_table(columns=["physical_offset"]).column(0).to_pylist()
        assert len(offsets) == len(set(offsets)) == RUNS * COUNT, table
        assert check_keys(lake).same
        assert plan_repair(lake).is_empty
