"""Tests of the choice of a runner by a job's arguments."""

from __future__ import annotations

from unittest.mock import Mock

import pytest
from pyspark.sql import SparkSession

from commitlake.connectors.runtime.local_runner import HERE, ProcessRunner, ThreadRunner
from commitlake.connectors.runtime.runner import Runner, available_cores
from commitlake.connectors.spark.runner import SparkRunner
from commitlake.jobs.archive.command import Archive
from commitlake.jobs.arguments import runner as runner_module
from commitlake.jobs.arguments.runner import make_runner
from commitlake.jobs.cli.command import JobError
from commitlake.jobs.maintain.command import Maintain
from commitlake.jobs.rebuild.command import Rebuild
from commitlake.jobs.restore.command import Restore
from commitlake.jobs.verify.command import Verify

Local = Archive | Verify | Rebuild | Maintain | Restore
NEEDED: dict[type[Local], list[str]] = {
    Archive: ["--store", "store", "--lake", "lake"],
    Verify: ["store"],
    Rebuild: ["store", "--out", "out"],
    Maintain: ["--lake", "lake"],
    Restore: ["--lake", "lake", "--out", "out"],
}


def made(job: type[Local], *options: str) -> Runner:
    return make_runner(job.parse(*NEEDED[job], *options), "job")


@pytest.fixture(autouse=True)
def session(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """Replace the Spark session, which is not used."""
    session = Mock()
    monkeypatch.setattr(runner_module, "get_spark_session", lambda *_: session)
    return session


WORKERS = [(Archive, ThreadRunner), (Rebuild, ThreadRunner), (Verify, ProcessRunner)]


@pytest.fixture
def submitted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let jobs take this process for one of spark-submit.sh, a cluster or Databricks."""
    monkeypatch.setattr(runner_module, "is_on_spark", lambda: True)


@pytest.mark.parametrize(("job", "kind"), WORKERS)
def test_every_core_of_this_machine_is_used_by_default(job: type[Local], kind: type[Runner]) -> None:
    for options in ([], ["--local"]):
        runner = made(job, *options)
        assert type(runner) is kind
        assert runner.cores == available_cores()


@pytest.mark.parametrize(("job", "option"), [(Archive, "--threads"), (Rebuild, "--threads"), (Verify, "--processes")])
def test_the_requested_number_of_cores_is_used(job: type[Local], option: str) -> None:
    assert made(job, option, "3").cores == made(job, "--local", option, "3").cores == 3


@pytest.mark.parametrize(("job", "kind"), WORKERS)
def test_spark_is_used_on_request(job: type[Local], kind: type[Runner], session: Mock) -> None:
    runner = made(job, "--spark")
    assert isinstance(runner, SparkRunner)
    assert runner.session is session
    with pytest.raises(JobError, match="has no effect on Spark"):
        made(job, "--spark", "--threads", "3")


@pytest.mark.usefixtures("submitted")
@pytest.mark.parametrize(("job", "kind"), WORKERS)
def test_spark_is_used_without_local_if_spark_submit_or_a_cluster_runs_the_job(
    job: type[Local], kind: type[Runner]
) -> None:
    assert isinstance(made(job), SparkRunner)
    assert type(made(job, "--local", "--threads", "3")) is kind


@pytest.mark.parametrize(("job", "kind"), WORKERS)
def test_the_session_of_this_process_is_used(
    job: type[Local], kind: type[Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SparkSession, "getActiveSession", Mock)
    assert isinstance(made(job), SparkRunner)
    assert type(made(job, "--local")) is kind


@pytest.mark.usefixtures("submitted")
@pytest.mark.parametrize("job", [Maintain, Restore])
def test_jobs_that_do_not_need_spark_use_it_on_request(job: type[Local]) -> None:
    assert made(job) is made(job, "--local") is HERE
    assert isinstance(made(job, "--spark"), SparkRunner)
    with pytest.raises(SystemExit):
        made(job, "--spark", "--local")


@pytest.mark.parametrize(("job", "kind"), WORKERS)
def test_spark_in_the_environment_does_not_override_local_in_it(
    job: type[Local], kind: type[Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMMITLAKE_LOCAL", "true")
    monkeypatch.setenv("COMMITLAKE_SPARK", "true")
    assert type(made(job)) is kind
