"""Jobs on a standalone cluster whose executors have neither this package nor the driver's environment."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from commitlake.jobs.rebuild import command as rebuild
from commitlake.jobs.restore import command as restore
from tests.servers.spark_cluster import SparkCluster
from tests.support.lake_contents import content
from tests.support.local_archives import MESSAGES, SEGMENT_BYTES, archive_here, check_equal
from tests.support.served_stores import files_of
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[3]
SIZES = ("--segment-size", str(SEGMENT_BYTES), "--quiet")
PATIENCE_SECONDS = 400
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """A master and two workers."""
    with SparkCluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a broker's store, and a lake that was archived on this machine."""
    return archive_here(tmp_path_factory.mktemp("place"))


def submit(
    cluster: SparkCluster, folder: Path, *arguments: object, options: Sequence[str] = ()
) -> subprocess.Popen[str]:
    """Start a job on the cluster with relative paths, as an operator does."""
    command = [str(ROOT / "spark-submit.sh"), "--master", cluster.master, "--executor-memory", "1g", *options]
    return subprocess.Popen(
        [*command, *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(job: subprocess.Popen[str]) -> str:
    """Wait for a job to succeed, and return its output."""
    printed, errors = job.communicate(timeout=PATIENCE_SECONDS)
    assert job.returncode == 0, errors
    return printed


def test_an_archive_equals_a_local_one_although_an_executor_was_killed(cluster: SparkCluster, place: Path) -> None:
    job = submit(cluster, place, "archive", "--store", "store", "--broker", "a", "--lake", "there", "--quiet")
    wait_until(cluster.kill_executor, PATIENCE_SECONDS)
    finish(job)
    check_equal(place / "there", place / "here")


@pytest.mark.long("an executor is killed each time")
def test_tasks_that_run_twice_by_speculation_archive_once(cluster: SparkCluster, place: Path) -> None:
    options = [
        word
        for key, value in {"": "true", ".multiplier": "1", ".quantile": "0.1", ".interval": "10ms"}.items()
        for word in ("--conf", f"spark.speculation{key}={value}")
    ]
    store = ("--store", "store", "--broker", "a", "--partition-mib", "1", "--quiet")
    finish(submit(cluster, place, "archive", *store, "--lake", "speculated", options=options))
    check_equal(place / "speculated", place / "here")


@pytest.mark.long("an executor is killed each time")
def test_a_worker_that_is_lost_for_good_is_done_without(place: Path, tmp_path: Path) -> None:
    with SparkCluster(tmp_path / "cluster") as other:
        job = submit(other, place, "archive", "--store", "store", "--broker", "a", "--lake", "fewer", "--quiet")
        wait_until(other.kill_worker, PATIENCE_SECONDS)
        finish(job)
    check_equal(place / "fewer", place / "here")


@pytest.mark.long("an archive has the same way to executors, each time")
def test_a_rebuilt_and_a_restored_store_equal_local_ones(cluster: SparkCluster, place: Path) -> None:
    finish(submit(cluster, place, "rebuild", "store", "--out", "rebuilt-there"))
    assert rebuild.main([str(place / "store"), "--out", str(place / "rebuilt-here"), "--local", "--quiet"]) == 0
    finish(submit(cluster, place, "restore", "--lake", "here", "--out", "restored-there", *SIZES))
    assert restore.main(["--lake", str(place / "here"), "--out", str(place / "restored-here"), "--local", *SIZES]) == 0
    for name in ("rebuilt", "restored"):
        there, here = (files_of(place / f"{name}-{where}" / "consumequeue") for where in ("there", "here"))
        assert here, name
        assert there == here, name


@pytest.mark.long("an archive has the same way to executors, each time")
def test_checks_and_queries_read_on_executors(cluster: SparkCluster, place: Path) -> None:
    finish(submit(cluster, place, "verify", "store", "--quiet"))
    finish(submit(cluster, place, "audit", "--lake", "here", "--quiet"))
    select = "SELECT count(*) AS messages FROM messages"
    printed = finish(submit(cluster, place, "query", "--lake", "here", "--engine", "spark", "--sql", select, "--quiet"))
    assert str(MESSAGES) in printed.replace(",", "")
    rates = ("tps", "--lake", "here", "--by", "topic", "--from", "2020-01-01", "--format", "csv", "--quiet")
    assert finish(submit(cluster, place, *rates, "--spark")) == finish(submit(cluster, place, *rates))


@pytest.mark.long("batches have the same way to executors, each time")
def test_a_stream_is_archived_by_executors(cluster: SparkCluster, place: Path) -> None:
    store = ("--store", "store", "--broker", "a", "--quiet")
    finish(submit(cluster, place, "archive", *store, "--lake", "streamed", "--available-now"))
    assert content(place / "streamed")["messages"].equals(content(place / "here")["messages"])
