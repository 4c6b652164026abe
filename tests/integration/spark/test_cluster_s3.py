"""A copy in S3 that a killed agent made, archived by a cluster whose executors are killed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.servers.s3 import S3Server
from tests.servers.spark_cluster import SparkCluster
from tests.support.kills import kill_count
from tests.support.local_archives import archive_here, check_equal
from tests.support.s3_fixtures import bucket, s3_environment, s3_server
from tests.support.waiting import wait_until

__all__ = ["bucket", "s3_environment", "s3_server"]  # fixtures

ROOT = Path(__file__).parents[3]
PATIENCE_SECONDS = 400
AGENT_KILLS, EXECUTOR_KILLS = 10, 2
RATE = "40k"  # so slow that an agent does not complete the copy before it is killed


def ship_with_kills(store: Path, place: str, count_objects: Callable[[], int]) -> None:
    """Ship a store by agents that are killed as soon as each has shipped something, and at last by one that is not."""
    command = [sys.executable, "-m", "commitlake.jobs.cli.main", "ship", "--store", str(store), "--to", place, "--once"]
    for _ in range(kill_count(AGENT_KILLS)):
        before = count_objects()
        with subprocess.Popen([*command, "--rate", RATE, "--quiet"]) as agent:
            wait_until(lambda: count_objects() != before or agent.poll() is not None, PATIENCE_SECONDS)  # noqa: B023
            assert agent.poll() is None, "the agent was not killed in its work"
            agent.kill()
    subprocess.run([*command, "--quiet"], check=True)


@pytest.mark.long("a copy in S3 is archived in one process each time, and a local store by the same cluster")
@pytest.mark.timeout(1200)
def test_a_copy_in_s3_is_archived_as_the_store_is_here(s3_server: S3Server, bucket: str, tmp_path: Path) -> None:
    archive_here(tmp_path)
    client = s3_server.client()
    copy = f"s3://{bucket}/copy"
    ship_with_kills(tmp_path / "store", copy, lambda: client.list_objects_v2(Bucket=bucket)["KeyCount"])
    command = [str(ROOT / "spark-submit.sh"), "--executor-memory", "1g", "archive", "--store", copy, "--broker", "a"]
    command += ["--lake", str(tmp_path / "there"), "--partition-mib", "1", "--quiet"]
    with SparkCluster(tmp_path / "cluster", environment=s3_server.environment()) as cluster:
        master = ["--master", cluster.master, "--conf", "spark.task.maxFailures=8"]
        environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
        with subprocess.Popen([command[0], *master, *command[1:]], env=environment) as job:
            for _ in range(EXECUTOR_KILLS):
                known = set(cluster.executors())
                wait_until(lambda: set(cluster.executors()) - known or job.poll() is not None, PATIENCE_SECONDS)  # type: ignore[arg-type,return-value]  # noqa: B023
                assert cluster.kill_executor()
        assert job.returncode == 0
    check_equal(tmp_path / "there", tmp_path / "here")
