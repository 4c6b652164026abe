"""Tests of databricks.yml: against Databricks' own definitions, and by running the commands of its tasks.

`databricks-bundles` has the definitions of jobs, clusters and libraries as Python classes, and refuses unknown fields.
The fields around the jobs (artifacts, variables, targets) are not in it, and are compared with the lists here.
"""

from __future__ import annotations

import copy
import importlib
import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
import yaml
from databricks.bundles.jobs import Job
from packaging.requirements import Requirement

from commitlake.jobs.cli.main import JOBS
from commitlake.jobs.launch.databricks_task import parse_task
from tests.support.local_archives import archive_here

pytestmark = pytest.mark.usefixtures("own_folder")

ROOT = Path(__file__).parents[3]
BUNDLE: dict[str, Any] = yaml.safe_load((ROOT / "databricks.yml").read_text())
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
JOB_NAMES = {"nightly", "maintain", "follow", "report", "notebooks"}
NO_DEFAULT = {"lake": "s3://bucket/lake", "stores": "s3://bucket/stores/{broker}/store"}
MAINTAIN_ID = 17
"""Databricks gives a job its id when it is deployed."""
RUN_LOCALLY = ("archive", "audit", "maintain", "tps", "lag")
_REFERENCE = re.compile(r"\$\{([^}]+)\}")


def resolved(value: Any, variables: dict[str, str]) -> Any:
    """Return a part of the bundle with its variables replaced; an unknown reference is a KeyError."""
    if isinstance(value, dict):
        return {key: resolved(each, variables) for key, each in value.items()}
    if isinstance(value, list):
        return [resolved(each, variables) for each in value]
    if not isinstance(value, str):
        return value
    if value == "${resources.jobs.maintain.id}":
        return MAINTAIN_ID
    known = {f"var.{name}": text for name, text in variables.items()}
    return _REFERENCE.sub(lambda found: known[found[1]], value)


def bundle_jobs(**given: str) -> dict[str, Any]:
    """Return the jobs as Databricks gets them, with these values of variables."""
    defaults = {name: str(each["default"]) for name, each in BUNDLE["variables"].items() if "default" in each}
    variables = {**defaults, **NO_DEFAULT, "notification_email": "someone@example.org", **given}
    jobs: dict[str, Any] = resolved(BUNDLE["resources"]["jobs"], variables)
    return jobs


