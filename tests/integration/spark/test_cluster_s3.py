"""A copy in S3 that a killed agent made, archived by a cluster whose executors are killed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from commitlake.schemas.shipped_manifest import LOG_MANIFEST, parse_manifest
from tests.servers.s3 import S3Server
from tests.servers.spark_cluster import SparkCluster
from tests.support.kills import kill_count
from tests.support.local_archives import SEGMENT_BYTES, archive_here, check_equal
from tests.support.s3_fixtures import bucket, s3_environment, s3_server
from tests.support.waiting import wait_until

__all__ = ["bucket", "s3_environment", "s3_server"]  # fixtures

ROOT = Path(__file__).parents[3]
PATIENCE_SECONDS = 400
AGENT_KILLS, EXECUTOR_KILLS = 10, 2
MESSAGES = 1000 * (AGENT_KILLS + 5)  # a segment has about a thousand
RATE = "150k"  # so slow that an agent does not complete the copy before it is killed


def ship_with_kills(store: Path, place: str, shipped_bytes: Callable[[], int]) -> None:
    """Ship a store by agents that are killed when each has made the copy longer, and at last by one that is not."""
    command = [sys.executable, "-m", "commitlake.jobs.cli.main", "ship", "--store", str(store), "--to", place, "--once"]
    for _ in range(AGENT_KILLS):
        before = shipped_bytes()
        with subprocess.Popen([*command, "--rate", RATE, "--quiet"]) as agent:
            wait_until(lambda: shipped_bytes() > before or agent.poll() is not None, PATIENCE_SECONDS)  # noqa: B023
            assert agent.poll() is None, "the agent was not killed in its work"
            agent.kill()
    assert shipped_bytes() >= AGENT_KILLS * SEGMENT_BYTES
    subprocess.run([*command, "--quiet"], check=True)


@pytest.mark.long("a copy in S3 is archived in one process each time, and a local store by the same cluster")
@pytest.mark.timeout(1500)
def test_a_copy_in_s3_is_archived_as_the_store_is_here(s3_server: S3Server, bucket: str, tmp_path: Path) -> None:
    archive_here(tmp_path, MESSAGES)
    client, copy = s3_server.client(), f"s3://{bucket}/copy"

    def shipped_bytes() -> int:
        try:
            data = client.get_object(Bucket=bucket, Key=f"copy/{LOG_MANIFEST}")["Body"].read()
        except client.exceptions.NoSuchKey:
            return 0
        return sum(
            file.size if file.is_sealed else file.shipped_bytes for file in parse_manifest(data, "").files.values()
        )

    ship_with_kills(tmp_path / "store", copy, shipped_bytes)
    jobs = ["archive", "--store", copy, "--broker", "a", "--lake", str(tmp_path / "there"), "--partition-mib", "1"]
    with SparkCluster(tmp_path / "cluster", environment=s3_server.environment()) as cluster:
        master = ["--master", cluster.master, "--executor-memory", "1g", "--conf", "spark.task.maxFailures=8"]
        environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
        command = [str(ROOT / "spark-submit.sh"), *master, *jobs, "--quiet"]
        with subprocess.Popen(command, env=environment) as job:
            for _ in range(kill_count(EXECUTOR_KILLS, share=15)):
                wait_until(lambda: cluster.kill_executor_in_task() or job.poll() is not None, PATIENCE_SECONDS)
                assert job.poll() is None, "no executor was killed in its work"
        assert job.returncode == 0
    check_equal(tmp_path / "there", tmp_path / "here", MESSAGES)
