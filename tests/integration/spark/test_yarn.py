"""Jobs on a real YARN, whose containers have neither this package nor the driver's environment."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyspark
import pytest

from commitlake.jobs.verify import command as verify
from tests.servers.yarn_cluster import YarnCluster
from tests.support.local_archives import MESSAGES, archive_here, check_equal
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[3]
PATIENCE_SECONDS = 800
STAGING = "staging"
NOT_SENT = {"PYSPARK_PYTHON": sys.executable}
"""Containers use this Python, which has the package: nothing is packed, sent and unpacked."""
JARS = Path(pyspark.__file__).parent / "jars"
pytestmark = [pytest.mark.timeout(1800), pytest.mark.long("YARN unpacks the packages for each application")]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[YarnCluster]:
    """A resource manager and a node manager."""
    with YarnCluster(tmp_path_factory.mktemp("yarn")) as running:
        yield running


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a broker's store, and a lake that was archived on this machine."""
    return archive_here(tmp_path_factory.mktemp("place"))


def submit(
    cluster: YarnCluster, folder: Path, *words: object, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    """Start a job on YARN; its containers read Spark's jars where pyspark has them, so that they are not uploaded."""
    options = ["--master", "yarn", "--num-executors", "1", "--executor-memory", "1g", "--driver-memory", "1g"]
    for role in ("driver", "executor"):  # they live for a minute or two: the optimizing compiler would cost more
        options += ["--conf", f"spark.{role}.defaultJavaOptions=-XX:TieredStopAtLevel=1"]
    options += ["--conf", f"spark.yarn.jars=local:{JARS}/*", "--conf", f"spark.yarn.stagingDir={folder / STAGING}"]
    return subprocess.Popen(
        [str(ROOT / "spark-submit.sh"), *options, *map(str, words)],
        cwd=folder,
        env={
            **os.environ,
            "HADOOP_CONF_DIR": str(cluster.configuration),
            "SPARK_LOCAL_IP": "127.0.0.1",
            **(environment or {}),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(job: subprocess.Popen[str], cluster: YarnCluster, code: int = 0) -> tuple[str, str]:
    """Wait for a job to end with an exit code, and return its output and its messages."""
    printed, errors = job.communicate(timeout=PATIENCE_SECONDS)
    assert job.returncode == code, f"{printed}\n{errors}\n{cluster.logs()}"
    return printed, errors


def test_executors_on_yarn_archive_what_this_machine_does(cluster: YarnCluster, place: Path) -> None:
    finish(submit(cluster, place, "archive", "--store", "store", "--broker", "a", "--lake", "there"), cluster)
    check_equal(place / "there", place / "here")
    # The driver's JVM ends after the job.
    wait_until(lambda: cluster.applications()[-1]["finalStatus"] != "UNDEFINED", look_seconds=1)
    assert cluster.applications()[-1]["finalStatus"] == "SUCCEEDED"


def cluster_mode(
    cluster: YarnCluster, folder: Path, *words: object, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    """Start a job whose driver runs on YARN, too; its containers share the folder with this machine."""
    options = ["--deploy-mode", "cluster", "--conf", f"spark.commitlake.sharedFolders={folder}"]
    return submit(cluster, folder, *options, *words, environment=environment)


def sent_files(folder: Path) -> list[Path]:
    """Return the files that are left in the folders of applications and of their output."""
    return [path for path in (folder / STAGING).rglob("*") if path.is_file()]


def follow_forever(cluster: YarnCluster, place: Path) -> subprocess.Popen[str]:
    """Start a job on YARN that does not end by itself, once it has a session."""
    places = ("--store", place / "store", "--broker", "a", "--lake", place / "followed")
    return cluster_mode(cluster, place, "archive", *places, "--follow", "--no-quality", environment=NOT_SENT)


def is_running(cluster: YarnCluster, number: int) -> bool:
    """Return whether an application has registered, so that its driver has a session."""
    found = cluster.applications()
    return len(found) > number and found[number]["state"] == "RUNNING"


def test_a_driver_on_yarn_archives_what_this_machine_does(cluster: YarnCluster, place: Path) -> None:
    places = ("--store", place / "store", "--broker", "a", "--lake", place / "by-yarn")
    # YARN would replace such texts on a command line.
    strange = ("--metrics-file", place / "{{HOME}} <LOG_DIR> $HOME.prom")
    secret = {"COMMITLAKE_MASK_KEY": "5ec2e7" * 8}
    printed, errors = finish(cluster_mode(cluster, place, "archive", *places, *strange, environment=secret), cluster)
    check_equal(place / "by-yarn", place / "here")
    assert f"{MESSAGES:,} messages from" in printed + errors
    application = cluster.applications()[-1]
    assert f"commitlake archive: {application['id']} runs the job on YARN" in errors
    assert application["finalStatus"] == "SUCCEEDED"
    assert Path(strange[1]).is_file()
    for shown in (printed, errors, cluster.logs(), str(application)):
        assert secret["COMMITLAKE_MASK_KEY"] not in shown
    assert sent_files(place) == []


def test_the_exit_code_of_a_driver_on_yarn_is_that_of_the_job(cluster: YarnCluster, place: Path) -> None:
    shutil.copytree(place / "store", place / "damaged")
    segment = min((place / "damaged" / "commitlog").iterdir())
    with segment.open("r+b") as file:
        file.seek(1000)
        file.write(b"\xff" * 100)
    assert verify.main([str(place / "damaged"), "--local", "--quiet"]) == 3
    job = cluster_mode(cluster, place, "verify", place / "damaged", environment=NOT_SENT)
    printed, _ = finish(job, cluster, code=3)
    assert "damage" in printed
    application = cluster.applications()[-1]
    assert application["finalStatus"] == "FAILED"
    assert "User application exited with status 3" in application["diagnostics"]


def test_an_interrupt_kills_the_application(cluster: YarnCluster, place: Path) -> None:
    known = len(cluster.applications())
    job = follow_forever(cluster, place)
    wait_until(lambda: is_running(cluster, known), PATIENCE_SECONDS, look_seconds=1)
    job.send_signal(signal.SIGINT)
    _, errors = finish(job, cluster, code=130)
    assert f"commitlake archive: killed {cluster.applications()[-1]['id']}" in errors
    wait_until(lambda: cluster.applications()[-1]["state"] == "KILLED")
    assert sent_files(place) == []


def test_a_driver_that_is_killed_is_a_failure_with_yarns_reason(cluster: YarnCluster, place: Path) -> None:
    known = len(cluster.applications())
    job = follow_forever(cluster, place)
    wait_until(lambda: is_running(cluster, known), PATIENCE_SECONDS, look_seconds=1)
    cluster.kill_driver()
    _, errors = finish(job, cluster, code=1)
    assert "ended as FAILED, without an exit code: " in errors
    assert len(cluster.applications()) == known + 1
    assert sent_files(place) == []
