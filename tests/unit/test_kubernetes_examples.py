"""Tests that the example manifests for Kubernetes are valid and fit together, and the settings and the image."""

from __future__ import annotations

import importlib
import re
import tomllib
from pathlib import Path, PurePosixPath
from typing import Any

import kubernetes_validate
import pytest

from commitlake.connectors.spark import kubernetes_executor
from commitlake.jobs.launch.submit import split_command_line
from commitlake.schemas.errors import ExitCode
from tests.support.kubernetes_manifests import EXAMPLES, FOLDER, SETTINGS, containers, documents, pod_spec

KUSTOMIZATION = "kustomization.yaml"
MANIFESTS = sorted(path.name for path in FOLDER.glob("*.yaml") if path.name != KUSTOMIZATION)
ON_EXECUTORS = ("CronJob", "archive-on-executors")
PODS = [
    ("CronJob", "archive"), ON_EXECUTORS, ("CronJob", "maintain"), ("Deployment", "follow"), ("Deployment", "metrics")
]  # fmt: skip
VERSIONS = ["1.31", "1.37"]  # the first with a stable podFailurePolicy, and the newest


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", MANIFESTS)
def test_a_manifest_fits_the_schemas_of_kubernetes(name: str, version: str) -> None:
    for document in documents(name):
        kubernetes_validate.validate(document, version, strict=True)


def test_the_schemas_refuse_an_unknown_field() -> None:
    (document,) = documents("follow.yaml")
    document["spec"]["template"]["spec"]["containers"][0]["arguments"] = []
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(document, VERSIONS[-1], strict=True)


def test_the_kustomization_names_every_file() -> None:
    named = re.findall(r"^ *(?:# )?- ([\w-]+\.(?:yaml|toml))$", (FOLDER / KUSTOMIZATION).read_text(), re.MULTILINE)
    assert sorted(named) == sorted(path.name for path in FOLDER.iterdir() if path.name != KUSTOMIZATION)
    (kustomization,) = documents(KUSTOMIZATION)
    assert kustomization["configMapGenerator"] == [
        {"name": "commitlake-config", "files": [SETTINGS]},
        {"name": "commitlake-executor", "files": ["executor.yaml"]},
    ]
    assert {image["name"] for image in kustomization["images"]} == {
        container["image"] for kind, name in PODS for container in containers(pod_spec(kind, name))
    }


@pytest.mark.parametrize(("kind", "name"), PODS)
def test_containers_have_valid_arguments_and_mount_what_their_settings_name(
    kind: str, name: str, tmp_path: Path
) -> None:
    pod = pod_spec(kind, name)
    volumes = {volume["name"] for volume in pod["volumes"]}
    settings = tomllib.loads((FOLDER / SETTINGS).read_text())
    used = set()
    for container in containers(pod):
        job, *arguments = split_command_line(container["args"])[1]
        mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
        used |= {mount["name"] for mount in mounts.values()}
        places = [value for key, value in settings[job].items() if key in {"store", "lake"}]
        config = arguments[arguments.index("--config") + 1]
        for place in (*places, config):
            assert any(PurePosixPath(place).is_relative_to(path) for path in mounts), place
        assert PurePosixPath(config).name == SETTINGS
        arguments[arguments.index("--config") + 1] = str(FOLDER / SETTINGS)
        importlib.import_module(f"commitlake.jobs.{job}.command").build_parser().parse_args(arguments)
        assert mounts.get("/stores", {"readOnly": True})["readOnly"]
    assert used == volumes


def test_executors_have_the_volumes_and_the_image_of_their_job() -> None:
    (template,) = documents("executor.yaml")
    pod = pod_spec(*ON_EXECUTORS)
    (driver,), (executor,) = pod["containers"], template["spec"]["containers"]
    own = {"/etc/commitlake", "/etc/commitlake-executor"}
    mounts = [mount for mount in driver["volumeMounts"] if mount["mountPath"] not in own]
    assert executor["volumeMounts"] == mounts
    names = {mount["name"] for mount in mounts}
    assert template["spec"]["volumes"] == [volume for volume in pod["volumes"] if volume["name"] in names]
    assert template["spec"]["securityContext"] == pod["securityContext"]
    assert executor["securityContext"] == driver["securityContext"]
    assert executor["envFrom"] == driver["envFrom"]
    assert executor["command"] == ["python3", "-P", "-m", kubernetes_executor.__name__]
    options = split_command_line(driver["args"])[0]
    settings = dict(word.split("=", 1) for word in options if word.startswith("spark."))
    (image,) = documents(KUSTOMIZATION)[0]["images"]
    assert settings["spark.kubernetes.container.image"] == f"{image['newName']}:{image['newTag']}"
    template_file = PurePosixPath(settings["spark.kubernetes.executor.podTemplateFile"])
    assert (str(template_file.parent), template_file.name) == ("/etc/commitlake-executor", "executor.yaml")


@pytest.mark.parametrize(("kind", "name"), PODS)
def test_containers_run_as_the_user_of_the_image_without_privileges(kind: str, name: str) -> None:
    pod = pod_spec(kind, name)
    assert f"--uid {pod['securityContext']['runAsUser']} " in (EXAMPLES / "Dockerfile").read_text()
    assert pod["securityContext"]["runAsNonRoot"]
    for container in containers(pod):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert set(container["resources"]["limits"]) == {"memory"}
        values = {variable["name"] for variable in container.get("env", []) if "value" in variable}
        assert values <= {"PYSPARK_PYTHON"}  # anything secret is in the Secret


@pytest.mark.parametrize("name", ["archive", "archive-on-executors", "maintain"])
def test_only_failures_that_may_pass_are_retried(name: str) -> None:
    (cron,) = (document for document in documents(f"{name}.yaml") if document["kind"] == "CronJob")
    job: dict[str, Any] = cron["spec"]["jobTemplate"]["spec"]
    (rule,) = (rule for rule in job["podFailurePolicy"]["rules"] if rule["action"] == "FailJob")
    assert rule["onExitCodes"]["operator"] == "In"
    assert set(rule["onExitCodes"]["values"]) == {ExitCode.USAGE, ExitCode.DAMAGE, ExitCode.REFUSED}
    assert job["template"]["spec"]["restartPolicy"] == "Never"
    assert cron["spec"]["concurrencyPolicy"] == "Forbid"


def test_no_pod_gets_variables_that_look_like_options() -> None:
    specs = [pod_spec(kind, name) for kind, name in PODS] + [documents("executor.yaml")[0]["spec"]]
    assert [spec["enableServiceLinks"] for spec in specs] == [False] * len(specs)


def test_the_follower_ends_before_another_one_starts() -> None:
    (deployment,) = documents("follow.yaml")
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}
    assert deployment["spec"]["replicas"] == 1


def test_the_service_finds_the_pods_of_the_metrics() -> None:
    deployment, service = documents("metrics.yaml")
    assert service["spec"]["selector"] == deployment["spec"]["template"]["metadata"]["labels"]
    (port,) = service["spec"]["ports"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert port["targetPort"] in {port["name"] for port in container["ports"]}
