"""Tests of the choice of a runner by a job's arguments."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from commitlake.connectors.runtime.local_runner import HERE, ProcessRunner, ThreadRunner
from commitlake.connectors.runtime.runner import Runner, available_cores
from commitlake.connectors.spark.runner import SparkRunner
from commitlake.jobs.archive.command import Archive
from commitlake.jobs.cli import runner as runner_module
from commitlake.jobs.cli.runner import make_runner
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
    monkeypatch.setattr(runner_module, "open_session", lambda *_: session)
    return session


@pytest.mark.parametrize(("job", "kind"), [(Archive, ThreadRunner), (Rebuild, ThreadRunner), (Verify, ProcessRunner)])
def test_local_uses_every_core_of_this_machine(job: type[Local], kind: type[Runner]) -> None:
    runner = made(job, "--local")
    assert type(runner) is kind
    assert runner.cores == available_cores()


@pytest.mark.parametrize(("job", "option"), [(Archive, "--threads"), (Rebuild, "--threads"), (Verify, "--processes")])
def test_local_uses_the_requested_number_of_cores(job: type[Local], option: str) -> None:
    assert made(job, "--local", option, "3").cores == 3


@pytest.mark.parametrize("job", [Archive, Rebuild, Verify])
def test_spark_is_used_without_local(job: type[Local], session: Mock) -> None:
    runner = made(job)
    assert isinstance(runner, SparkRunner)
    assert runner.session is session


@pytest.mark.parametrize("job", [Maintain, Restore])
def test_jobs_that_do_not_need_spark_use_it_on_request(job: type[Local]) -> None:
    assert made(job) is made(job, "--local") is HERE
    assert isinstance(made(job, "--spark"), SparkRunner)
    with pytest.raises(SystemExit):
        made(job, "--spark", "--local")