def tasks(jobs: dict[str, Any], kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Return job and task, for all tasks of a kind."""
    for name, job in jobs.items():
        for task in job["tasks"]:
            if kind in task:
                yield name, task


def commands(**given: str) -> dict[str, list[str]]:
    """Return the command line of each task of a wheel, by `job.task`."""
    found = tasks(bundle_jobs(**given), "python_wheel_task")
    return {f"{name}.{task['task_key']}": task["python_wheel_task"]["parameters"] for name, task in found}


# --- Databricks' definitions ---


@pytest.mark.parametrize("name", sorted(JOB_NAMES))
def test_each_job_fits_the_definitions_of_databricks(name: str) -> None:
    job = bundle_jobs()[name]
    assert Job.from_dict(copy.deepcopy(job)).as_dict() == job


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"max_runs": 1}, "Unexpected field 'max_runs' for class Job"),
        ({"tasks": [{"task_key": "a", "libraries": [{"wheel": "x"}]}]}, "Unexpected field 'wheel' for class Library"),
        ({"tasks": [{"task_key": "a", "run_if": "SOMETIMES"}]}, "'SOMETIMES' is not a valid RunIf"),
    ],
)
def test_the_definitions_refuse_wrong_fields_and_values(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Job.from_dict({**bundle_jobs()["report"], **wrong})


def test_the_bundle_has_the_expected_parts() -> None:
    assert set(BUNDLE) == {"bundle", "artifacts", "sync", "variables", "resources", "targets"}
    assert set(BUNDLE["resources"]["jobs"]) == JOB_NAMES
    assert set(BUNDLE["targets"]) == {"dev", "prod"}
    assert [name for name, target in BUNDLE["targets"].items() if target.get("default")] == ["dev"]
    assert {target["mode"] for target in BUNDLE["targets"].values()} == {"development", "production"}
    for variable in BUNDLE["variables"].values():
        assert set(variable) <= {"description", "default"}
        assert variable["description"]
    assert {name for name, each in BUNDLE["variables"].items() if "default" not in each} == set(NO_DEFAULT)
    used = _REFERENCE.findall(str(BUNDLE["resources"]) + str(BUNDLE["targets"]["prod"]["permissions"]))
    assert set(used) == {*(f"var.{name}" for name in BUNDLE["variables"]), "resources.jobs.maintain.id"}


def test_only_the_deployer_and_administrators_can_write_what_runs_in_production() -> None:
    prod = BUNDLE["targets"]["prod"]
    assert prod["workspace"]["root_path"].startswith("/Workspace/Users/${workspace.current_user.userName}/")
    assert [set(entry) for entry in prod["permissions"]] == [{"group_name", "level"}]
    assert {entry["level"] for entry in prod["permissions"]} == {"CAN_VIEW"}
    assert BUNDLE["variables"]["operators"]["default"] == "admins"


# --- runs ---


@pytest.mark.parametrize("name", sorted(JOB_NAMES))
def test_runs_do_not_overlap_and_databricks_retries_nothing(name: str) -> None:
    job = bundle_jobs()[name]
    assert job["max_concurrent_runs"] == 1
    if "continuous" in job:  # it never ends by itself, and Databricks allows no retries
        assert not {"timeout_seconds", "schedule"} & set(job)
        assert not any("max_retries" in task for task in job["tasks"])
    else:
        assert job["timeout_seconds"] > 0
        assert all(task.get("max_retries", 0) == 0 for task in job["tasks"])


def test_maintenance_follows_only_an_archive_and_an_audit_without_findings() -> None:
    archive, audit, maintain = bundle_jobs()["nightly"]["tasks"]
    assert "depends_on" not in archive
    assert (audit["depends_on"], audit["run_if"]) == ([{"task_key": "archive"}], "ALL_DONE")
    assert maintain["depends_on"] == [{"task_key": "archive"}, {"task_key": "audit"}]
    assert maintain["run_if"] == "ALL_SUCCESS"
    assert maintain["run_job_task"]["job_id"] == MAINTAIN_ID


def test_secrets_are_references_to_a_scope() -> None:
    for job in bundle_jobs().values():
        (cluster,) = job["job_clusters"]
        environment = cluster["new_cluster"]["spark_env_vars"]
        secrets = {name: value for name, value in environment.items() if name != "AWS_REGION"}
        assert secrets
        assert all(re.fullmatch(r"\{\{secrets/commitlake/[a-z-]+\}\}", value) for value in secrets.values())


# --- the wheel ---


def test_tasks_call_the_package_and_the_entry_point_of_the_project() -> None:
    for _, task in tasks(bundle_jobs(), "python_wheel_task"):
        wheel = task["python_wheel_task"]
        assert wheel["package_name"] == PROJECT["project"]["name"]
        assert wheel["entry_point"] in PROJECT["project"]["scripts"]
        assert wheel["entry_point"] != "commitlake"  # it ends the process in which Databricks runs it


def test_libraries_are_the_wheel_and_requirements_of_the_project() -> None:
    extras = PROJECT["project"]["optional-dependencies"].values()
    wanted = [*PROJECT["project"]["dependencies"], *(each for extra in extras for each in extra)]
    known = {(Requirement(each).name, Requirement(each).specifier) for each in wanted}
    (artifact,) = BUNDLE["artifacts"].values()
    built_into = artifact["build"].split()[-2]
    for job in bundle_jobs().values():
        for task in job["tasks"]:
            if "run_job_task" in task:
                continue
            wheel, *others = task["libraries"]
            assert wheel == {"whl": f"./{built_into}/*.whl"}
            for each in others:
                requirement = Requirement(each["pypi"]["package"])
                assert (requirement.name, requirement.specifier) in known


# --- commands ---


@pytest.mark.parametrize("name", sorted(commands()))
def test_the_parameters_are_accepted_by_the_command_line(name: str) -> None:
    attempts, (job, *arguments) = parse_task(commands()[name])
    assert attempts == (1 if name == "follow.follow" else 3)
    assert job in JOBS
    importlib.import_module(f"commitlake.jobs.{job}.command").build_parser().parse_args(arguments)


@pytest.mark.long("the same jobs run in other tests, and their arguments are parsed each time")
def test_the_commands_run_on_a_lake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Run each task that needs no Spark, in the order of a night, by the entry point that the project names."""
    places = {
        "lake": str(tmp_path / "lake"),
        "stores": str(archive_here(tmp_path / "brokers" / "broker-a").parent / "{broker}" / "store"),
        "reports": str(tmp_path),
    }
    script = PROJECT["project"]["scripts"]["commitlake-task"]
    task = EntryPoint("commitlake-task", script, "console_scripts").load()
    by_job = {parameters[2]: parameters for parameters in commands(**places).values() if parameters[0] == "--attempts"}
    assert set(by_job) == set(RUN_LOCALLY)
    for job in RUN_LOCALLY:
        assert task(by_job[job]) is None
    shown = capsys.readouterr()
    assert "run 1: 3,000 messages" in shown.err
    for page in ("tps.html", "lag.html"):
        assert "<html" in (tmp_path / page).read_text()


# --- notebooks ---


def test_notebooks_exist_and_have_the_parameters_as_widgets() -> None:
    found = list(tasks(bundle_jobs(), "notebook_task"))
    assert {name for name, _ in found} == {"notebooks"}
    assert BUNDLE["sync"]["paths"] == ["notebooks"]
    for _, task in found:
        path = ROOT / task["notebook_task"]["notebook_path"]
        assert path.stem == task["task_key"]
        text = path.read_text()
        assert text.startswith("# Databricks notebook source\n")
        assert set(task["notebook_task"]["base_parameters"]) == {"lake"}
        assert re.search(r"open_notebook\(.*?\bLAKE\b", text, re.DOTALL)
