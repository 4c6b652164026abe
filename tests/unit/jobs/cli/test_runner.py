"""Tests of the choice of a runner by a job's arguments."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from commitlake.connectors.runtime.local_runner import HERE, ProcessRunner, ThreadRunner
from commitlake.connectors.runtime.runner import Runner, available_cores
from commitlake.connectors.runtime.spark_runner import SparkRunner
from commitlake.jobs.archive import command as archive
from commitlake.jobs.cli import runner as runner_module
from commitlake.jobs.cli.runner import make_runner
from commitlake.jobs.maintain import command as maintain
from commitlake.jobs.rebuild import command as rebuild
from commitlake.jobs.restore import command as restore
from commitlake.jobs.verify import command as verify

NEEDED = {
    archive: ["--store", "store", "--lake", "lake"],
    verify: ["store"],
    rebuild: ["store", "--out", "out"],
    maintain: ["--lake", "lake"],
    restore: ["--lake", "lake", "--out", "out"],
}


def made(job: object, *options: str) -> Runner:
    arguments = job.build_parser().parse_args([*NEEDED[job], *options])  # type: ignore[attr-defined, index]
    return make_runner(arguments, "job")


@pytest.fixture(autouse=True)
def session(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """Replace the Spark session, which is not used."""
    session = Mock()
    monkeypatch.setattr(runner_module, "open_session", lambda *_: session)
    return session


@pytest.mark.parametrize(("job", "kind"), [(archive, ThreadRunner), (rebuild, ThreadRunner), (verify, ProcessRunner)])
def test_local_uses_every_core_of_this_machine(job: object, kind: type[Runner]) -> None:
    runner = made(job, "--local")
    assert type(runner) is kind
    assert runner.cores == available_cores()


@pytest.mark.parametrize(("job", "option"), [(archive, "--threads"), (rebuild, "--threads"), (verify, "--processes")])
def test_local_uses_the_requested_number_of_cores(job: object, option: str) -> None:
    assert made(job, "--local", option, "3").cores == 3


@pytest.mark.parametrize("job", [archive, rebuild, verify])
def test_spark_is_used_without_local(job: object, session: Mock) -> None:
    runner = made(job)
    assert isinstance(runner, SparkRunner)
    assert runner.session is session


@pytest.mark.parametrize("job", [maintain, restore])
def test_jobs_that_do_not_need_spark_use_it_on_request(job: object) -> None:
    assert made(job) is made(job, "--local") is HERE
    assert isinstance(made(job, "--spark"), SparkRunner)
    with pytest.raises(SystemExit):
        made(job, "--spark", "--local")
