"""Jobs on a standalone cluster; most of its executors have neither this package nor the driver's environment."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from commitlake.jobs.lag import command as lag
from commitlake.jobs.rebuild import command as rebuild
from commitlake.jobs.restore import command as restore
from commitlake.jobs.verify import command as verify
from commitlake.schemas.remoting.admin_headers import CreateTopicRequest
from commitlake.schemas.remoting.codes import RequestCode
from tests.servers.remoting import ask, max_offset
from tests.servers.spark_classes import class_archive, quick_start
from tests.servers.spark_cluster import SparkCluster
from tests.support.lake_contents import content
from tests.support.local_archives import MESSAGES, SEGMENT_BYTES, archive_here, check_equal
from tests.support.replicas import master_lite
from tests.support.served_stores import files_of
from tests.support.waiting import wait_until
from tests.support.wheel_environments import bare_python

ROOT = Path(__file__).parents[3]
SIZES = ("--segment-size", str(SEGMENT_BYTES), "--quiet")
PATIENCE_SECONDS = 400
TOPIC = "topic-0"
CHANGE = """
from pyspark.sql import functions as F

def change(messages):
    return messages.withColumn("tags", F.lit("changed"))
"""
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
    quick = f"spark.executor.defaultJavaOptions={quick_start(class_archive())}"
    command = [str(ROOT / "spark-submit.sh"), "--master", cluster.master, "--executor-memory", "1g"]
    command += ["--conf", quick, *options]
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


def finish_although(kills: Callable[[], bool], job: subprocess.Popen[str]) -> None:
    """Wait until a process of the cluster was killed, and for the job to succeed."""
    was_killed = False

    def has_killed_or_ended() -> bool:
        nonlocal was_killed
        was_killed = kills()
        return was_killed or job.poll() is not None

    wait_until(has_killed_or_ended, PATIENCE_SECONDS)
    finish(job)
    assert was_killed


def _below(files: dict[str, bytes], folder: str) -> dict[str, bytes]:
    return {path: data for path, data in files.items() if path.startswith(f"{folder}/")}


def figures(printed: str) -> list[dict[str, str]]:
    """Return the rows that `lag` printed as CSV, without the time at which it ran."""
    rows = list(csv.DictReader(printed.splitlines()))
    return [{name: value for name, value in row.items() if name != "as_of"} for row in rows]


@pytest.mark.parametrize(
    ("workers", "cores", "options"),
    [
        pytest.param(1, 2, ("--conf", f"spark.pyspark.python={sys.executable}"), id="a Python that has the package"),
        pytest.param(2, 1, (), id="two workers", marks=pytest.mark.long("packs and unpacks 750 MB for each executor")),
    ],
)
def test_an_archive_equals_a_local_one_although_an_executor_was_killed(
    place: Path, tmp_path: Path, workers: int, cores: int, options: tuple[str, ...]
) -> None:
    lake = f"there-{workers}"
    store = ("--store", "store", "--broker", "a", "--quiet")
    with SparkCluster(tmp_path / "cluster", workers, cores) as running:
        job = submit(running, place, "archive", *store, "--lake", lake, options=options)
        finish_although(running.kill_executor_in_task, job)
    check_equal(place / lake, place / "here")


@pytest.mark.long("an executor is killed each time")
def test_tasks_that_run_twice_by_speculation_archive_once(cluster: SparkCluster, place: Path) -> None:
    (place / "events").mkdir()
    settings = {
        "spark.speculation": "true",
        "spark.speculation.task.duration.threshold": "2s",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file://{place}/events",
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.compress": "false",
    }
    options = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    store = ("--store", "store", "--broker", "a", "--quiet")
    job = submit(cluster, place, "archive", *store, "--lake", "speculated", options=options)
    paused: int | None = None

    def has_paused_or_ended() -> bool:
        nonlocal paused
        paused = cluster.pause_executor_in_task()
        return paused is not None or job.poll() is not None

    wait_until(has_paused_or_ended, PATIENCE_SECONDS)
    try:
        finish(job)
    finally:
        if paused is not None:
            with suppress(ProcessLookupError):  # its driver may have ended it
                os.kill(paused, signal.SIGCONT)
    (log,) = (place / "events").iterdir()
    events = [json.loads(line) for line in log.read_text().splitlines()]
    begun = [event["Task Info"] for event in events if event["Event"] == "SparkListenerTaskStart"]
    assert any(task["Speculative"] for task in begun)
    check_equal(place / "speculated", place / "here")


@pytest.mark.long("an executor is killed each time")
def test_a_worker_that_is_lost_for_good_is_done_without(place: Path, tmp_path: Path) -> None:
    with SparkCluster(tmp_path / "cluster") as other:
        job = submit(other, place, "archive", "--store", "store", "--broker", "a", "--lake", "fewer", "--quiet")
        finish_although(other.kill_worker, job)
    check_equal(place / "fewer", place / "here")


@pytest.mark.long("an archive has the same way to executors, each time")
def test_a_rebuilt_and_a_restored_store_equal_local_ones(cluster: SparkCluster, place: Path) -> None:
    finish(submit(cluster, place, "rebuild", "store", "--out", "rebuilt-there"))
    assert rebuild.main([str(place / "store"), "--out", str(place / "rebuilt-here"), "--local", "--quiet"]) == 0
    finish(submit(cluster, place, "restore", "--lake", "here", "--out", "restored-there", "--spark", *SIZES))
    assert restore.main(["--lake", str(place / "here"), "--out", str(place / "restored-here"), "--local", *SIZES]) == 0
    for name in ("rebuilt", "restored"):
        there, here = (files_of(place / f"{name}-{where}") for where in ("there", "here"))
        for folder in ("commitlog", "consumequeue") if name == "restored" else ("consumequeue",):
            assert any(path.startswith(folder) for path in here), (name, folder)
            assert _below(there, folder) == _below(here, folder), (name, folder)


@pytest.mark.long("an archive has the same way to executors, each time")
def test_checks_and_queries_read_on_executors(
    cluster: SparkCluster, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    finish(submit(cluster, place, "verify", "store", "--quiet"))
    damaged = place / "damaged"
    shutil.copytree(place / "store", damaged)
    with next(iter(sorted((damaged / "commitlog").iterdir()))).open("r+b") as segment:
        segment.seek(SEGMENT_BYTES // 2)
        segment.write(b"x" * 3000)
    there = submit(cluster, place, "verify", "damaged", "--format", "json", "--quiet")
    printed, errors = there.communicate(timeout=PATIENCE_SECONDS)
    assert there.returncode == 3, errors
    assert verify.main([str(damaged), "--local", "--format", "json", "--quiet"]) == 3
    found, wanted = (json.loads(text)["rows"][0]["findings"] for text in (printed, capsys.readouterr().out))
    assert found == wanted != []
    finish(submit(cluster, place, "audit", "--lake", "here", "--quiet"))
    select = "SELECT count(*) AS messages FROM messages"
    printed = finish(submit(cluster, place, "query", "--lake", "here", "--engine", "spark", "--sql", select, "--quiet"))
    assert str(MESSAGES) in printed.replace(",", "")
    rates = ("tps", "--lake", "here", "--by", "topic", "--from", "2020-01-01", "--format", "csv", "--quiet")
    assert finish(submit(cluster, place, *rates, "--spark")) == finish(submit(cluster, place, *rates))


@pytest.mark.long("an archive has the same way to executors, each time")
def test_lag_and_replays_are_those_of_one_process(
    cluster: SparkCluster, place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(place / "store", tmp_path / "store")
    offsets = {"offsetTable": {f"{TOPIC}@billing": {"0": 7}}}
    (tmp_path / "store" / "config").mkdir(exist_ok=True)
    (tmp_path / "store" / "config" / "consumerOffset.json").write_text(json.dumps(offsets))
    behind = ("lag", "--store", str(tmp_path / "store"), "--format", "csv", "--quiet")
    there = finish(submit(cluster, tmp_path, *behind))
    assert lag.main(behind[1:]) == 0
    found, wanted = (figures(printed) for printed in (there, capsys.readouterr().out))
    assert found == wanted != []
    (tmp_path / "change.py").write_text(CHANGE)
    queues = range(4)
    with master_lite(tmp_path / "target") as target:
        made = CreateTopicRequest("Again", "TBW102", 4, 4, 6, "SINGLE_TAG")
        ask(target.broker_address, RequestCode.UPDATE_AND_CREATE_TOPIC, made)
        change = ("--transform", "./change.py:change", "--to-topic", "Again", "--namesrv", target.name_server_address)
        chosen = ("--lake", str(place / "here"), "--topic", TOPIC, "--where", "true")
        printed = finish(submit(cluster, tmp_path, "replay", *chosen, *change, "--verify", "--yes"))
        sent = sum(max_offset(target.broker_address, "Again", queue_id) for queue_id in queues)
    assert sent == MESSAGES // 3, printed


@pytest.mark.long("workers have the same check before each job")
def test_a_select_names_workers_without_the_package(cluster: SparkCluster, place: Path) -> None:
    bare = bare_python()
    select = ("query", "--lake", "here", "--engine", "spark", "--sql", "SELECT count(*) FROM messages")
    job = submit(cluster, place, *select, options=("--conf", f"spark.pyspark.python={bare}"))
    _, errors = job.communicate(timeout=PATIENCE_SECONDS)
    assert job.returncode == 2, errors
    assert f"({bare}) lacks " in errors


@pytest.mark.long("batches have the same way to executors, each time")
def test_a_stream_is_archived_by_executors(cluster: SparkCluster, place: Path) -> None:
    store = ("--store", "store", "--broker", "a", "--quiet")
    finish(submit(cluster, place, "archive", *store, "--lake", "streamed", "--available-now"))
    assert content(place / "streamed")["messages"].equals(content(place / "here")["messages"])
